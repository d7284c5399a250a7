package evloop

import "sync/atomic"

// Stats counts what a loop has done since it was made, and what it holds now. It is brought up to date at the end of each turn.
type Stats struct {
	Turns        uint64 // turns worked
	Wakeups      uint64 // times that Submit or Stop had to wake the loop
	Accepted     uint64 // connections accepted by the loop's listeners
	AcceptPauses uint64 // times that accepting was suspended, for want of descriptors or memory nearly always

	Conns       int // connections, dialling ones included
	InputBytes  int // read and not consumed
	OutputBytes int // written and not taken by the kernel
}

// Stats may be called on any goroutine.
func (l *Loop) Stats() Stats {
	return Stats{
		Turns:        l.stats.turns.Load(),
		Wakeups:      l.tasks.wakeupCount(),
		Accepted:     l.stats.accepted.Load(),
		AcceptPauses: l.stats.acceptPauses.Load(),
		Conns:        int(l.stats.conns.Load()),
		InputBytes:   int(l.stats.input.Load()),
		OutputBytes:  int(l.stats.output.Load()),
	}
}

// counters are written by the loop and read by anybody.
type counters struct {
	turns, accepted, acceptPauses atomic.Uint64
	conns, input, output          atomic.Int64
}

// publish is called at the end of each turn. It stores only what has changed: a store costs far more than a load.
func (s *counters) publish(l *Loop) {
	s.turns.Add(1)
	storeChanged(&s.conns, len(l.conns))
	storeChanged(&s.input, l.held.in)
	storeChanged(&s.output, l.held.out)
}

func storeChanged(to *atomic.Int64, n int) {
	if to.Load() != int64(n) {
		to.Store(int64(n))
	}
}
