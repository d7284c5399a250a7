package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/resp"
)

// mgetOver is an MGET of keys on two fake servers: what the first one answers is up to the test, the second has "two".
type mgetOver struct {
	*bench
	first, second []string
	// answer is what the first server says to MGET, rest what it says to GET then.
	answer, rest atomic.Value
	asked        chan bool // the first server has got the MGET
}

func newMGETOver(t *testing.T) *mgetOver {
	m := &mgetOver{asked: make(chan bool, 100)}
	m.answer.Store("")
	m.rest.Store("")
	one := fake(t, func(args []string) string {
		switch args[0] {
		case "MGET":
			m.asked <- true
			return m.answer.Load().(string)
		case "GET":
			return m.rest.Load().(string)
		}
		return ""
	})
	two := fake(t, func(args []string) string {
		if args[0] == "MGET" {
			return "*1\r\n" + bulk("two")
		}
		return ""
	})
	m.bench = before(t, func(c *Config) { c.Loops = 1 }, one.addr, two.addr)
	for i := range 4 {
		m.first = append(m.first, m.keyOn("c1", i))
	}
	m.second = []string{m.keyOn("c2", 0)}
	return m
}

// command asks for two keys of the first server, one of the second, and two of the first.
func (m *mgetOver) command() string {
	return "MGET " + strings.Join([]string{m.first[0], m.first[1], m.second[0], m.first[2], m.first[3]}, " ")
}

// A part of an MGET's reply is taken apart as it comes: cut anywhere, it makes the same reply, and what comes behind it is another's.
func TestPartsOfAnMGETCutAnywhere(t *testing.T) {
	m := newMGETOver(t)
	part := "*4\r\n" + bulk("a") + "$-1\r\n" + bulk(strings.Repeat("long", 30)) + bulk("")
	want := "*5\r\n" + bulk("a") + "$-1\r\n" + bulk("two") + bulk(strings.Repeat("long", 30)) + bulk("")
	w, other := m.dial(), m.dial()
	m.answer.Store(part)
	w.want(m.command(), want)
	<-m.asked
	for cut := 1; cut < len(part); cut++ {
		m.answer.Store(part[:cut])
		m.rest.Store(part[cut:] + "+behind\r\n")
		w.send(m.command())
		<-m.asked
		other.send("GET " + m.first[0])
		if got := w.reply(); got != want {
			t.Fatalf("cut at %d: %q, want %q", cut, got, want)
		}
		if got := other.reply(); got != "+behind\r\n" {
			t.Fatalf("cut at %d: the next request got %q", cut, got)
		}
	}
}

// Whatever is not the values that were asked for is an error of the whole, also when it comes, or the connection ends, in their middle;
// the next MGET is as if nothing had been.
func TestPartsOfAnMGETThatFail(t *testing.T) {
	m := newMGETOver(t)
	whole := "*4\r\n" + strings.Repeat(bulk("x"), 4)
	w, other := m.dial(), m.dial()
	for _, c := range []struct{ answer, rest, want string }{
		{"-ERR of the server\r\n", "+next\r\n", "-ERR of the server\r\n"},
		{"*3\r\n" + strings.Repeat(bulk("x"), 3), "+next\r\n", "-ERR the cache server's reply is not what"},
		{"*-1\r\n", "+next\r\n", "-ERR the cache server's reply is not what"},
		{"+OK\r\n", "+next\r\n", "-ERR the cache server's reply is not what"},
		{"*4\r\n" + bulk("x") + bulk("x"), closeIt, "-CACHEDOWN c1"},
		{"*4\r\n" + bulk("x") + "$1\r\nlonger\r\n", "", "-CACHEDOWN c1"},
	} {
		m.answer.Store(c.answer)
		m.rest.Store(c.rest)
		w.send(m.command())
		<-m.asked
		if c.rest != "" {
			other.send("GET " + m.first[0])
		}
		if got := w.reply(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %q, want %q", c.answer, got, c.want)
		}
		switch {
		case c.rest == closeIt:
			if got := other.reply(); !strings.HasPrefix(got, "-CACHEDOWN c1") {
				t.Errorf("%q: the request behind it got %q", c.answer, got)
			}
		case c.rest != "":
			if got := other.reply(); got != c.rest {
				t.Errorf("%q: the request behind it got %q", c.answer, got)
			}
		}
		m.answer.Store(whole)
		m.rest.Store("+up\r\n")
		for until := time.Now().Add(30 * time.Second); other.do("GET "+m.first[0]) != "+up\r\n"; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%q: the server is not used again", c.answer)
			}
		}
		w.want(m.command(), "*5\r\n"+bulk("x")+bulk("x")+bulk("two")+bulk("x")+bulk("x"))
		<-m.asked
	}
}

// Long MGETs of several clients at once, alone and in pipelines, come whole and each with its own values, though their parts use the same
// buffers one after the other.
func TestLongMGETsShareBuffers(t *testing.T) {
	b := start(t, 3, nil)
	setUp := b.dial()
	const keys = 3000
	var all sync.WaitGroup
	for c := range 6 {
		get, set := []string{"MGET"}, []string{"MSET"}
		want := resp.AppendArray(nil, keys)
		for i := range keys {
			key, value := fmt.Sprintf("mget:%d:%d", c, i), patterned(i%90, 100*c+i)
			get = append(get, key)
			if i%7 == 0 {
				want = append(want, "$-1\r\n"...)
				continue
			}
			set = append(set, key, value)
			want = append(want, bulk(value)...)
		}
		setUp.write(string(resp.AppendCommandString(nil, set...)))
		if reply := setUp.reply(); reply != "+OK\r\n" {
			t.Fatalf("MSET: %q", reply)
		}
		all.Go(func() {
			w := dial(t, b.addr)
			ask := string(resp.AppendCommandString(nil, get...))
			for round := range 8 {
				w.write(strings.Repeat(ask, 1+round%3))
				for range 1 + round%3 {
					if got := w.reply(); got != string(want) {
						t.Errorf("client %d, round %d: %d bytes that are not its %d", c, round, len(got), len(want))
						return
					}
				}
			}
		})
	}
	all.Wait()
}
