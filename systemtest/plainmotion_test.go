package systemtest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/localcluster"
)

// sample is a plain key of one type, how it is made, and how it is read.
type sample struct {
	name string
	make [][]string // KEY stands for the key
	read []string
	want string
}

var samples = []sample{
	{"string", [][]string{{"SET", "KEY", "some\r\ntext"}}, []string{"GET", "KEY"}, "some\r\ntext"},
	{"list", [][]string{{"RPUSH", "KEY", "a", "b", "c"}}, []string{"LRANGE", "KEY", "0", "-1"}, "[a b c]"},
	{"set", [][]string{{"SADD", "KEY", "one"}}, []string{"SMEMBERS", "KEY"}, "[one]"},
	{"zset", [][]string{{"ZADD", "KEY", "1.5", "x", "2", "y"}}, []string{"ZRANGE", "KEY", "0", "-1", "WITHSCORES"}, "[x 1.5 y 2]"},
	{"hash", [][]string{{"HSET", "KEY", "f", "v"}}, []string{"HGETALL", "KEY"}, "[f v]"},
	{"stream", [][]string{{"XADD", "KEY", "1-1", "f", "v"}, {"XGROUP", "CREATE", "KEY", "g", "0"}}, []string{"XRANGE", "KEY", "-", "+"}, "[[1-1 [f v]]]"},
	{"hyperloglog", [][]string{{"PFADD", "KEY", "a", "b"}}, []string{"PFCOUNT", "KEY"}, ":2"},
	{"bitmap", [][]string{{"SETBIT", "KEY", "100", "1"}}, []string{"BITCOUNT", "KEY"}, ":1"},
}

func (s sample) on(key string, command []string) []string {
	out := make([]string, len(command))
	for i, arg := range command {
		out[i] = arg
		if arg == "KEY" {
			out[i] = key
		}
	}
	return out
}

// plainKeys are the keys that must survive, and counters that clients raise all the time.
type plainKeys struct {
	c        *cluster
	n        int
	stop     chan struct{}
	group    sync.WaitGroup
	counters [400]atomic.Int64 // acknowledged, by counter
	unsure   [400]atomic.Int64 // refused after they may have been carried out
	mu       sync.Mutex        // guards the following
	codes    map[string]int
	slowest  time.Duration
	wrong    []string
}

func newPlainKeys(t *testing.T, c *cluster, n int) *plainKeys {
	t.Helper()
	p := &plainKeys{c: c, n: n, stop: make(chan struct{}), codes: map[string]int{}}
	w := dial(t, c.Sidecars[0].Redis)
	const batch = 1000
	for from := 0; from < n; from += batch {
		var commands [][]string
		for i := from; i < from+batch && i < n; i++ {
			commands = append(commands, []string{"SET", fmt.Sprintf("plain:%d", i), fmt.Sprintf("value %d", i)})
		}
		for _, v := range mustAsk(t, w, commands...) {
			if v != "OK" {
				t.Fatal(v)
			}
		}
	}
	for i := range 40 {
		for _, s := range samples {
			key := fmt.Sprintf("%s:%d", s.name, i)
			for _, command := range s.make {
				if v := w.do(t, s.on(key, command)...); strings.HasPrefix(v, "-") {
					t.Fatalf("%q: %s", command, v)
				}
			}
			if i%2 == 0 {
				w.want(t, ":1", "PEXPIREAT", key, strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
			}
		}
	}
	return p
}

func mustAsk(t *testing.T, w *wire, commands ...[]string) []string {
	t.Helper()
	values, err := w.ask(commands...)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = show(v)
	}
	return out
}

// run raises counters, reads them back, and sets and deletes keys of its own, through all sidecars.
func (p *plainKeys) run(t *testing.T) {
	for i := range 8 {
		w := dial(t, p.c.Sidecars[i%len(p.c.Sidecars)].Redis)
		other := dial(t, p.c.Sidecars[(i+1)%len(p.c.Sidecars)].Redis)
		p.group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-p.stop:
					return
				case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
				}
				at := 50*i + rand.IntN(50)
				key := fmt.Sprintf("counter:%d", at)
				begun := time.Now()
				v, err := w.ask([]string{"INCR", key})
				if err != nil {
					p.fault("INCR: %v", err)
					return
				}
				p.took(time.Since(begun))
				if code, _, _ := strings.Cut(show(v[0]), " "); strings.HasPrefix(code, "-") {
					p.refused(code)
					if code == "-CACHEDOWN" {
						p.unsure[at].Add(1)
					}
					continue
				}
				least := p.counters[at].Add(1)
				if v, err = other.ask([]string{"GET", key}); err != nil {
					p.fault("GET: %v", err)
					return
				}
				if text := show(v[0]); strings.HasPrefix(text, "-") {
					p.refused(text[:strings.IndexByte(text+" ", ' ')])
				} else if got, err := strconv.ParseInt(text, 10, 64); err != nil || got < least {
					p.fault("%s is %s after %d were acknowledged", key, text, least)
				}
				p.churn(w, other, i, n)
			}
		})
	}
	t.Cleanup(p.end)
}

