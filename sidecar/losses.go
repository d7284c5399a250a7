package sidecar

import (
	"log/slog"
	"slices"
	"sync"

	"ringside/sidecar/admin"
	"ringside/sidecar/handover"
	"ringside/sidecar/topology"
)

// losses remembers the hand-overs that were given up because their server was gone before all had been carried. Nothing in the topology says so later,
// and whoever asked for the change is to be told. The zero value is empty; it is safe for concurrent use.
type losses struct {
	mu   sync.Mutex // guards the following
	kept []admin.Loss
}

// keptLosses is how many are kept, the newest ones.
const keptLosses = 16

// note compares the topology that was acted by, nil if there was none, with the one that takes its place. driven is how far the hand-overs of was are.
func (l *losses) note(was, is *topology.Topology, driven []handover.Progress, log *slog.Logger) {
	if was == nil {
		return
	}
	carried := carriedOf(was, driven)
	for _, h := range topology.LostHandovers(was, is) {
		if slices.Contains(carried, h) {
			continue
		}
		log.Warn("a cache server went down before all its plain keys were carried over: those are lost", "server", h.From, "since", h.Since, "epoch", is.Epoch)
		l.mu.Lock()
		l.kept = append(l.kept, admin.Loss{From: h.From, Since: h.Since, Epoch: is.Epoch})
		l.kept = slices.Clone(l.kept[max(0, len(l.kept)-keptLosses):])
		l.mu.Unlock()
	}
}

// list returns them, the oldest first.
func (l *losses) list() []admin.Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept)
}
