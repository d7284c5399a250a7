package sidecar

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"ringside/cache"
	"ringside/membership"
	"ringside/sidecar/topology"
)

var t0 = time.Unix(1_000_000, 0)

// A history of probes is written as one letter for each: w it goes well, n it goes well with another process, f it fails at once, h it fails
// after all its time, l the same, but this machine was late, o it refuses writes for want of memory.
func probed(r *record, history string, rows bool) (now time.Time) {
	now = t0
	r.patience, r.lastWell = 800*time.Millisecond, now
	for _, what := range history {
		p := probe{due: now, began: now, ended: now.Add(time.Millisecond), health: cache.Health{RunID: "r1"}}
		switch what {
		case 'n':
			p.health.RunID = "r2"
		case 'f':
			p.health, p.err = cache.Health{}, errors.New("refused")
		case 'h':
			p.health, p.err, p.ended = cache.Health{}, errors.New("timeout"), now.Add(r.within())
		case 'l':
			p.health, p.err, p.ended = cache.Health{}, errors.New("timeout"), now.Add(r.within()+tardy+1)
		case 'o':
			p.health.Refuses = "OOM"
		}
		r.note(p, rows)
		now = p.began.Add(max(r.pause(p.ended), p.ended.Sub(p.began)))
	}
	return now
}

func TestVotesFollowFromProbes(t *testing.T) {
	for _, test := range []struct {
		history string
		rows    bool
		against bool
		well    bool
	}{
		{"", true, false, false},
		{"w", true, false, true},
		{"f", true, false, false},
		{"ff", true, false, false},
		{"fff", true, true, false},
		{"wff", true, false, false},
		{"wfff", true, true, false},
		{"wffwff", true, false, false},
		{"wfffw", true, false, true},
		{"wh", true, false, false},
		{"wlllllf", true, false, false}, // one failure is not enough, however long it has not been asked
		{"whh", true, true, false},      // silent for too long
		{"wlll", true, false, false},    // this machine is slow: nothing is said of the server
		{"wffl", true, false, false},
		{"wfffl", true, true, false},
		{"wooo", true, true, false},
		{"wooo", false, false, true},
		{"wn", true, false, true},
	} {
		r := &record{}
		now := probed(r, test.history, test.rows)
		d := r.diagnose(now)
		if d.against != test.against || d.well > 0 != test.well {
			t.Errorf("%q: %+v", test.history, d)
		}
	}
	r := &record{}
	if now := probed(r, "wwww", true); r.diagnose(now).well != 4*probeEvery-time.Millisecond {
		t.Errorf("well for %v", r.diagnose(now).well)
	}
	if now := probed(r, "wwwn", true); r.diagnose(now).well > probeEvery || r.runID != "r2" {
		t.Errorf("another process is well for as long as the one before: %+v", r.diagnose(now))
	}
	probed(r, "w"+string(slices.Repeat([]byte("h"), 20)), true)
	if r.pause(t0.Add(time.Hour)) != probeSlowly || r.fault != "timeout" {
		t.Errorf("after a long time: %+v", r)
	}
}

func TestFaultOf(t *testing.T) {
	for _, test := range []struct {
		h    cache.Health
		err  error
		rows bool
		want string
	}{
		{cache.Health{}, nil, true, ""},
		{cache.Health{}, errors.New("gone"), false, "gone"},
		{cache.Health{Refuses: "READONLY"}, nil, false, "it is a replica"},
		{cache.Health{Refuses: "MISCONF"}, nil, true, "it refuses writes (MISCONF)"},
		{cache.Health{Refuses: "MISCONF"}, nil, false, ""},
	} {
		if got := faultOf(test.h, test.err, test.rows); got != test.want {
			t.Errorf("%+v, %v: %q, want %q", test.h, test.err, got, test.want)
		}
	}
}

// serversIn makes a topology of such servers.
func serversIn(t *testing.T, states ...topology.Cache) *topology.Topology {
	t.Helper()
	top, err := topology.Bootstrap(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := top.Content()
	for i, s := range states {
		s.Addr, s.Weight = fmt.Sprintf("h%d:1", i), 1
		c.Caches = append(c.Caches, s)
	}
	if top, err = topology.New(c); err != nil {
		t.Fatal(err)
	}
	return top
}

var fleet = []topology.Cache{
	{Name: "act", State: topology.Active, RunID: "r1", Gen: 1},
	{Name: "down", State: topology.Down, Gen: 1},
	{Name: "drain", State: topology.Draining, RunID: "r1", Gen: 1},
	{Name: "drained", State: topology.Draining, Gen: 1},
	{Name: "join", State: topology.Joining},
	{Name: "new", State: topology.Active},
}

func TestOwnVotes(t *testing.T) {
	top := serversIn(t, fleet...)
	bad, good := diagnosis{against: true}, diagnosis{well: time.Hour, runID: "r1"}
	for _, test := range []struct {
		name string
		seen map[string]diagnosis
		want []string
	}{
		{"nothing was probed yet", nil, nil},
		{"all are well", map[string]diagnosis{"act": good, "down": good, "drain": good}, nil},
		{"one fails", map[string]diagnosis{"act": bad, "down": good, "new": good}, []string{"act"}},
		{"in order", map[string]diagnosis{"new": bad, "act": bad, "drain": good}, []string{"act", "new"}},
		{"a draining one was started anew", map[string]diagnosis{"act": good, "drain": {well: 1, runID: "r2"}}, []string{"drain"}},
		{"it was down before it was drained", map[string]diagnosis{"act": good, "drained": {well: 1, runID: "r2"}}, nil},
		{"an active one was started anew", map[string]diagnosis{"act": {well: 1, runID: "r2"}}, nil},
		{"none can be reached", map[string]diagnosis{"act": bad, "down": bad, "drain": bad, "new": bad}, nil},
		{"a failing one and nothing known of others", map[string]diagnosis{"act": bad, "new": {}}, nil},
	} {
		if got := ownVotes(top, test.seen); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	alone := serversIn(t, topology.Cache{Name: "act", State: topology.Active, RunID: "r1"})
	if got := ownVotes(alone, map[string]diagnosis{"act": bad}); !slices.Equal(got, []string{"act"}) {
		t.Errorf("the only server: %q", got)
	}
}

// member is one that has been in its state for so many seconds.
func member(name string, state membership.State, age int, votes ...string) membership.Member {
	return membership.Member{Name: name, State: state, Since: t0.Add(-time.Duration(age) * time.Second), Votes: votes}
}

// TestMajority: who is cut off must not soon be a majority of one.
func TestMajority(t *testing.T) {
	const alive, dead, left = membership.Alive, membership.Dead, membership.Left
	for _, test := range []struct {
		name    string
		members []membership.Member
		least   int
		needed  int
		agreed  bool // that c1 is down
	}{
		{"alone", []membership.Member{member("a", alive, 9, "c1")}, 1, 1, true},
		{"alone, and others are looked for", []membership.Member{member("a", alive, 9, "c1")}, 2, 2, false},
		{"one of two", []membership.Member{member("a", alive, 9, "c1"), member("b", alive, 9)}, 1, 2, false},
		{"both", []membership.Member{member("a", alive, 9, "c1"), member("b", alive, 9, "c1", "c2")}, 1, 2, true},
		{"two of three", []membership.Member{member("a", alive, 9, "c1"), member("b", alive, 9, "c1"), member("c", alive, 9)}, 1, 2, true},
		{"two of four", []membership.Member{member("a", alive, 9, "c1"), member("b", alive, 9, "c1"), member("c", alive, 9), member("d", alive, 9)}, 1, 3, false},
		{"against another server", []membership.Member{member("a", alive, 9, "c2")}, 1, 1, false},
		{"cut off from two just now", []membership.Member{member("a", alive, 9, "c1"), member("b", dead, 59), member("c", dead, 0)}, 1, 2, false},
		{"cut off from two long ago", []membership.Member{member("a", alive, 9, "c1"), member("b", dead, 60), member("c", dead, 90)}, 1, 1, true},
		{"the others have left", []membership.Member{member("a", alive, 9, "c1"), member("b", left, 1), member("c", left, 1)}, 1, 1, true},
		{"the dead do not vote", []membership.Member{member("a", alive, 9), member("b", dead, 1, "c1"), member("c", dead, 1, "c1")}, 1, 2, false},
		{"one of three has died", []membership.Member{member("a", alive, 9, "c1"), member("b", alive, 9, "c1"), member("c", dead, 1)}, 1, 2, true},
		{"nobody", nil, 1, 1, false},
	} {
		b := countVotes(test.members, t0, test.least)
		if b.needed() != test.needed || b.agreed("c1") != test.agreed {
			t.Errorf("%s: needed %d, agreed %v; want %d, %v", test.name, b.needed(), b.agreed("c1"), test.needed, test.agreed)
		}
	}
}

func TestRank(t *testing.T) {
	b := countVotes([]membership.Member{
		member("c", membership.Alive, 9), member("a", membership.Alive, 9, "c1"), member("b", membership.Alive, 9), member("0", membership.Dead, 9),
	}, t0, 1)
	for _, test := range []struct {
		self    string
		servers []string
		want    int
	}{
		{"a", nil, 0}, {"b", nil, 1}, {"c", nil, 2}, {"0", nil, -1},
		{"a", []string{"c1"}, -1}, {"b", []string{"c1"}, 0}, {"c", []string{"c2", "c1"}, 1}, {"a", []string{"c2"}, 0},
	} {
		if got := b.rank(test.self, test.servers...); got != test.want {
			t.Errorf("%s for %q: %d, want %d", test.self, test.servers, got, test.want)
		}
	}
	for _, test := range []struct {
		rank    int
		pending time.Duration
		want    bool
	}{{0, 0, true}, {1, 0, false}, {1, time.Second - 1, false}, {1, time.Second, true}, {2, time.Second, false}, {2, 2 * time.Second, true}, {-1, time.Hour, false}} {
		if got := turn(test.rank, test.pending, time.Second); got != test.want {
			t.Errorf("rank %d after %v: %v", test.rank, test.pending, got)
		}
	}
}

func TestWhatIsToBeDoneWithServers(t *testing.T) {
	top := serversIn(t, fleet...)
	against := func(names ...string) *ballot {
		b := countVotes([]membership.Member{member("a", membership.Alive, 9, names...)}, t0, 1)
		return &b
	}
	well := func(runID string, d time.Duration) diagnosis { return diagnosis{well: d, runID: runID} }
	all := map[string]diagnosis{
		"act": well("r1", wellFor), "down": well("r2", wellFor), "drain": well("r1", wellFor), "drained": well("r1", wellFor),
		"join": well("r1", 1), "new": well("r9", 1),
	}
	restarted := map[string]diagnosis{"act": well("r2", 1), "down": well("r2", wellFor-1), "drain": well("r2", wellFor), "new": {}, "join": {}}
	for _, test := range []struct {
		name                              string
		b                                 *ballot
		seen                              map[string]diagnosis
		failing, returning, renewed, join []string
	}{
		{"all are well", against(), all, nil, []string{"down"}, []string{"new"}, []string{"join"}},
		{"all fail", against("act", "down", "drain", "drained", "join", "new"), nil, []string{"act", "drain", "new"}, nil, nil, nil},
		{"others find them failing", against("down", "join", "new"), all, []string{"new"}, nil, nil, nil},
		{"restarted", against(), restarted, nil, nil, []string{"act"}, nil},
		{"nothing is known", against(), nil, nil, nil, nil, nil},
	} {
		for _, one := range []struct {
			what      string
			got, want []string
		}{
			{"failing", failing(top, test.b), test.failing}, {"returning", returning(top, test.b, test.seen), test.returning},
			{"renewed", renewed(top, test.b, test.seen), test.renewed}, {"joinable", joinable(top, test.b, test.seen), test.join},
		} {
			if !slices.Equal(one.got, one.want) {
				t.Errorf("%s: %s are %q, want %q", test.name, one.what, one.got, one.want)
			}
		}
	}
	for name, want := range map[string]bool{"new": true, "act": false, "down": false} {
		if got := neverMet(&top.Caches[top.CacheIndex(name)]); got != want {
			t.Errorf("%s was never met: %v", name, got)
		}
	}
}