// churn deletes a key and looks that it stays away.
func (p *plainKeys) churn(w, other *wire, i, n int) {
	key := fmt.Sprintf("churn:%d:%d", i, n%200)
	v, err := w.ask([]string{"SET", key, strconv.Itoa(n)}, []string{"DEL", key})
	if err != nil || v[0].Text != "OK" || v[1].Int != 1 {
		return // refused: told by the counters
	}
	if v, err = other.ask([]string{"GET", key}); err == nil && !v[0].Null && !strings.HasPrefix(show(v[0]), "-") {
		p.fault("%s is %s after it was deleted", key, show(v[0]))
	}
}

func (p *plainKeys) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(p.slowest, d)
}

func (p *plainKeys) refused(code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code]++
}

func (p *plainKeys) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 20 {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

func (p *plainKeys) end() {
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.group.Wait()
}

// check reads everything that must be there, through every sidecar in turn.
func (p *plainKeys) check(t *testing.T, when string) {
	t.Helper()
	lost := 0
	for n, s := range p.c.Sidecars {
		w := dial(t, s.Redis)
		const batch = 500
		for from := n * batch; from < p.n; from += batch * len(p.c.Sidecars) {
			args := []string{"MGET"}
			for i := from; i < from+batch && i < p.n; i++ {
				args = append(args, fmt.Sprintf("plain:%d", i))
			}
			v, err := w.ask(args)
			if err != nil {
				t.Fatal(err)
			}
			if len(v[0].Elems) != len(args)-1 {
				t.Fatalf("%s: MGET gave %s", when, show(v[0]))
			}
			for i, e := range v[0].Elems {
				if want := fmt.Sprintf("value %d", from+i); e.Text != want {
					if lost++; lost < 10 {
						t.Errorf("%s: plain:%d is %s", when, from+i, show(e))
					}
				}
			}
		}
		for i := range 40 {
			for _, s := range samples {
				key := fmt.Sprintf("%s:%d", s.name, i)
				w.want(t, s.want, s.on(key, s.read)...)
				ttl, err := strconv.Atoi(strings.TrimPrefix(w.do(t, "PTTL", key), ":"))
				if want := i%2 == 0; err != nil || want && (ttl < 3_300_000 || ttl > 3_600_000) || !want && ttl != -1 {
					t.Errorf("%s: PTTL %s is %d", when, key, ttl)
				}
			}
		}
	}
	if lost > 0 {
		t.Errorf("%s: %d of %d keys are lost", when, lost, p.n)
	}
}

// Guards P2, for plain keys: what was set before a planned change is there after it, with type and life; while three servers become four and four become three, nobody
// reads an older value than the last acknowledged one, no counter loses a step, and nothing that was deleted comes back.
func TestMotionKeepsPlainKeys(t *testing.T) {
	const n = 100_000
	c := own(t, func(o *localcluster.Options) { o.Config = patient })
	p := newPlainKeys(t, c, n)
	p.run(t)
	time.Sleep(time.Second)
	for _, args := range [][]string{
		{"cache", "add", "c4", c.Spares[0].Addr(), "--wait"},
		{"cache", "drain", "c4", "--wait"},
		{"cache", "remove", "c4"},
	} {
		begun := time.Now()
		c.command(t, args...)
		p.mu.Lock()
		t.Logf("%s: %v; refused so far %v, slowest %v", args[1], time.Since(begun).Round(time.Millisecond), p.codes, p.slowest.Round(time.Millisecond))
		p.slowest = 0
		p.mu.Unlock()
		p.check(t, args[1])
	}
	p.end()
	for code, times := range p.codes {
		if code != "-TRYAGAIN" || times > 200 {
			t.Errorf("%d commands were refused with %s", times, code)
		}
	}
	for _, wrong := range p.wrong {
		t.Error(wrong)
	}
	w := dial(t, c.Sidecars[0].Redis)
	for i := range p.counters {
		acked, unsure := p.counters[i].Load(), p.unsure[i].Load()
		if acked == 0 {
			continue
		}
		got, err := strconv.ParseInt(w.do(t, "GET", fmt.Sprintf("counter:%d", i)), 10, 64)
		if err != nil || got < acked || got > acked+unsure {
			t.Errorf("counter:%d is %d, %d steps were acknowledged and %d are not known (%v)", i, got, acked, unsure, err)
		}
	}
	for key := range strings.FieldsSeq(strings.Trim(dial(t, c.Spares[0].Addr()).do(t, "KEYS", "*"), "[]")) {
		if !strings.HasPrefix(key, "rs:") {
			t.Errorf("the drained server still holds %s", key)
		}
	}
}
