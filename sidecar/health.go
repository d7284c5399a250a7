package sidecar

import (
	"slices"
	"time"

	"ringside/cache"
	"ringside/membership"
	"ringside/sidecar/topology"
)

// This file decides whether a cache server may stay in the ring. It is pure: prober.go asks the servers, lifecycle.go acts.
//
// Each sidecar votes for itself, by its own probes; a server goes down when most sidecars vote against it, so one sidecar's bad network
// moves no keys.

const (
	// probeEvery is the time from one probe of a server to the next.
	probeEvery = 200 * time.Millisecond
	// A server that has failed for slowAfter is probed less often.
	slowAfter   = 5 * time.Second
	probeSlowly = time.Second
	// A sidecar votes against a server after so many failures in a row, or after enoughFailures when it has been silent for as long as its
	// patience is.
	voteFailures   = 3
	enoughFailures = 2
	// tardy: a probe that began or ended so much later than it should says more of this machine than of the server.
	tardy = 100 * time.Millisecond
	// wellFor is how long a server that was down must have been well before it returns.
	wellFor = time.Second
	// missedFor is how long a sidecar that died counts as one that does not vote, so that nobody who is cut off is soon a majority.
	missedFor = time.Minute
)

// probe is one question to a cache server and what came of it.
type probe struct {
	due, began, ended time.Time
	health            cache.Health
	err               error
}

// record is what this sidecar's probes of one server have come to.
type record struct {
	patience  time.Duration // how long the server may be silent
	runID     string        // of the process met last
	failures  int           // in a row
	lastWell  time.Time     // when the last probe that went well ended; before the first, when probing began
	wellSince time.Time     // since when all have gone well, with the same process; zero: the last one has not
	fault     string        // why the last one has not
	against   bool          // this sidecar votes against the server
}

// note takes in a probe. rows: there are rows in the cluster.
func (r *record) note(p probe, rows bool) {
	fault := faultOf(p.health, p.err, rows)
	switch {
	case fault == "":
		if r.wellSince.IsZero() || r.runID != p.health.RunID {
			r.wellSince = p.ended
		}
		r.runID, r.failures, r.lastWell, r.fault, r.against = p.health.RunID, 0, p.ended, "", false
	case p.began.Sub(p.due) > tardy || p.ended.Sub(p.began) > r.within()+tardy:
		// No vote may come of this; but neither may the server return by it.
		r.wellSince = time.Time{}
	default:
		r.failures++
		r.wellSince, r.fault = time.Time{}, fault
		r.against = r.against || r.failures >= voteFailures || r.failures >= enoughFailures && p.ended.Sub(r.lastWell) >= r.patience
	}
}

// within bounds one probe, connecting included: two that get no answer are enough.
func (r *record) within() time.Duration { return r.patience / enoughFailures }

// faultOf says what is wrong with a server; empty: nothing. One that answers but refuses to write keeps rows from being written, since
// their entries cannot be put out of reach there. Where there are no rows, only a replica is wrong: what does not fit into memory is
// refused to the application, as by Redis alone, and that is better than losing what is there.
func faultOf(h cache.Health, err error, rows bool) string {
	switch {
	case err != nil:
		return err.Error()
	case h.Refuses == "READONLY":
		return "it is a replica"
	case h.Refuses != "" && rows:
		return "it refuses writes (" + h.Refuses + ")"
	}
	return ""
}

// pause is the time until the next probe should begin, from when the last one did.
func (r *record) pause(now time.Time) time.Duration {
	if r.failures > 0 && now.Sub(r.lastWell) >= slowAfter {
		return probeSlowly
	}
	return probeEvery
}

// diagnosis is how a server is, by this sidecar's probes, at one moment.
type diagnosis struct {
	against bool          // this sidecar votes against it
	well    time.Duration // for how long it has been well; 0: it is not
	runID   string        // met last
	fault   string
}

func (r *record) diagnose(now time.Time) diagnosis {
	s := diagnosis{against: r.against, runID: r.runID, fault: r.fault}
	if !r.wellSince.IsZero() {
		s.well = max(1, now.Sub(r.wellSince))
	}
	return s
}

// ownVotes are the names of the servers that this sidecar votes against, sorted. A draining server that was started anew has nothing to hand
// over any more and is as good as gone. A sidecar that finds all of several servers failing does not vote: it is likely to be the one
// that is cut off, and if not, there is no server that could take over.
func ownVotes(t *topology.Topology, seen map[string]diagnosis) []string {
	votes := []string{}
	well, needed := 0, 0
	for i := range t.Caches {
		c := &t.Caches[i]
		s, ok := seen[c.Name]
		if !ok {
			continue
		}
		if s.well > 0 {
			well++
		}
		if c.State == topology.Active || c.State == topology.Down {
			needed++
		}
		if s.against || c.State == topology.Draining && c.RunID != "" && s.well > 0 && s.runID != c.RunID {
			votes = append(votes, c.Name)
		}
	}
	if well == 0 && needed > 1 {
		return []string{}
	}
	slices.Sort(votes)
	return votes
}

