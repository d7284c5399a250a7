package admin

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"ringside/ring"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// view is one moment of the cluster as the page shows it. All of it follows from one topology and from what was asked at the same time.
type view struct {
	Version   string
	Epoch     uint64
	Digest    string
	RingTag   string // ETag of /ring as JSON, so that the page sees when to fetch it anew
	NotReady  string // why; empty: ready
	Change    string // what is being carried out, and how far; empty: nothing
	Vnodes    int
	Caches    []serverRow
	Shards    []serverRow
	Overrides []topology.Override
	Members   []memberRow
	Dissent   int // members whose view of the ring is not this one
	Pools     []Pool
	Keyspaces []*keyspace.Keyspace
	Lookup    *lookupRow // nil: no key was asked for
	Moving    *moving
	Proposal  proposalForm
	Hot       HotKeys
}

// serverRow is one cache server or shard in its table, which is the legend of the ring too.
type serverRow struct {
	Name, Addr string
	Weight     uint32
	State      topology.State
	Vnodes     int
	Share      float64 // of the ring, 0 to 1
	Fair       float64 // what its weight asks for, 0 to 1
	// Bar and Tick are Share and Fair on the scale of the balance bars, of which the largest of the fleet takes fullBar.
	Bar, Tick float64
}

// fullBar leaves room of 100 for the tick that stands at the bar's end.
const fullBar = 94.0

// Off says how far the share is from the fair one, for instance "+1.2%".
func (r serverRow) Off() string {
	switch {
	case r.Fair > 0:
		off := fmt.Sprintf("%+.1f%%", 100*(r.Share/r.Fair-1))
		if off == "-0.0%" || off == "+0.0%" {
			return "0.0%"
		}
		return off
	case r.Share > 0:
		return "to be emptied"
	}
	return ""
}

// memberRow is one sidecar in its table.
type memberRow struct {
	Member
	Agrees bool
	View   string // how its view of the ring relates to this sidecar's
	Link   string // its own page; empty when it cannot be known to be reachable
}

// lookupRow is the answer to the key box.
type lookupRow struct {
	Key, Problem    string // Problem: why the key is refused; the rest is empty then
	Keyspace, Cache string
	CacheVnode      uint16
	Row             bool // the following are about rows only
	ShardKey, Shard string
	ShardVnode      uint16
	Override        bool // the shard was chosen for this shard key, not by its vnode
}

func newView(t *topology.Topology, members []Member, pools []Pool, notReady error) *view {
	v := &view{Epoch: t.Epoch, Digest: t.Digest().String(), Vnodes: ring.Vnodes, Overrides: t.Overrides, Pools: pools}
	if notReady != nil {
		v.NotReady = notReady.Error()
	}
	counts := ring.Counts(t.CacheTable(), len(t.Caches))
	for i, c := range t.Caches {
		v.Caches = append(v.Caches, serverRow{Name: c.Name, Addr: c.Addr, Weight: c.Weight, State: c.State, Vnodes: counts[i]})
	}
	counts = ring.Counts(t.ShardTable(), len(t.Shards))
	for i, s := range t.Shards {
		v.Shards = append(v.Shards, serverRow{Name: s.Name, Weight: s.Weight, State: s.State, Vnodes: counts[i]})
	}
	balance(v.Caches)
	balance(v.Shards)
	v.Members = memberRows(members, t)
	for _, m := range v.Members {
		if !m.Agrees {
			v.Dissent++
		}
	}
	return v
}

// balance works out shares and bars. Only active servers have a claim to a share.
func balance(rows []serverRow) {
	var total uint64
	for _, r := range rows {
		if r.State == topology.Active {
			total += uint64(r.Weight)
		}
	}
	largest := 0.0
	for i := range rows {
		r := &rows[i]
		r.Share = ring.Share(r.Vnodes)
		if r.State == topology.Active && total > 0 {
			r.Fair = float64(r.Weight) / float64(total)
		}
		largest = max(largest, r.Share, r.Fair)
	}
	if largest == 0 {
		return
	}
	for i := range rows {
		rows[i].Bar, rows[i].Tick = fullBar*rows[i].Share/largest, fullBar*rows[i].Fair/largest
	}
}

func memberRows(members []Member, t *topology.Topology) []memberRow {
	self := ""
	for _, m := range members {
		if m.Self {
			self = m.Addr
		}
	}
	rows := make([]memberRow, len(members))
	for i, m := range members {
		rows[i] = memberRow{Member: m, Link: pageOf(m, self)}
		rows[i].Agrees, rows[i].View = compare(m, t)
	}
	slices.SortFunc(rows, func(a, b memberRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// ShortDigest is enough of the digest for people to compare.
func (r memberRow) ShortDigest() string { return r.Digest[:min(len(r.Digest), 8)] }

// compare says how a member's view of the ring relates to the one that is shown.
func compare(m Member, t *topology.Topology) (agrees bool, text string) {
	switch {
	case m.Epoch == t.Epoch && m.Digest == t.Digest().String():
		return true, "the same"
	case m.Epoch == 0:
		return false, "none yet"
	case m.Epoch < t.Epoch:
		return false, fmt.Sprintf("behind by %d", t.Epoch-m.Epoch)
	case m.Epoch > t.Epoch:
		return false, fmt.Sprintf("ahead by %d", m.Epoch-t.Epoch)
	}
	return false, "differs at the same epoch"
}

// pageOf is the address of a member's page, where a browser beside this sidecar can be expected to reach it: a loopback address means
// the member only on its own machine, which is this one if both gossip from the same address.
func pageOf(m Member, self string) string {
	admin, err := netip.ParseAddrPort(m.Admin)
	if err != nil || admin.Addr().IsUnspecified() {
		return ""
	}
	if admin.Addr().IsLoopback() {
		mine, _, err1 := net.SplitHostPort(self)
		its, _, err2 := net.SplitHostPort(m.Addr)
		if err1 != nil || err2 != nil || mine != its {
			return ""
		}
	}
	return "http://" + admin.String() + "/ring"
}

func lookUp(t *topology.Topology, keyspaces *keyspace.Set, key string) *lookupRow {
	l, err := t.Locate(keyspaces, []byte(key))
	if err != nil {
		return &lookupRow{Key: key, Problem: err.Error()}
	}
	row := &lookupRow{Key: l.Key, Keyspace: l.Keyspace, Cache: l.Cache, CacheVnode: l.CacheVnode}
	if l.Shard != nil {
		row.Row, row.ShardKey, row.Shard, row.ShardVnode = true, *l.ShardKey, *l.Shard, *l.ShardVnode
		row.Override = slices.ContainsFunc(t.Overrides, func(o topology.Override) bool { return o.ShardKey == row.ShardKey })
	}
	return row
}

// grouped writes 65536 as 65,536. Any integer that is not negative will do.
func grouped(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// readable writes a text that anybody could have chosen: as it is, or quoted where people could not read it.
func readable(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// rate writes how often something happens, each second.
func rate(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return grouped(int64(perSecond+0.5)) + "/s"
}

// remaining writes a time that something takes yet, in seconds; below 0: not known.
func remaining(seconds float64) string {
	switch {
	case seconds < 0:
		return ""
	case seconds < 100:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }
