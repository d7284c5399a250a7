package membership

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// longestVotes take exactly maxVoteBytes.
func longestVotes() []string {
	return []string{strings.Repeat("a", maxVoteName), strings.Repeat("b", maxVoteName), strings.Repeat("c", maxVoteBytes-2*maxVoteName-9)}
}

func numbered(format string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

func TestNormalVotes(t *testing.T) {
	long, longer := strings.Repeat("x", maxVoteName), strings.Repeat("x", maxVoteName+1)
	for name, c := range map[string]struct {
		in, want []string
		cut      int
	}{
		"none":                       {nil, []string{}, 0},
		"sorted, each once":          {[]string{"c2", "c1", "c2"}, []string{"c1", "c2"}, 0},
		"impossible names":           {[]string{"", "c1", longer, long}, []string{"c1", long}, 2},
		"too many":                   {numbered("c%02d", 70), numbered("c%02d", maxVotes), 6},
		"what they share is free":    {numbered("cache-%02d.some-long-name.svc.cluster.local", 64), numbered("cache-%02d.some-long-name.svc.cluster.local", 64), 0},
		"exactly as long as allowed": {longestVotes(), longestVotes(), 0},
		"one byte too long":          {append(longestVotes()[:2], longestVotes()[2]+"c", "d"), longestVotes()[:2], 2},
	} {
		in := slices.Clone(c.in)
		got, cut := normalVotes(c.in)
		if !reflect.DeepEqual(got, c.want) || cut != c.cut {
			t.Errorf("%s: %q, cut %d; want %q, cut %d", name, got, cut, c.want, c.cut)
		}
		if !slices.Equal(in, c.in) {
			t.Errorf("%s: the caller's names were changed", name)
		}
	}
}

func TestBadVotes(t *testing.T) {
	base := appendString(binary.AppendUvarint(append(binary.AppendUvarint(appendString(appendString(nil, "a"), "b"), 5), 0), 1), "d")
	for name, votes := range map[string][]byte{
		"newer than their record":   {6, 0},
		"too many":                  append([]byte{5, maxVotes + 1}, make([]byte, 300)...),
		"cut short":                 {5, 2, 0, 0, 1, 'c'},
		"shares more than there is": {5, 2, 0, 0, 2, 'c', '1', 2, 1, 1, 'x'},
		"out of order":              {5, 2, 0, 0, 1, 'c', 0, 0, 1, 'b'},
		"twice the same":            {5, 2, 0, 0, 1, 'c', 1, 0, 0},
		"no name":                   {5, 1, 0, 0, 0},
		"endless number":            {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"longer than may travel":    appendVotes(nil, record{VotesSeq: 5, Votes: append(longestVotes(), "d")}),
	} {
		rec := append(slices.Clone(base), votes...)
		msg := append(binary.AppendUvarint([]byte{kindRequest, messageVersion}, uint64(len(rec))), rec...)
		if m, err := decodeMessage(msg); !errors.Is(err, errMessage) {
			t.Errorf("%s: %+v, %v", name, m.records, err)
		}
	}
}

// before is what a sidecar of the version before votes makes of a record that it passes on.
func before(r record) record {
	r.Votes, r.VotesSeq = nil, 0
	return r
}

// A sidecar of the version before reads records with votes, and one of this version reads that one's.
func TestVotesAndTheVersionBefore(t *testing.T) {
	r := record{Name: "a", Boot: "b", Seq: 300, Leaving: true, Hint: Hint{Epoch: 7, Digest: "dd"}, Votes: []string{"c1", "c2"}, VotesSeq: 299}
	old := appendString(binary.AppendUvarint(append(binary.AppendUvarint(appendString(appendString(nil, r.Name), r.Boot), r.Seq), flagLeaving), r.Hint.Epoch), r.Hint.Digest)

	now := reader{b: appendRecord(nil, r)}
	fields := now.take(int(now.uvarint()))
	if !slices.Equal(fields[:len(old)], old) || len(now.b) != 0 {
		t.Errorf("the fields that were there before have changed: %q, want %q", fields, old)
	}
	msg := append(binary.AppendUvarint([]byte{kindHints, messageVersion, 1}, uint64(len(old))), old...)
	m, err := decodeMessage(msg)
	if err != nil || !reflect.DeepEqual(m.records, []record{before(r)}) {
		t.Errorf("a record without votes: %+v, %v", m.records, err)
	}
}

// Records whose votes were lost on the way, in any order among those that have them, end in the same belief (invariant I4).
func TestVotesMergeInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	said := []record{
		{Name: "p", Boot: "b2", Seq: 1},
		{Name: "p", Boot: "b2", Seq: 2, Votes: []string{"c1"}, VotesSeq: 2},
		{Name: "p", Boot: "b2", Seq: 3, Votes: []string{"c1"}, VotesSeq: 2, Hint: Hint{Epoch: 4}},
		{Name: "p", Boot: "b2", Seq: 4, Votes: []string{"c1", "c2"}, VotesSeq: 4, Hint: Hint{Epoch: 4}},
		{Name: "p", Boot: "b2", Seq: 5, Votes: []string{}, VotesSeq: 5, Hint: Hint{Epoch: 4}},
		{Name: "p", Boot: "b2", Seq: 6, Votes: []string{}, VotesSeq: 5, Hint: Hint{Epoch: 9}},
	}
	for round := range 300 {
		heard := append(slices.Clone(said[:1+round%len(said)]), say("p", "b1", 50, 9))
		last := heard[len(heard)-2]
		for _, rec := range heard {
			heard = append(heard, before(rec), before(rec))
		}
		r.Shuffle(len(heard), func(i, j int) { heard[i], heard[j] = heard[j], heard[i] })
		seenAt := r.IntN(len(heard) + 1) // before that they wait for memberlist to show their sender
		if round%2 == 0 {
			seenAt = 0
		}
		tab := ownTable()
		var changes int
		for i := range len(heard) + 1 {
			if i == seenAt {
				if tab.seen(sight("p", "b2"), t0).votes {
					changes++
				}
			}
			if i < len(heard) && tab.heard(heard[i], t0).votes {
				changes++
			}
		}
		// While nobody is known, a record of another life may displace what was said before; push/pull says it again.
		if seenAt != 0 {
			changes++
			tab.heard(last, t0)
		}
		if got := tab.members["p"].rec; !reflect.DeepEqual(got, last) || last.VotesSeq > 0 && changes == 0 {
			t.Fatalf("%+v ended as %+v after %d changes", heard, got, changes)
		}
	}
}

func TestVotesInTheTable(t *testing.T) {
	tab := ownTable()
	if !tab.vote([]string{}) || tab.vote([]string{}) || !tab.vote([]string{"c1"}) || tab.own().Seq != 3 || tab.own().VotesSeq != 3 {
		t.Errorf("own record: %+v", tab.own())
	}
	if tab.say(Hint{Epoch: 1}, false); tab.own().Seq != 4 || tab.own().VotesSeq != 3 {
		t.Errorf("after a hint: %+v", tab.own())
	}
	votes := func() []string { return tab.list()[1].Votes }
	tab.seen(sight("p", "b1"), t0)
	if votes() != nil {
		t.Errorf("never said: %q", votes())
	}
	h := tab.heard(record{Name: "p", Boot: "b1", Seq: 2, Votes: []string{"c1"}, VotesSeq: 2}, t0)
	if !h.votes || !h.fresh || h.hint || !slices.Equal(votes(), []string{"c1"}) {
		t.Errorf("votes heard: %+v, %q", h, votes())
	}
	votes()[0] = "the caller's"
	if h := tab.heard(say("p", "b1", 3, 8), t0); h.votes || !h.hint || !slices.Equal(votes(), []string{"c1"}) {
		t.Errorf("a hint that came without the votes: %+v, %q", h, votes())
	}
	if h := tab.seen(sight("p", "b2"), t0); !h.votes || votes() != nil {
		t.Errorf("another process: %+v, %q", h, votes())
	}
	if h := tab.seen(sight("p", "b2"), t0); h.votes {
		t.Errorf("nothing new: %+v", h)
	}
}

func TestSetVotes(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := New(Config{Name: "a", BindAddr: "127.0.0.1"}, Callbacks{}, reg, nil)
	if v := g.Members()[0].Votes; v != nil {
		t.Errorf("before any: %q", v)
	}
	g.SetVotes(numbered("c%03d", maxVotes+3))
	g.SetVotes(numbered("c%03d", maxVotes+3))
	if v := g.Members()[0].Votes; !slices.Equal(v, numbered("c%03d", maxVotes)) {
		t.Errorf("own votes: %q", v)
	}
	if n := testutil.ToFloat64(g.met.votesCut); n != 3 {
		t.Errorf("%v names counted as cut", n)
	}
	want := "# HELP ringside_gossip_votes Cache servers that this sidecar votes against.\n# TYPE ringside_gossip_votes gauge\nringside_gossip_votes 64\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ringside_gossip_votes"); err != nil {
		t.Error(err)
	}
	votes := slices.Clone(g.Members()[0].Votes)
	if n := testing.AllocsPerRun(100, func() { g.SetVotes(votes) }); n > 0 {
		t.Errorf("votes that did not change cost %v allocations", n)
	}
}

