package proxy

import (
	"context"
	"crypto/sha1"
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/internal/realredis"
	"ringside/resp"
	"ringside/sidecar/topology"
)

const (
	script    = "return {KEYS[1],ARGV[1]}"
	functions = "#!lua name=mine\nredis.register_function{function_name='say', callback=function(keys, args) return args[1] end, flags={'no-writes'}}"
)

func shaOf(body string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(body))) }

// everyServer runs check with a key of each cache server.
func everyServer(t testing.TB, b *bench, check func(key string)) {
	t.Helper()
	topo := b.holder.Current()
	for _, c := range topo.Caches {
		found := false
		for i := 0; i < 10000 && !found; i++ {
			key := fmt.Sprintf("k%d", i)
			l, err := topo.Locate(b.server.keyspaces, []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if found = l.Cache == c.Name; found {
				check(key)
			}
		}
		if !found {
			t.Fatalf("no key of %s", c.Name)
		}
	}
}

func TestScriptsRunOnEveryServer(t *testing.T) {
	b := start(t, 3, nil)
	b.adopts.Store(true)
	w := b.dial()
	sha := shaOf(script)
	everyServer(t, b, func(key string) {
		w.want(fmt.Sprintf("EVALSHA %s 1 %s x", sha, key), "-NOSCRIPT No matching script. Please use EVAL.\r\n")
	})
	w.want("SCRIPT EXISTS "+sha+" "+shaOf("other"), "*2\r\n:0\r\n:0\r\n")
	w.want("SCRIPT LOAD '"+script+"'", bulk(sha))
	w.want("SCRIPT EXISTS "+sha+" "+shaOf("other"), "*2\r\n:1\r\n:0\r\n")
	each := func(w *wire) {
		everyServer(t, b, func(key string) {
			for _, name := range []string{"EVALSHA " + sha, "EVALSHA_RO " + strings.ToUpper(sha)} {
				w.want(fmt.Sprintf("%s 1 %s x", name, key), "*2\r\n"+bulk(key)+bulk("x"))
			}
		})
	}
	each(w)
	// Servers that restart forget, and EVALSHA may come first in a transaction.
	defer func() {
		w.want("SCRIPT LOAD 'return 7'", bulk(shaOf("return 7")))
		restart(t, b.caches[0])
		awaitServers(t, b, w)
		everyServer(t, b, func(key string) {
			w.want("MULTI", "+OK\r\n")
			w.want("EVALSHA "+shaOf("return 7")+" 1 "+key, "+QUEUED\r\n")
			w.want("EXEC", "*1\r\n:7\r\n")
		})
	}()
	for _, s := range b.caches {
		restart(t, s)
	}
	for range 4 { // clients of both loops
		again := b.dial()
		awaitServers(t, b, again)
		each(again)
	}
	w.want("SCRIPT EXISTS "+sha, "*1\r\n:1\r\n")
	w.want("SCRIPT FLUSH", "+OK\r\n")
	w.want("SCRIPT EXISTS "+sha, "*1\r\n:0\r\n")
	everyServer(t, b, func(key string) {
		w.want(fmt.Sprintf("EVALSHA %s 1 %s x", sha, key), "-NOSCRIPT No matching script. Please use EVAL.\r\n")
	})
	// What one EVAL has shown, EVALSHA may use on any server.
	w.want("EVAL '"+script+"' 1 k0 x", "*2\r\n"+bulk("k0")+bulk("x"))
	each(w)
	// Flushed behind our back: the client is told once, as by any Redis, and helps itself.
	for _, s := range b.caches {
		dial(t, s.Addr()).want("SCRIPT FLUSH", "+OK\r\n")
	}
	everyServer(t, b, func(key string) {
		for try := 0; ; try++ {
			got := w.do(fmt.Sprintf("EVALSHA %s 1 %s x", sha, key))
			if got == "*2\r\n"+bulk(key)+bulk("x") {
				break
			}
			if try > 0 || !strings.HasPrefix(got, "-NOSCRIPT") {
				t.Fatalf("EVALSHA of %s, try %d: %q", key, try, got)
			}
		}
	})
	w.want("SCRIPT LOAD 'not lua'", w.do("SCRIPT LOAD 'not lua'"))
	if got := w.do("SCRIPT LOAD 'not lua'"); !strings.HasPrefix(got, "-ERR Error compiling script") {
		t.Errorf("SCRIPT LOAD of no Lua: %q", got)
	}
	w.want("EVAL 'return 1' 0", "-ERR EVAL without a key is not offered by ringside: no key, no server\r\n")
	w.want("EVAL 'return 1' 2 a b", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	if got := w.do("EVAL 'return 1' 1 user:1"); !strings.HasPrefix(got, "-ERR EVAL does not apply to user:1") {
		t.Errorf("EVAL on a row: %q", got)
	}
	w.want("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n")
	w.want("SCRIPT FLUSH NOW", w.do("SCRIPT FLUSH NOW"))
}

func restart(t testing.TB, s *realredis.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// awaitServers waits until a client's loop has connections to all servers again.
func awaitServers(t testing.TB, b *bench, w *wire) {
	t.Helper()
	everyServer(t, b, func(key string) {
		for try := 0; strings.HasPrefix(w.do("GET "+key), "-"); try++ {
			if try > 1000 {
				t.Fatal("a restarted server is never reached again")
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func TestFunctionsRunOnEveryServer(t *testing.T) {
	b := start(t, 2, nil)
	b.adopts.Store(true)
	w := b.dial()
	load := func(extra ...string) string {
		w.write(string(resp.AppendCommandString(nil, append(append([]string{"FUNCTION", "LOAD"}, extra...), functions)...)))
		return w.reply()
	}
	each := func(w *wire, want func(key string) string) {
		t.Helper()
		everyServer(t, b, func(key string) {
			t.Helper()
			w.want("FCALL say 1 "+key+" x", want(key))
			w.want("FCALL_RO say 1 "+key+" x", want(key))
		})
	}
	says := func(string) string { return bulk("x") }
	none := func(string) string { return "-ERR Function not found\r\n" }
	each(w, none)
	if got := load(); got != bulk("mine") {
		t.Fatalf("FUNCTION LOAD: %q", got)
	}
	each(w, says)
	if got := load(); got != "-ERR Library 'mine' already exists\r\n" {
		t.Errorf("FUNCTION LOAD again: %q", got)
	}
	if got := load("REPLACE"); got != bulk("mine") {
		t.Errorf("FUNCTION LOAD REPLACE: %q", got)
	}
	for _, s := range b.caches {
		restart(t, s)
	}
	for range 4 {
		again := b.dial()
		awaitServers(t, b, again)
		each(again, says)
	}
	// A server that joins later is taught too.
	joining := realredis.T(t)
	b.holder.Publish(withCaches(t, b.holder.Current(), func(caches []topology.Cache) []topology.Cache {
		return append(caches, topology.Cache{Name: "c3", Addr: joining.Addr(), Weight: 1, State: topology.Active, RunID: runIDAt(t, joining.Addr())})
	}))
	for range 2 {
		each(b.dial(), says)
	}
	if got := w.do("FUNCTION LIST"); !strings.Contains(got, "library_name") || !strings.Contains(got, "mine") {
		t.Errorf("FUNCTION LIST: %q", got)
	}
	dump, _, err := resp.Decode([]byte(w.do("FUNCTION DUMP")))
	if err != nil || dump.Text == "" {
		t.Fatalf("FUNCTION DUMP: %v, %v", dump, err)
	}
	w.want("FUNCTION DELETE mine", "+OK\r\n")
	w.want("FUNCTION DELETE mine", "-ERR Library not found\r\n")
	each(w, none)
	w.write(string(resp.AppendCommandString(nil, "FUNCTION", "RESTORE", dump.Text)))
	if got := w.reply(); got != "+OK\r\n" {
		t.Fatalf("FUNCTION RESTORE: %q", got)
	}
	each(w, says)
	restart(t, b.caches[0])
	awaitServers(t, b, w)
	each(w, says)
	w.want("FUNCTION FLUSH", "+OK\r\n")
	each(b.dial(), none)
	w.want("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.\r\n")
}

func TestScriptKillReachesAServerThatRunsOne(t *testing.T) {
	b := start(t, 2, func(c *Config) { c.ReplyTimeout = 10 * time.Second })
	for _, s := range b.caches {
		dial(t, s.Addr()).want("CONFIG SET busy-reply-threshold 50", "+OK\r\n")
	}
	w, killer := b.dial(), b.dial()
	w.send("EVAL 'while true do end' 1 k")
	for try := 0; ; try++ {
		got := killer.do("SCRIPT KILL")
		if got == "+OK\r\n" {
			break
		}
		if try > 200 {
			t.Fatalf("SCRIPT KILL: %q", got)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := w.reply(); !strings.HasPrefix(got, "-ERR Error running script") && !strings.Contains(got, "killed") {
		t.Errorf("the script's reply: %q", got)
	}
}

func TestScriptsOfAServerThatIsDown(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	if err := b.caches[1].Kill(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"SCRIPT LOAD '" + script + "'", "SCRIPT FLUSH", "SCRIPT EXISTS " + shaOf(script), "FUNCTION FLUSH"} {
		if got := w.do(c); !strings.HasPrefix(got, "-CACHEDOWN c2 ") {
			t.Errorf("%s with c2 dead: %q", c, got)
		}
	}
}

func TestLibraryIsBounded(t *testing.T) {
	l := newLibrary()
	big := strings.Repeat("x", maxScript-8)
	for i := range 100 {
		l.remember(fmt.Appendf(nil, "%s%08d", big, i))
	}
	if l.bytes > maxScriptBytes || len(l.bodies) != len(l.order) || len(l.known) != len(l.order) || len(l.order) < 20 {
		t.Errorf("%d bytes in %d, %d, %d scripts", l.bytes, len(l.bodies), len(l.known), len(l.order))
	}
	if _, ok := l.script([]byte(shaOf(fmt.Sprintf("%s%08d", big, 99)))); !ok {
		t.Error("the newest script is forgotten")
	}
	if _, ok := l.script([]byte(shaOf(fmt.Sprintf("%s%08d", big, 0)))); ok {
		t.Error("the oldest script is kept")
	}
	for i := range 2 * maxScripts {
		l.remember(fmt.Appendf(nil, "return %d", i))
	}
	if len(l.order) > maxScripts {
		t.Errorf("%d scripts are kept", len(l.order))
	}
	l.remember([]byte(strings.Repeat("y", maxScript+1)))
	l.changeFunctions(func(sources map[string]string) {
		for i := range 2 * maxLibraries {
			sources[fmt.Sprint(i)] = "x"
		}
	})
	if all, _ := l.functions(); len(all) > maxLibraries {
		t.Errorf("%d libraries are kept", len(all))
	}
}
