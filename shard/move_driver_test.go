//go:build !race

package shard

import (
	"errors"
	"fmt"
)

// driver lets one driver make its next step.
func (e *moveExplorer) driver(w moveWorld, i int) {
	d := &w.drivers[i]
	token := uint64(i + 1)
	say := func(format string, args ...any) string {
		return fmt.Sprintf("driver %d: ", i) + fmt.Sprintf(format, args...)
	}
	switch d.pc {
	case driverWaits:
		if w.drivers[i-1].pc != driverWaits {
			d.pc = driverLooks
			e.add(w, say("takes over"))
		}
	case driverLooks:
		for _, late := range []bool{false, true} {
			if late && (w.thawed || w.from.State != MoveFrozen) {
				continue
			}
			e.decide(w, i, token, late)
		}
	case driverActs:
		e.act(w, i, token)
	case driverWrites:
		values := []int8{d.value}
		if e.faulty {
			values = append(values, d.value-1)
		}
		for _, v := range values {
			w := w
			d := &w.drivers[i]
			if d.value = 0; e.mayWrite(&w, d, MoveCopy, token) {
				w.copy = v
				d.pc, d.step = driverActs, MoveCopied
			}
			e.add(w, say("writes %d", v))
		}
	case driverRereads:
		d.pc, d.value = driverApplies, w.source
		e.add(w, say("reads %d", d.value))
	case driverApplies:
		v := d.value
		if d.value = 0; e.mayWrite(&w, d, d.step, token) {
			w.copy = v
			d.pc = driverStrikes
		}
		e.add(w, say("applies %d", v))
	case driverStrikes:
		if w.from.Applied(e.tokenOf(w.from, token)) != nil {
			d.pc, d.noted = driverEnded, 0
		} else {
			w.noted = max(w.noted-d.noted, 0)
			d.pc, d.noted = driverLooks, 0
		}
		e.add(w, say("strikes what it has applied"))
	}
}

// tokenOf is the token by which a driver acts on a row.
func (e *moveExplorer) tokenOf(r MoveRow, token uint64) uint64 {
	if !e.token {
		return r.Token
	}
	return token
}

func (e *moveExplorer) mayWrite(w *moveWorld, d *moveDriver, step MoveStep, token uint64) bool {
	_, err := w.to.After(step, e.tokenOf(w.to, token))
	e.refused(d, err)
	return err == nil
}

func (e *moveExplorer) refused(d *moveDriver, err error) {
	if err == nil {
		return
	}
	d.pc, d.noted = driverLooks, 0
	if errors.Is(err, ErrMoveTaken) {
		*d = moveDriver{pc: driverEnded}
	}
}

func (e *moveExplorer) decide(w moveWorld, i int, token uint64, late bool) {
	d := &w.drivers[i]
	s := MoveSight{
		From: w.from, To: w.to, Token: token, Cancel: w.cancel, Behind: w.noted > 0, Compared: d.compared, Ready: true, Held: d.held, Settled: d.settled,
		Late: late, Published: true, Released: true, Aged: true,
	}
	if !e.ignore && (w.from.State == MoveFrozen || w.from.State == MoveClosed) {
		s.Compared, s.Held, s.Settled = true, true, true
	}
	if !e.drain && d.held {
		s.Settled = true
	}
	d.step = NextMoveStep(s)
	switch d.step {
	case MoveWait:
		*d = moveDriver{pc: driverEnded} // it waits only for whoever has taken over
	case MoveStuck:
		e.wrong = "stuck"
	case MoveDone:
		*d = moveDriver{pc: driverEnded}
	default:
		d.pc = driverActs
		w.thawed = w.thawed || late
	}
	e.add(w, fmt.Sprintf("driver %d: sees %+v %+v: %v", i, w.to, w.from, d.step))
}

// act makes a step of its own transaction, or the first part of a longer one.
func (e *moveExplorer) act(w moveWorld, i int, token uint64) {
	d := &w.drivers[i]
	how := fmt.Sprintf("driver %d: %v", i, d.step)
	step := d.step
	defer func() { e.add(w, how) }()
	switch step {
	case MoveCopy:
		d.pc, d.value = driverWrites, w.source
		return
	case MoveCatchUp, MoveSettle:
		if w.noted > 0 {
			d.pc, d.noted = driverRereads, w.noted
			return
		}
		d.pc = driverLooks
		if step == MoveSettle {
			d.settled = true
			w.cancel = w.cancel || e.compare && w.copy != w.source
		}
		return
	case MoveCompare:
		d.pc, d.compared = driverLooks, true
		return
	case MoveHold:
		d.pc, d.held = driverLooks, true
		return
	case MoveCapture:
		if e.barrier && w.inside(false) {
			return
		}
	case MoveRestore:
		if e.leave && w.inside(false) {
			return
		}
	case MoveFreeze:
		if e.freeze && w.inside(false) {
			return
		}
	}
	row := &w.from
	switch step {
	case MoveClaimTo, MoveExpect, MoveCopied, MoveCommit, MoveForget, MoveCancel, MoveWipe:
		row = &w.to
	}
	by := token
	if step != MoveClaimTo && step != MoveClaimFrom {
		by = e.tokenOf(*row, token)
	}
	before := *row
	if step == MoveCommit && !e.commit {
		before.State = MoveIncoming
	}
	after, err := before.After(step, by)
	if err != nil {
		e.refused(d, err)
		return
	}
	*row = after
	d.pc = driverLooks
	switch step {
	case MoveClean:
		w.cleaned, w.noted = true, 0
		if e.clean {
			w.source = nothing
		}
	case MoveRestore:
		w.noted = 0
	case MoveForget:
		w.forgot = true
	case MoveWipe:
		if e.wipe {
			w.copy = nothing
		}
	case MoveThaw:
		d.settled, d.held = false, false
	}
}
