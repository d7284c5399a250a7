package membership

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

const (
	// Members that left or died are shown, and tried again by the re-join, in this number at most, and for goneFor.
	maxGone = 256
	goneFor = 5 * time.Minute
	// Records that came before memberlist knew their sender wait in this number at most.
	maxEarly = 1024
)

// member is what is known of one sidecar. Only table's methods change it.
type member struct {
	name  string
	ip    net.IP
	port  uint16
	pmax  uint8 // highest memberlist protocol it speaks: packets to it are checksummed from 5 on
	meta  Meta
	state State
	since time.Time

	rec   record // from the process that meta.Boot names; Seq 0 until heard
	other record // from another process of that name: either its former life or, before memberlist knows, its next one

	// How its topology stands to ours, since when, and what it was last sent.
	rel      relation
	relSince time.Time
	sent     Hint
	sentAt   time.Time
}

func (m *member) addr() string {
	if m.ip == nil {
		return ""
	}
	return net.JoinHostPort(m.ip.String(), strconv.Itoa(int(m.port)))
}

// sighting is a member as memberlist shows it, copied.
type sighting struct {
	name string
	ip   net.IP
	port uint16
	pmax uint8
	meta Meta
}

// table is everything known of all sidecars. It is pure: time comes in, nothing goes out; its owner guards it.
type table struct {
	self    string
	members map[string]*member // self is always there
	early   map[string]record  // by name, of senders that memberlist has not shown yet
}

func newTable(own record, meta Meta, now time.Time) *table {
	t := &table{self: own.Name, members: map[string]*member{}, early: map[string]record{}}
	t.members[own.Name] = &member{name: own.Name, meta: meta, rec: own, state: Alive, since: now}
	return t
}

func (t *table) own() record { return t.members[t.self].rec }

// seen takes in that memberlist has a member alive, or alive with other metadata. The result is fresh when a record was waiting for this.
func (t *table) seen(s sighting, now time.Time) hearing {
	m := t.members[s.name]
	if m == nil {
		m = &member{name: s.name, state: Dead}
		t.members[s.name] = m
		if r, ok := t.early[s.name]; ok {
			m.other = r
			delete(t.early, s.name)
		}
	}
	before, fresh := *m, false
	m.ip, m.port, m.pmax, m.meta = s.ip, s.port, s.pmax, s.meta
	if s.name != t.self && m.rec.Boot != m.meta.Boot {
		// Another process has the name now: what the former one said is void, what this one said early counts.
		m.rec = record{}
		if m.other.Seq != 0 && m.other.Boot == m.meta.Boot {
			m.rec, m.other, fresh = m.other, record{}, true
		}
		m.rel, m.sent, m.sentAt = unheard, Hint{}, time.Time{}
	}
	switch {
	case m.rec.Leaving && m.state != Alive:
		// An alive message that was overtaken by the goodbye.
		m.state = Left
	case m.state != Alive:
		m.state, m.since = Alive, now
	}
	return hearing{
		fresh: fresh, hint: fresh, votes: m.rec.VotesSeq != before.rec.VotesSeq || m.rec.Boot != before.rec.Boot && m.rec.VotesSeq != 0,
		changed: m.state != before.state || m.meta != before.meta || m.port != before.port || !m.ip.Equal(before.ip),
	}
}

// gone takes in that memberlist has given a member up. memberlist does not say whether it left or died; its last record does, now or later.
func (t *table) gone(name string, now time.Time) (changed bool) {
	m := t.members[name]
	if m == nil || m.state != Alive {
		return false
	}
	m.state, m.since = Dead, now
	if m.rec.Leaving {
		m.state = Left
	}
	return true
}

// hearing is what came of a record.
type hearing struct {
	fresh   bool // it is news: pass it on
	hint    bool // its sender's hint changed
	votes   bool // its sender's votes changed
	changed bool // what else is known of its sender changed
	dropped string
}

// heard merges a record (invariant I4).
func (t *table) heard(r record, now time.Time) hearing {
	if r.Name == t.self {
		return hearing{dropped: "own"} // our former life, or somebody with our name
	}
	m := t.members[r.Name]
	switch {
	case m == nil:
		old, waits := t.early[r.Name]
		if !waits && len(t.early) >= maxEarly {
			return hearing{dropped: "unknown_sender"}
		}
		t.early[r.Name] = aside(old, r)
		return hearing{}
	case r.Boot != m.meta.Boot:
		m.other = aside(m.other, r)
		return hearing{}
	}
	merged, news := m.rec.merge(r)
	if !news {
		return hearing{}
	}
	h := hearing{fresh: true, hint: merged.Hint != m.rec.Hint, votes: merged.VotesSeq != m.rec.VotesSeq}
	m.rec = merged
	if m.rec.Leaving && m.state != Left {
		m.state, m.since, h.changed = Left, now, true
	}
	return h
}

