//go:build !race

package shard

// act makes a step on the shards.
func (e *keyExplorer) act(w *keyWorld, i int8, d *keyDriver, token uint64) error {
	p := &w.parts[i]
	home := p.from == p.to
	step := d.step
	at, side := p.from, 0
	switch step {
	case MoveClaimTo, MoveExpect, MoveCopy, MoveCopied, MoveSettle, MoveCompare, MoveCommit, MoveForget, MoveCancel, MoveWipe:
		at, side = p.to, 1
	}
	switch step {
	case MovePublish:
		if e.token && p.token != token {
			return ErrMoveTaken
		}
		d.published = true
		switch {
		case !p.key:
			w.home = p.to
		case p.clear:
			w.over = 0
		default:
			w.over = p.to + 1
		}
		return nil
	case MoveHold:
		d.held = true
		return nil
	case MoveCapture, MoveFreeze, MoveRestore:
		if w.inside == at+1 && !home {
			return errBarrier
		}
	}
	row := &p.rows[side]
	after, err := row.After(step, token)
	if err != nil {
		return err
	}
	goes := p.key || !p.apart || !e.apart // the key's row goes with it
	switch step {
	case MoveExpect, MoveEnlist:
		if why := e.begin(w, i, at, step, home); why != "" {
			return e.callOff(p, token)
		}
	case MoveCopy:
		if goes && e.mine(w, i, p.to) {
			w.value[p.to] = w.value[p.from]
		}
		d.compared = false
		*row, _ = row.After(MoveCopied, token)
		return nil
	case MoveCompare:
		d.compared = true
	case MoveSettle:
		if goes {
			w.value[p.to] = w.value[p.from]
		}
		d.settled = true
	case MoveThaw:
		d.held, d.settled = false, false
	case MoveClean, MoveWipe:
		if goes && e.mine(w, i, at) {
			w.value[at] = -1
		}
	}
	*row = after
	if row.State == MoveGone {
		e.leave(w, i, at, step, home)
	}
	return nil
}

// mine reports whether the shard has what is moved under the part.
func (e *keyExplorer) mine(w *keyWorld, i, at int8) bool {
	if w.parts[i].key {
		return w.key[at].part == i+1
	}
	return w.vnode[at].part == i+1
}

func (e *keyExplorer) callOff(p *keyPart, token uint64) error {
	after, err := p.rows[1].After(MoveCancel, token)
	if p.from != p.to && err == nil {
		p.rows[1] = after
	}
	if p.from == p.to {
		p.rows[0], _ = p.rows[0].After(MoveRestore, token)
	}
	return nil
}

// begin puts the key or the vnode under the part, or says why not.
func (e *keyExplorer) begin(w *keyWorld, i, at int8, step MoveStep, home bool) string {
	p := &w.parts[i]
	c := w.claim(at)
	if !e.alone {
		c.Moving = false
	}
	if p.key {
		if why := c.ForKey(step, p.clear, home); why != "" {
			return why
		}
		w.key[at] = stateAt{c.KeyWith(step, home), i + 1}
		return ""
	}
	if step == MoveExpect {
		p.apart = w.key[p.from].state != MoveNone
	}
	why := c.ForVnode(step, p.apart)
	if why != "" {
		return why
	}
	if step == MoveExpect && e.know {
		w.key[at].state = c.KeyBeside(w.key[p.from].state != MoveNone)
	}
	w.vnode[at].part = i + 1
	if step == MoveExpect {
		w.vnode[at].state = MoveIncoming
	}
	return ""
}

// leave ends the part's say on a shard.
func (e *keyExplorer) leave(w *keyWorld, i, at int8, step MoveStep, home bool) {
	p := &w.parts[i]
	if home {
		step = MoveForget
	}
	if p.key {
		if k := &w.key[at]; k.part == i+1 {
			*k = stateAt{state: KeyWithout(step, k.state, p.clear)}
			if !e.mark && step == MoveClean {
				k.state = MoveNone
			}
		}
		return
	}
	if v := &w.vnode[at]; v.part == i+1 {
		*v = stateAt{state: map[MoveStep]MoveState{MoveForget: MoveOwned, MoveRestore: MoveOwned, MoveClean: MoveMoved, MoveWipe: MoveCancelled}[step]}
	}
}