// ballot is what all sidecars together say of the cache servers.
type ballot struct {
	live       []string // sidecars that live, sorted
	electorate int      // those whose votes a majority is taken of
	against    map[string][]string
}

// countVotes counts the votes of those who live. Those who died lately count as not voting, and the electorate is no smaller than least.
func countVotes(members []membership.Member, now time.Time, least int) ballot {
	b := ballot{against: map[string][]string{}}
	for i := range members {
		m := &members[i]
		switch {
		case m.State == membership.Dead && now.Sub(m.Since) < missedFor:
			b.electorate++
		case m.State == membership.Alive:
			b.electorate++
			b.live = append(b.live, m.Name)
			for _, server := range m.Votes {
				b.against[server] = append(b.against[server], m.Name)
			}
		}
	}
	slices.Sort(b.live)
	b.electorate = max(b.electorate, least)
	return b
}

// needed is how many votes put a server down: more than half.
func (b *ballot) needed() int { return b.electorate/2 + 1 }

// agreed reports whether most sidecars vote against a server.
func (b *ballot) agreed(server string) bool { return len(b.against[server]) >= b.needed() }

// rank is this sidecar's place among those who could act for these servers: the live ones that do not vote against any of them. It is -1
// if it is not one of them.
func (b *ballot) rank(self string, servers ...string) int {
	rank := 0
	for _, name := range b.live {
		hindered := slices.ContainsFunc(servers, func(s string) bool { return slices.Contains(b.against[s], name) })
		switch {
		case name == self && hindered:
			return -1
		case name == self:
			return rank
		case !hindered:
			rank++
		}
	}
	return -1
}

// accuser is this sidecar's place among those who vote against a server: one of them takes it out of the ring. It is -1 if it does not. What
// the others vote is always a little old; that this sidecar cannot use the server itself is not.
func (b *ballot) accuser(self, server string) int {
	return slices.Index(slices.Sorted(slices.Values(b.against[server])), self)
}

// accused lists those of the servers against which this sidecar votes, and its place among those who vote against the first of them.
func (b *ballot) accused(self string, servers []string) (names []string, rank int) {
	for _, name := range servers {
		if b.accuser(self, name) >= 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, -1
	}
	return names, b.accuser(self, names[0])
}

// outvoted lists those of the servers for which the votes are no majority of so many sidecars.
func (b *ballot) outvoted(servers []string, sidecars int) []string {
	var names []string
	for _, name := range servers {
		if 2*len(b.against[name]) <= sidecars {
			names = append(names, name)
		}
	}
	return names
}

// namesOf lists the cache servers that something holds for.
func namesOf(t *topology.Topology, holds func(c *topology.Cache) bool) []string {
	var names []string
	for i := range t.Caches {
		if c := &t.Caches[i]; holds(c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// failing lists the servers in use that are agreed to be down.
func failing(t *topology.Topology, b *ballot) []string {
	return namesOf(t, func(c *topology.Cache) bool {
		return (c.State == topology.Active || c.State == topology.Draining && c.RunID != "") && b.agreed(c.Name)
	})
}

// returning lists the servers that are down and may join anew.
func returning(t *topology.Topology, b *ballot, seen map[string]diagnosis) []string {
	return namesOf(t, func(c *topology.Cache) bool {
		return c.State == topology.Down && !b.agreed(c.Name) && seen[c.Name].well >= wellFor
	})
}

// renewed lists the servers in use behind which another process was met than the one that the topology names.
func renewed(t *topology.Topology, b *ballot, seen map[string]diagnosis) []string {
	return namesOf(t, func(c *topology.Cache) bool {
		s := seen[c.Name]
		return c.State == topology.Active && s.well > 0 && s.runID != c.RunID && !b.agreed(c.Name)
	})
}

// joinable lists the joining servers that can be made ready.
func joinable(t *topology.Topology, b *ballot, seen map[string]diagnosis) []string {
	return namesOf(t, func(c *topology.Cache) bool {
		return c.State == topology.Joining && seen[c.Name].well > 0 && !b.agreed(c.Name)
	})
}

// neverMet reports whether no process was ever known behind a server. Then there is nothing there that the cluster has written and must not
// read again: it is not emptied when it is adopted.
func neverMet(c *topology.Cache) bool { return c.RunID == "" && c.Gen == 0 }

// turn decides who acts: the first in rank at once, the others one after the other, apart, in case that those before them cannot. pending
// is for how long there has been something to do.
func turn(rank int, pending, apart time.Duration) bool {
	return rank >= 0 && pending >= time.Duration(rank)*apart
}
