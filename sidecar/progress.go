package sidecar

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ringside/sidecar/admin"
	"ringside/sidecar/handover"
	"ringside/sidecar/topology"
)

// progress is what /changes shows.
func (s *Sidecar) progress() admin.Progress {
	t := s.topology.Current()
	if t == nil {
		return admin.Progress{}
	}
	p := admin.Progress{Epoch: t.Epoch, Changing: t.Changing(), Handovers: handovers(s.handover.Progress())}
	for i, st := range s.lifecycle.standings(t) {
		shown := admin.ShardProgress{Name: t.Shards[i].Name, Epoch: st.view.Epoch, Done: st.settled(t)}
		if st.downFor > 0 {
			shown.Down = max(1, int64(st.downFor.Seconds()))
		}
		if st.view.Epoch > 0 {
			shown.Phase = st.view.Phase.String()
		}
		p.Shards = append(p.Shards, shown)
	}
	seen, b := s.prober.seen(), s.lifecycle.ballot(time.Now())
	for i := range t.Caches {
		c := &t.Caches[i]
		d := seen[c.Name]
		p.Servers = append(p.Servers, admin.ServerProgress{
			Name: c.Name, State: c.State, Well: d.well > 0, Fault: d.fault, Votes: slices.Clone(b.against[c.Name]), Needed: b.needed(),
		})
	}
	p.Lost = s.lost.list()
	p.Summary = summary(p, t.FormerEpoch())
	return p
}

// counts is what /history follows.
func (s *Sidecar) counts() admin.Counts {
	c := s.proxy.Counts()
	return admin.Counts{Requests: c.Requests, Errors: c.Errors, Hits: c.RowHits, Misses: c.RowMisses}
}

func handovers(all []handover.Progress) []admin.HandoverProgress {
	out := make([]admin.HandoverProgress, len(all))
	for i, h := range all {
		out[i] = admin.HandoverProgress{
			From: h.From, Since: h.Since, Step: h.Step.String(), Done: h.Done,
			Seen: h.Scanned, Carried: h.Carried, Swept: h.Swept, Dropped: h.TooBig,
		}
		if h.Err != nil {
			out[i].Fault = h.Err.Error()
		}
	}
	return out
}

// summary says in one line what is under way, and what is wrong. former is the epoch before the change that is being carried out.
func summary(p admin.Progress, former uint64) string {
	var parts []string
	for _, s := range p.Servers {
		switch {
		case len(s.Votes) > 0:
			parts = append(parts, fmt.Sprintf("%s fails (votes: %d, needed: %d)", s.Name, len(s.Votes), s.Needed))
		case s.State == topology.Joining && s.Well && p.Changing:
			parts = append(parts, s.Name+" joins when the change before is done")
		case s.State == topology.Joining && s.Well:
			parts = append(parts, s.Name+" is being made ready")
		case s.State == topology.Joining && s.Fault == "":
			parts = append(parts, s.Name+" joins")
		case s.State == topology.Joining:
			parts = append(parts, fmt.Sprintf("%s waits to be reached (%s)", s.Name, s.Fault))
		}
	}
	for _, h := range p.Handovers {
		switch {
		case h.Fault != "":
			parts = append(parts, fmt.Sprintf("keys from %s: stuck (%s)", h.From, h.Fault))
		case h.Step == topology.Handed.String():
			parts = append(parts, fmt.Sprintf("keys from %s: %d carried", h.From, h.Carried))
		default:
			parts = append(parts, fmt.Sprintf("keys from %s: %s", h.From, h.Step))
		}
	}
	for _, lost := range p.Lost {
		if p.Changing && lost.Epoch > former {
			parts = append(parts, lost.From+" went down before all its plain keys were carried over: those are lost")
		}
	}
	if p.Changing && len(p.Shards) > 0 {
		parts = append(parts, rowsSummary(p.Shards))
	}
	if p.Changing && len(parts) == 0 {
		parts = append(parts, "the last change is being finished")
	}
	return strings.Join(parts, "; ")
}

// rowsSummary says how far the shards are, and for which ones the change waits although they are down.
func rowsSummary(shards []admin.ShardProgress) string {
	done := 0
	var down []string
	for _, s := range shards {
		switch {
		case s.Done:
			done++
		case s.Down > 0 && time.Duration(s.Down)*time.Second < shardPatience:
			down = append(down, s.Name)
		}
	}
	text := fmt.Sprintf("rows: %d of %d shards done", done, len(shards))
	switch n := len(down); {
	case n == 1:
		text += fmt.Sprintf(", waiting for %s, which is down; at most %v", down[0], shardPatience)
	case n > 1:
		text += fmt.Sprintf(", waiting for %d that are down, such as %s; at most %v", n, down[0], shardPatience)
	}
	return text
}
