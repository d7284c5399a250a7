package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
	"ringside/sidecar/topology"
)

func TestBlockingCommandsAnswerAsOneRedis(t *testing.T) {
	b := start(t, 3, nil)
	alikeConversations(t, b, realredis.T(t).Addr(), []string{
		"BLPOP {t}l 0.01", "BRPOP {t}l {t}k 0.01", "BLMOVE {t}l {t}k LEFT RIGHT 0.01", "BRPOPLPUSH {t}l {t}k 0.01", "BLMPOP 0.01 1 {t}l LEFT",
		"BZPOPMIN {t}z 0.01", "BZPOPMAX {t}z 0.01", "BZMPOP 0.01 1 {t}z MIN", "XREAD BLOCK 10 STREAMS {t}s $",
		"RPUSH {t}l a b c d e f", "BLPOP {t}l 0", "BRPOP {t}k {t}l 0", "BLMOVE {t}l {t}k LEFT RIGHT 0", "BRPOPLPUSH {t}l {t}k 0", "BLMPOP 0 1 {t}l LEFT COUNT 2",
		"ZADD {t}z 1 a 2 b 3 c", "BZPOPMIN {t}z 0", "BZPOPMAX {t}z 0", "BZMPOP 0 1 {t}z MIN",
		"XADD {t}s 1-1 f v", "XREAD BLOCK 0 STREAMS {t}s 0", "XGROUP CREATE {t}s g 0", "XREADGROUP GROUP g me BLOCK 0 STREAMS {t}s >",
		"XREADGROUP GROUP g me BLOCK 10 STREAMS {t}s >", "DEL {t}l {t}k {t}z {t}s",
		"BLPOP {t}l nan !", "BLPOP {t}l -1", "BLPOP {t}l", "SET {t}l x", "BLPOP {t}l 0", "DEL {t}l",
	})
	w := b.dial()
	w.want("BLPOP x y 0", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	if got := w.do("WAIT 0 0"); !strings.HasPrefix(got, "-ERR WAIT is not offered") {
		t.Errorf("%q", got)
	}
	if got := w.do("BLPOP user:1 0"); !strings.HasPrefix(got, "-ERR BLPOP does not apply") {
		t.Errorf("%q", got)
	}
	w.want("WATCH x", "+OK\r\n")
	w.want("BLPOP y 0", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	w.want("BLPOP x 0.01", "*-1\r\n")
}

// waits waits until n clients are blocked at the cache server.
func (b *bench) waits(server, n int) {
	b.t.Helper()
	w := dial(b.t, b.caches[server].Addr())
	b.eventually(fmt.Sprintf("%d wait at server %d", n, server), func() bool {
		return strings.Contains(w.do("INFO clients"), fmt.Sprintf("blocked_clients:%d\r\n", n))
	})
}

// TestBlockedClientKeepsItsOrder: what comes before is over, what comes behind has not begun, others go on.
func TestBlockedClientKeepsItsOrder(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 1, func(c *Config) { c.ReplyTimeout = 5 * time.Second })
	w, other := b.dial(), b.dial()
	w.send("LPUSH l 1", "LPOP l", "SET a 1", "BLPOP l 0", "SET a 2", "NOSUCH", "GET a")
	b.waits(0, 1)
	time.Sleep(5500 * time.Millisecond) // longer than others wait for a reply
	other.want("GET a", bulk("1"))
	if got := other.do("INFO clients"); !strings.Contains(got, "blocked_clients:1\r\n") {
		t.Errorf("%q", got)
	}
	other.want("RPUSH l x", ":1\r\n")
	for _, want := range []string{":1\r\n", bulk("1"), "+OK\r\n", "*2\r\n" + bulk("l") + bulk("x"), "+OK\r\n"} {
		if got := w.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := w.reply(); !strings.HasPrefix(got, "-ERR unknown command") {
		t.Errorf("%q", got)
	}
	if got := w.reply(); got != bulk("2") {
		t.Errorf("%q", got)
	}
}

// TestClientLeavesWhileBlocked: nothing is popped for it, however it leaves and whatever it has sent meanwhile.
func TestClientLeavesWhileBlocked(t *testing.T) {
	b := start(t, 1, nil)
	leave := map[string]func(w *wire){
		"closes":                      func(w *wire) { w.conn.Close() },
		"closes with requests behind": func(w *wire) { w.send("GET a", "GET b"); time.Sleep(20 * time.Millisecond); w.conn.Close() },
		"closes with half a request":  func(w *wire) { w.write("*1\r\n$4"); time.Sleep(20 * time.Millisecond); w.conn.Close() },
	}
	for how, do := range leave {
		t.Run(how, func(t *testing.T) {
			w, other := b.dial(), b.dial()
			w.send("BLPOP l 0")
			b.waits(0, 1)
			do(w)
			b.waits(0, 0)
			other.want("RPUSH l x", ":1\r\n")
			other.want("LPOP l", bulk("x"))
			if n := b.server.privates.Load(); n != 0 {
				t.Errorf("%d own connections", n)
			}
		})
	}
}

func TestServerDiesUnderABlockedClient(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.send("BLPOP l 0", "PING")
	b.waits(0, 1)
	if err := b.caches[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if got := w.reply(); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
		t.Errorf("%q", got)
	}
	if got := w.reply(); got != "+PONG\r\n" {
		t.Errorf("%q", got)
	}
}

func TestServerThatForgetsABlockedClient(t *testing.T) {
	t.Parallel() // it waits
	s := fake(t, func(args []string) string {
		if args[0] == "BLPOP" {
			return silence
		}
		return ""
	})
	b := before(t, func(c *Config) { c.ReplyTimeout = 3 * time.Second }, s.addr)
	w := b.dial()
	began := time.Now()
	if got := w.do("BLPOP l 0.3"); !strings.HasPrefix(got, "-CACHEDOWN c1 no reply in time") {
		t.Errorf("%q", got)
	}
	if took := time.Since(began); took < 3250*time.Millisecond || took > time.Minute {
		t.Errorf("took %v", took)
	}
}

func TestRingChangesUnderABlockedClient(t *testing.T) {
	b := start(t, 2, nil)
	moved, kept := b.dial(), b.dial()
	key, stays := b.keyOn("c1", 0), b.keyOn("c2", 0)
	moved.send("BLPOP " + key + " 0")
	kept.send("BLPOP " + stays + " 0")
	b.waits(0, 1)
	b.waits(1, 1)
	content := b.holder.Current().Content()
	content.Epoch++
	content.Caches[0].State = topology.Draining
	b.publish(content)
	if got := moved.reply(); !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("%q", got)
	}
	b.waits(0, 0)
	moved.send("BLPOP " + key + " 0")
	b.waits(1, 2)
	b.dial().want("RPUSH "+key+" x", ":1\r\n")
	b.dial().want("RPUSH "+stays+" y", ":1\r\n")
	if got := moved.reply(); got != "*2\r\n"+bulk(key)+bulk("x") {
		t.Errorf("%q", got)
	}
	if got := kept.reply(); got != "*2\r\n"+bulk(stays)+bulk("y") {
		t.Errorf("%q", got)
	}
}

func TestDrainEndsABlockedClient(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.send("BLPOP l 0")
	b.waits(0, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.server.Drain(ctx); err != nil {
		t.Error(err)
	}
	if got := w.reply(); got != "-ERR the sidecar is stopping\r\n" {
		t.Errorf("%q", got)
	}
	w.closed()
}

func TestBlockingByGoRedis(t *testing.T) {
	b := start(t, 3, nil)
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: b.addr})
	defer c.Close()
	const jobs = 200
	got := make(chan string, jobs)
	for range 4 {
		go func() {
			for {
				v, err := c.BLPop(ctx, time.Minute, "jobs").Result()
				if err != nil || v[1] == "end" {
					if err != nil {
						t.Error(err)
					}
					got <- ""
					return
				}
				got <- v[1]
			}
		}()
	}
	for i := range jobs {
		if err := c.RPush(ctx, "jobs", fmt.Sprint(i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		c.RPush(ctx, "jobs", "end")
	}
	seen := map[string]bool{}
	for ended := 0; ended < 4; {
		switch v := <-got; {
		case v == "":
			ended++
		case seen[v]:
			t.Errorf("%s came twice", v)
		default:
			seen[v] = true
		}
	}
	if len(seen) != jobs {
		t.Errorf("%d of %d jobs", len(seen), jobs)
	}
	if err := c.BLPop(ctx, 10*time.Millisecond, "jobs").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("%v", err)
	}
}

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		command string
		want    time.Duration
	}{
		{"BLPOP a b 0", -1}, {"BLPOP a 2.5", 2500 * time.Millisecond}, {"BLPOP a x", 0}, {"BLPOP a -1", 0}, {"BLPOP a nan", 0}, {"BLPOP a inf", -1},
		{"BLPOP a 1e18", -1}, {"BLMPOP 3 1 a LEFT", 3 * time.Second}, {"BLMOVE a b LEFT RIGHT 4", 4 * time.Second},
		{"XREAD BLOCK 50 STREAMS a 0", 50 * time.Millisecond}, {"XREAD COUNT 1 block 0 STREAMS a 0", -1},
		{"XREADGROUP GROUP g c BLOCK 7 STREAMS a >", 7 * time.Millisecond}, {"XREAD COUNT 1 BLOCK", 0},
	} {
		var args [][]byte
		for _, a := range words(c.command) {
			args = append(args, []byte(a))
		}
		if got := patience(strings.ToLower(string(args[0])), args); got != c.want {
			t.Errorf("%s: %v, want %v", c.command, got, c.want)
		}
	}
}
