package cache

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/internal/realredis"
)

func watch(t *testing.T, servers ...ServerConfig) *Watcher {
	t.Helper()
	cfg := DefaultServersConfig()
	cfg.ConnectTimeout = 20 * time.Second
	s, err := NewServers(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(servers); err != nil {
		t.Fatal(err)
	}
	w := s.Watch("c1")
	t.Cleanup(func() {
		w.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func look(w *Watcher, within time.Duration) (Health, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return w.Look(ctx)
}

func wantHealth(t *testing.T, w *Watcher, want Health) {
	t.Helper()
	if got, err := look(w, 30*time.Second); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestWatcherSaysHowAServerIs(t *testing.T) {
	r := realredis.T(t)
	db := admin(t, r)
	w := watch(t, ServerConfig{Name: "c1", Addr: r.Addr(), RunID: "another process"}) // any process is asked
	first := runIDOf(t, r)
	wantHealth(t, w, Health{RunID: first})

	db.ConfigSet(ctxb, "maxmemory-policy", "noeviction")
	db.ConfigSet(ctxb, "maxmemory", "1")
	wantHealth(t, w, Health{RunID: first, Refuses: "OOM"})
	db.ConfigSet(ctxb, "maxmemory", "0")
	wantHealth(t, w, Health{RunID: first})
	if n := db.DBSize(ctxb).Val(); n != 0 {
		t.Errorf("asking has left %d keys", n)
	}

	db.ReplicaOf(ctxb, "127.0.0.1", "1")
	wantHealth(t, w, Health{RunID: first, Refuses: "READONLY"})
	// One that can be written to is a replica all the same; its role is asked now and then.
	db.ConfigSet(ctxb, "replica-read-only", "no")
	w.asked = time.Time{}
	wantHealth(t, w, Health{RunID: first, Refuses: "READONLY"})
	db.ReplicaOf(ctxb, "no", "one")
	w.asked = time.Time{}
	wantHealth(t, w, Health{RunID: first})

	// Somebody who uses our name does not make the server look ill.
	db.Set(ctxb, noKey, "x", 0)
	wantHealth(t, w, Health{RunID: first})

	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := look(w, 200*time.Millisecond); err == nil {
		t.Error("a server that stands still looks well")
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	var failed *ServerError
	if _, err := look(w, 30*time.Second); !errors.As(err, &failed) || failed.Server != "c1" {
		t.Errorf("a server that is gone: %v", err)
	}
	if err := r.Restart(ctxb); err != nil {
		t.Fatal(err)
	}
	second := runIDOf(t, r)
	if first == second {
		t.Fatal("the same process")
	}
	wantHealth(t, w, Health{RunID: second})
}

func TestWatcherNeedsNoMoreThanTheRightsOfASidecar(t *testing.T) {
	r := realredis.T(t)
	db := admin(t, r)
	if err := db.Do(ctxb, "acl", "setuser", "side", "on", ">pw", "~*", "&*", "+@all", "-@dangerous", "+info").Err(); err != nil {
		t.Fatal(err)
	}
	w := watch(t, ServerConfig{Name: "c1", Addr: r.Addr(), Username: "side", Password: "pw"})
	wantHealth(t, w, Health{RunID: runIDOf(t, r)})
	if got, err := w.servers.Meet(ctxb, r.Addr(), "side", "pw", nil); err != nil || got.RunID != runIDOf(t, r) {
		t.Errorf("%+v, %v", got, err)
	}

	w = watch(t, ServerConfig{Name: "c1", Addr: r.Addr(), Username: "side", Password: "wrong"})
	if _, err := look(w, 30*time.Second); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := look(watch(t), time.Second); !errors.Is(err, ErrUnknownServer) {
		t.Errorf("a server that is not there: %v", err)
	}
}

func TestMeet(t *testing.T) {
	r := realredis.T(t)
	db, s := admin(t, r), watch(t).servers
	want := Stranger{RunID: runIDOf(t, r), Mode: "standalone", Role: "master"}
	check := func(what string) {
		t.Helper()
		if got, err := s.Meet(ctxb, r.Addr(), "", "", nil); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	check("empty")
	db.Set(ctxb, "rs:ring", "7", 0)
	check("only with what is ours")
	db.MSet(ctxb, "a", 1, "b", 2)
	want.Keys = 2
	check("with keys")
	if err := db.Do(ctxb, "debug", "populate", strangerKeys).Err(); err == nil {
		want.Keys = strangerKeys + 3
		check("with many keys")
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Meet(ctxb, r.Addr(), "", "", nil); err == nil {
		t.Error("a server that is gone was met")
	}
}

// A server knows who looks after it, also those that gossip does not reach; who has been silent for long does not count.
func TestAServerKnowsWhoLooksAfterIt(t *testing.T) {
	r := realredis.T(t)
	for _, name := range []string{"one", "two"} {
		cfg := DefaultServersConfig()
		cfg.Watcher, cfg.ConnectTimeout = name, 20*time.Second
		s, err := NewServers(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Apply([]ServerConfig{{Name: "c1", Addr: r.Addr(), RunID: runIDOf(t, r)}}); err != nil {
			t.Fatal(err)
		}
		w := s.Watch("c1")
		t.Cleanup(w.Close)
		if _, err := w.Look(ctxb); err != nil {
			t.Fatal(err)
		}
		who, err := s.Watching(ctxb, "c1")
		if want := map[string][]string{"one": {"one"}, "two": {"one", "two"}}[name]; err != nil || !slices.Equal(slices.Sorted(slices.Values(who)), want) {
			t.Errorf("%v looks after it: %v, want %v", who, err, want)
		}
	}
	list := "id=3 addr=1:2 name=ringside-watch:x age=90 idle=61 db=0\nid=4 addr=1:3 name=ringside-watch:y idle=59\nid=5 name= idle=0\nid=6 name=ringside:1::z idle=0\n"
	if got := watchers(list); !slices.Equal(got, []string{"y"}) {
		t.Errorf("%v", got)
	}
}
