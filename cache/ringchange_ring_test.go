//go:build !race

package cache

// The part of the model that is about the ring: what sidecars hear, what keepers and their carriers do, and how phases follow each other.

// viewIn is the view that the shard has in a phase, as the first phase that has it.
func viewIn(phase uint8) uint8 {
	if phase == phaseCarrying {
		return phasePreparing
	}
	return phase
}

// after is the phase that follows one.
func (m *model) after(phase uint8) uint8 {
	switch {
	case phase == phasePreparing && m.down:
		return phaseAfter // there is nothing to hand over
	case phase == phasePreparing && !m.carrier:
		return phaseActive
	}
	return phase + 1
}

// ring is what sidecars, keepers and the network do.
func (m *model) ring(s modelState, next func(modelState)) {
	view := viewIn(s.phase)
	for i := range s.view {
		if s.view[i] == view {
			continue
		}
		n := s // it hears of the phase
		n.view[i], n.lost[i] = view, false
		next(n)
		if !s.lost[i] && m.loseTouch && i == 0 {
			n := s
			n.lost[i] = true
			next(n)
		}
	}
	if m.down && !s.unreachable {
		n := s
		n.unreachable = true
		next(n)
	}
	if s.phase == phaseActive && !s.closed {
		n := s
		n.closed = true
		next(n)
	}
	if m.carrier {
		m.carry(s, next)
	}
	if s.phase == phaseAfter || m.down && !s.unreachable {
		return
	}
	n := s
	n.phase = m.after(s.phase)
	if viewIn(n.phase) == view { // only time has passed
		next(n)
		return
	}
	for i := range s.view {
		if m.hold && s.view[i] != view && !s.lost[i] {
			return
		}
	}
	for k := range m.writers { // the exclusive lock waits for transactions under way
		if m.fence && s.writers[k].step == inTransaction {
			return
		}
	}
	if s.phase == phaseActive && m.closing && !s.closed {
		return
	}
	next(n)
}

// carry is what a keeper's carrier does: what a reader does that gets the lease of the new copy, but that it never loads.
func (m *model) carry(s modelState, next func(modelState)) {
	to := func(step, value uint8, entry modelEntry) {
		n := s
		n.carrier, n.entry[y] = modelCarrier{step, value}, entry
		next(n)
	}
	ours := modelEntry{leased, uint8(len(s.readers))} // no reader's
	switch now := s.entry[y]; s.carrier.step {
	case idle:
		begins := s.phase == phaseCarrying || s.phase == phaseActive || s.phase == phasePreparing && !m.wait
		if begins && onAsk(asked{missing: now.is == nothing, kind: KindPoison}) == actFill {
			to(carrying, 0, ours)
		}
	case carrying:
		switch e := s.entry[x]; {
		case e.is == value && !(m.closing && s.closed):
			to(filling, e.arg%claimedBy, now)
		case now == ours:
			to(stopped, 0, modelEntry{})
		default:
			to(stopped, 0, now)
		}
	case filling:
		if now == ours || !m.lease {
			now = modelEntry{value, s.carrier.value}
		}
		to(stopped, 0, now)
	}
}