// aside is what is kept of a process that is not the one alive, which may be the next one: the last that spoke.
func aside(kept, r record) record {
	if kept.Boot != r.Boot {
		return r
	}
	kept, _ = kept.merge(r)
	return kept
}

// say changes our own record; it reports whether that is news.
func (t *table) say(h Hint, leaving bool) bool {
	m := t.members[t.self]
	if m.rec.Hint == h && m.rec.Leaving == leaving {
		return false
	}
	m.rec.Hint, m.rec.Leaving = h, leaving
	m.rec.Seq++
	return true
}

// vote changes our own votes, which are normal ones; it reports whether that is news. The first ones are, even when they name nobody.
func (t *table) vote(votes []string) bool {
	m := t.members[t.self]
	if m.rec.VotesSeq != 0 && slices.Equal(m.rec.Votes, votes) {
		return false
	}
	m.rec.Seq++
	m.rec.Votes, m.rec.VotesSeq = votes, m.rec.Seq
	return true
}

// compare brings every member's relation to our own topology up to date.
func (t *table) compare(now time.Time) {
	own := t.own().Hint
	for _, m := range t.members {
		if rel := relate(own, m.rec); rel != m.rel {
			m.rel, m.relSince = rel, now
		}
	}
}

// sweep forgets members that have been gone for longer than keep, the oldest first when there are many, and records whose sender never came.
// It returns the names forgotten.
func (t *table) sweep(now time.Time, keep time.Duration) []string {
	clear(t.early)
	var gone []*member
	for _, m := range t.members {
		if m.state != Alive && m.name != t.self {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, func(a, b *member) int {
		return cmp.Or(b.since.Compare(a.since), cmp.Compare(a.name, b.name))
	})
	var forgotten []string
	for i, m := range gone {
		if i >= maxGone || now.Sub(m.since) > keep {
			delete(t.members, m.name)
			forgotten = append(forgotten, m.name)
		}
	}
	return forgotten
}

// peers returns the others that are alive, sorted by name.
func (t *table) peers() []*member {
	var out []*member
	for _, name := range slices.Sorted(maps.Keys(t.members)) {
		if m := t.members[name]; m.state == Alive && name != t.self {
			out = append(out, m)
		}
	}
	return out
}

// list returns all members by value, sorted by name.
func (t *table) list() []Member {
	out := make([]Member, 0, len(t.members))
	for _, m := range t.members {
		out = append(out, Member{
			Name: m.name, Addr: m.addr(), Meta: m.meta, Hint: m.rec.Hint, Votes: slices.Clone(m.rec.Votes),
			State: m.state, Since: m.since, Self: m.name == t.self,
		})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// records returns our own record and then the others', those of members that are alive and those who have just said goodbye.
func (t *table) records() []record {
	out := []record{t.own()}
	for name, m := range t.members {
		if name != t.self && m.rec.Seq != 0 && m.state != Dead {
			out = append(out, m.rec)
		}
	}
	return out
}

func (t *table) count(s State) int {
	n := 0
	for _, m := range t.members {
		if m.state == s {
			n++
		}
	}
	return n
}

// latest returns a sidecar's record that may be passed on.
func (t *table) latest(name string) (record, bool) {
	m := t.members[name]
	if m == nil || m.rec.Seq == 0 {
		return record{}, false
	}
	return m.rec, true
}

// addresses returns where the others that are alive gossip, and where those that died did.
func (t *table) addresses() (alive map[netip.AddrPort]bool, dead []netip.AddrPort) {
	alive = map[netip.AddrPort]bool{}
	for name, m := range t.members {
		ip, ok := netip.AddrFromSlice(m.ip)
		if !ok || name == t.self {
			continue
		}
		switch at := netip.AddrPortFrom(ip.Unmap(), m.port); m.state {
		case Alive:
			alive[at] = true
		case Dead:
			dead = append(dead, at)
		}
	}
	return alive, dead
}
