package membership

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// pace says how eagerly topologies travel.
type pace struct {
	requestAfter time.Duration // a peer's higher hint stands this long before it is asked
	askAgain     time.Duration // then another one is asked; doubles while the answers do not help
	askAtMost    time.Duration // but not beyond this
	pushAfter    time.Duration // a peer's lower hint stands this long before it is sent ours unasked: most ask by themselves
	pushAgain    time.Duration // the same topology goes unasked to the same peer at most this often
	pushFan      int           // peers sent to in one round
	answerAgain  time.Duration // the same topology goes to the same peer that asks at most this often
}

func defaultPace(requestAfter time.Duration) pace {
	return pace{
		requestAfter: requestAfter,
		askAgain:     2 * time.Second,
		askAtMost:    30 * time.Second,
		pushAfter:    500 * time.Millisecond,
		pushAgain:    5 * time.Second,
		pushFan:      3,
		answerAgain:  time.Second,
	}
}

// asking is the one question for a topology that may be open.
type asking struct {
	hint  Hint // the highest hint when it was asked
	peer  string
	at    time.Time
	count int // how often that hint was asked for
}

// wait is how long the question stays open.
func (a asking) wait(p pace) time.Duration {
	d := p.askAgain
	for i := 1; i < a.count && d < p.askAtMost; i++ {
		d *= 2
	}
	return min(d, p.askAtMost)
}

// planTopology decides who is sent our topology unasked, and whom we ask for theirs. peers are those alive, their relation to own up to
// date. Nobody is asked while a question is open; a cluster of a thousand must not ask the first one that knows a thousand
// times, so whoever asks picks at random among all that have the highest hint, and another one the next time.
func planTopology(now time.Time, own Hint, peers []*member, open asking, p pace, rnd *rand.Rand) (push []string, ask string, next asking) {
	var best Hint
	var holders []string
	for _, m := range peers {
		switch m.rel {
		case lower, differs:
			known := m.sent == own && now.Sub(m.sentAt) < p.pushAgain
			if own != (Hint{}) && !known && now.Sub(m.relSince) >= p.pushAfter {
				push = append(push, m.name)
			}
		case higher:
			if now.Sub(m.relSince) < p.requestAfter {
				continue
			}
			switch c := m.rec.Hint.Compare(best); {
			case c > 0:
				best, holders = m.rec.Hint, []string{m.name}
			case c == 0:
				holders = append(holders, m.name)
			}
		}
	}
	rnd.Shuffle(len(push), func(i, j int) { push[i], push[j] = push[j], push[i] })
	push = push[:min(len(push), p.pushFan)]

	switch {
	case len(holders) == 0:
		return push, "", asking{}
	case open.hint == best && now.Sub(open.at) < open.wait(p) && slices.Contains(holders, open.peer):
		return push, "", open
	}
	if len(holders) > 1 {
		holders = slices.DeleteFunc(holders, func(name string) bool { return name == open.peer })
	}
	next = asking{hint: best, peer: holders[rnd.IntN(len(holders))], at: now, count: 1}
	if open.hint == best {
		next.count = open.count + 1
	}
	return push, next.peer, next
}

// mayAnswer says whether a peer that asks is sent our topology now. A peer that asks again at once has not got what it was just sent yet.
func mayAnswer(now time.Time, own Hint, m *member, p pace) bool {
	return own != (Hint{}) && !(m.sent == own && now.Sub(m.sentAt) < p.answerAgain)
}

// joining is what decides when to join again.
type joining struct {
	last     time.Time // last attempt; zero: none yet
	failures int       // attempts in a row that reached nobody
	alone    bool      // no other sidecar is alive
	reached  bool      // an attempt has reached somebody, and
	follows  int       // since then so many follow-ups were made
	disputed bool      // a peer still holds our name for another address, of a process that is gone
	jitter   float64   // -0.2..0.2, drawn anew for each attempt, so that sidecars started together do not stay in step
}

// When many sidecars start at once, memberlist's queue loses part of the news of each other, and its own repair takes a minute in a large
// cluster. A sidecar therefore talks to a few that it knows soon after it has joined, and again a little later.
const (
	followUps     = 2
	followFirst   = time.Second // the next one after four times as long
	followTargets = 2
)

// following says whether the next attempt is such a follow-up.
func (j joining) following() bool { return j.reached && j.follows < followUps }

// due says whether to join now: at the start; fast and then slower while alone; fast while the name is still another's, since
// nothing else tells us when it is given up; soon after the first success; else at the interval.
func (j joining) due(now time.Time, interval time.Duration) bool {
	if j.last.IsZero() {
		return true
	}
	wait := time.Duration(float64(interval) * (1 + j.jitter))
	switch {
	case j.disputed:
		wait = min(wait, 2*time.Second)
	case j.alone:
		wait = min(wait, 500*time.Millisecond<<min(j.failures, 10))
	case j.following():
		wait = min(wait, time.Duration(float64(followFirst<<(2*j.follows))*(1+j.jitter)))
	}
	return now.Sub(j.last) >= wait
}

// maxSeeds is how many addresses one attempt dials. memberlist alone would dial every address of a name, one after another.
const maxSeeds = 5

// pickSeeds chooses at random whom an attempt dials, at most limit. Members that are alive are skipped (nothing is to be healed there)
// unless all is set.
func pickSeeds(candidates []netip.AddrPort, self netip.AddrPort, alive map[netip.AddrPort]bool, all bool, limit int, rnd *rand.Rand) []netip.AddrPort {
	var out []netip.AddrPort
	for _, c := range candidates {
		if c != self && (all || !alive[c]) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	out = slices.Compact(out)
	rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(len(out), limit)]
}

// verdict is what a sidecar does about another process with its name.
type verdict uint8

const (
	watch verdict = iota // not sure yet: ask again
	stay                 // it is the other's place to go
	yield                // leave the cluster
)

// claim is what is known of the other process.
type claim struct {
	uptime   time.Duration // ours, when the claim was first seen
	answered time.Duration // for how long, without a gap, the other has been answering by our name
	ours     Meta
	theirs   Meta
}

const (
	// settled is the uptime from which a sidecar is established and does not give way to a newcomer, whatever clocks say.
	settled = time.Minute
	// patience is how long a newcomer waits for one that is newer still to go, before it concludes that clocks misled it.
	patience = 10 * time.Second
)

// judge decides a claim (invariant I5). confirm is how long the other must answer before it counts as alive: longer than a process
// takes to say goodbye, since a leaving process answers to the end.
func (c claim) judge(confirm time.Duration) verdict {
	switch {
	case c.answered < confirm:
		return watch
	case c.uptime >= settled:
		return stay
	case c.theirs.older(c.ours):
		return yield
	case c.answered < confirm+patience:
		return watch
	}
	return yield
}

// older reports whether m's process started before o's, by what they say; the boot id decides when they started together.
// A process that does not say counts as older.
func (m Meta) older(o Meta) bool {
	if !m.Started.Equal(o.Started) {
		return m.Started.Before(o.Started)
	}
	return m.Boot < o.Boot
}