func TestVotesReachAll(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 5)
	all := func(voter string, want []string) func() bool {
		return func() bool {
			for _, n := range nodes {
				if m, ok := n.member(voter); !ok || m.Votes == nil || !slices.Equal(m.Votes, want) || n.votesChanged() == 0 {
					return false
				}
			}
			return true
		}
	}
	for round := range 3 {
		votes := numbered("cache-%d", 2-round)
		nodes[round].SetVotes(votes)
		took := eventually(t, time.Minute, "the votes are everywhere", all(nodes[round].name, votes))
		t.Logf("votes reached 5 sidecars in %v", took.Round(time.Millisecond))
	}
	long := longestVotes()
	nodes[3].SetVotes(long)
	eventually(t, time.Minute, "the longest votes are everywhere", all("a4", long))

	// A late one hears all that was said before; a new life of a name has said nothing.
	late := start(t, "late", seeds(nodes[0].Addr()))
	eventually(t, time.Minute, "the late one has the longest votes", func() bool { m, _ := late.member("a4"); return slices.Equal(m.Votes, long) })
	nodes[3].halt()
	again := start(t, "a4", seeds(nodes[0].Addr()))
	eventually(t, time.Minute, "the new process has not voted", func() bool {
		m, _ := late.member("a4")
		return m.State == Alive && m.Meta.Boot == again.cfg.Meta.Boot && m.Votes == nil
	})
}
