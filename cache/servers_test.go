package cache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// told collects what OnIncarnation was told.
type told struct {
	mu   sync.Mutex // guards the following
	last map[string]string
}

func (o *told) tell(server, runID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = make(map[string]string)
	}
	o.last[server] = runID
}

func (o *told) of(server string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[server]
}

// TestAReturnedServerIsNotUsedUntilItIsNamed guards P3: a server that comes back, empty or with what it held before a write that it
// never heard of, is used only when the topology names the new process, which it does under a new generation.
func TestAReturnedServerIsNotUsedUntilItIsNamed(t *testing.T) {
	for name, keepsData := range map[string]bool{"empty": false, "with old data": true} {
		t.Run(name, func(t *testing.T) {
			r := realredis.T(t)
			s, db := newSidecar(t, testConfig(), r), admin(t, r)
			var heard told
			s.servers.OnIncarnation(heard.tell)
			old, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
			v, err := s.Read(ctxb, old, aMinute, 0, reg.loader)
			wantVersion(t, v, err, 0)
			if keepsData {
				if err := db.Save(ctxb).Err(); err != nil {
					t.Fatal(err)
				}
			}
			// the write reaches the entry, but the server forgets that and comes back as it was saved
			if err := s.Write(ctxb, []Ref{old}, reg.writer); err != nil {
				t.Fatal(err)
			}
			if err := r.Kill(); err != nil {
				t.Fatal(err)
			}
			v, err = s.Read(ctxb, old, aMinute, 0, reg.loader)
			wantVersion(t, v, err, 1)
			if err := r.Restart(ctxb); err != nil {
				t.Fatal(err)
			}
			if back := db.Exists(ctxb, old.Name).Val() == 1; back != keepsData {
				t.Fatalf("the old entry is back: %v", back)
			}
			for range 5 {
				v, err = s.Read(ctxb, old, aMinute, 0, reg.loader)
				wantVersion(t, v, err, 1)
				if v.Source != Bypassed {
					t.Errorf("source %s", v.Source)
				}
				time.Sleep(30 * time.Millisecond)
			}
			now := runIDOf(t, r)
			if got := heard.of("c1"); got != now {
				t.Errorf("heard of process %q, it is %q", got, now)
			}
			var ie *IncarnationError
			if err := s.Write(ctxb, []Ref{old}, reg.writer); !errors.As(err, &ie) || ie.Got != now || ie.Want != s.config[0].RunID {
				t.Errorf("a write: %v", err)
			}
			conf := s.config[0]
			conf.RunID = now
			if err := s.servers.Apply([]ServerConfig{conf}); err != nil {
				t.Fatal(err)
			}
			if keepsData { // why the new process must come with a new generation
				v, err = s.Read(ctxb, old, aMinute, 0, reg.loader)
				wantVersion(t, v, err, 0)
			}
			fresh := Ref{Server: "c1", Name: "rs:2.0:k"}
			v, err = s.Read(ctxb, fresh, aMinute, 0, reg.loader)
			wantVersion(t, v, err, 1)
			if v.Source != Filled {
				t.Errorf("after it was named: %s", v.Source)
			}
		})
	}
}

// TestCleanStaysWithTheProcessThatWasPoisoned: another process named meanwhile says nothing about what the poisoned one holds.
func TestCleanStaysWithTheProcessThatWasPoisoned(t *testing.T) {
	t.Parallel() // it waits
	r := realredis.T(t)
	cfg := testConfig()
	cfg.CleanTimeout, cfg.StepTimeout = 6*time.Second, 6*time.Second // a machine that has other things to do still connects once in that time
	s, reg := newSidecar(t, cfg, r), new(row)
	err := s.Write(ctxb, []Ref{{Server: "c1", Name: "rs:1.0:k"}}, func(ctx context.Context, poisoned func() error) error {
		err := reg.writer(ctx, poisoned)
		r.Kill()
		if err := r.Restart(ctxb); err != nil {
			t.Error(err)
		}
		conf := s.config[0]
		conf.RunID = runIDOf(t, r)
		if err := s.servers.Apply([]ServerConfig{conf}); err != nil {
			t.Error(err)
		}
		return err
	})
	var ce *CleanError
	var ie *IncarnationError
	if !errors.As(err, &ce) || !errors.As(err, &ie) {
		t.Errorf("error %v", err)
	}
}

func TestNoProcessNamedYet(t *testing.T) {
	r := realredis.T(t)
	s, reg := newSidecar(t, testConfig(), r), new(row)
	var heard told
	s.servers.OnIncarnation(heard.tell)
	conf := s.config[0]
	conf.RunID = ""
	if err := s.servers.Apply([]ServerConfig{conf}); err != nil {
		t.Fatal(err)
	}
	v, err := s.Read(ctxb, Ref{Server: "c1", Name: "k"}, aMinute, 0, reg.loader)
	wantVersion(t, v, err, 0)
	if id := runIDOf(t, r); v.Source != Bypassed || heard.of("c1") != id {
		t.Errorf("%s, heard %q of %q", v.Source, heard.of("c1"), id)
	}
	if id, err := s.servers.Probe(ctxb, "c1"); err != nil || id != runIDOf(t, r) {
		t.Errorf("Probe: %q, %v", id, err)
	}
	if _, err := s.servers.Probe(ctxb, "c9"); !errors.Is(err, ErrUnknownServer) {
		t.Errorf("Probe of no server: %v", err)
	}
	r.Kill()
	if _, err := s.servers.Probe(ctxb, "c1"); err == nil {
		t.Error("Probe of a dead server succeeds")
	}
}

// TestAServerThatDoesNotAnswerIsDoneWithout guards P7 and the bounds of P6.
func TestAServerThatDoesNotAnswerIsDoneWithout(t *testing.T) {
	t.Parallel() // it waits
	r := realredis.T(t)
	s, reg := newSidecar(t, testConfig(), r), new(row)
	ref := Ref{Server: "c1", Name: "rs:1.0:k"}
	v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
	wantVersion(t, v, err, 0)
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	srv := s.servers.acquire("c1")
	srv.gate.min, srv.gate.max = 3*time.Second, 3*time.Second
	s.servers.release(srv)
	s.hurry()
	for range 10 {
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, 0)
	}
	degraded := s.servers.metrics.degraded
	waited, suspended := testutil.ToFloat64(degraded.WithLabelValues("c1", "timeout")), testutil.ToFloat64(degraded.WithLabelValues("c1", "suspended"))
	if waited != 1 || suspended != 9 {
		t.Errorf("of ten reads %v waited for the server, %v did without it", waited, suspended)
	}
	var se *ServerError
	if err := s.Write(ctxb, []Ref{ref}, reg.writer); !errors.As(err, &se) {
		t.Errorf("a write: %v", err)
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	s.cfg.StepTimeout = patient().StepTimeout
	within(t, "the server is used again", func() bool {
		v, err := s.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:other"}, aMinute, 0, reg.loader)
		return err == nil && v.Source == Hit
	})
}

func TestAServerThatRefusesIsDoneWithout(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:k"}
	for why, tc := range map[string]struct{ refuse, allow func() error }{
		"readonly": {
			func() error { return db.ReplicaOf(ctxb, "127.0.0.1", "1").Err() },
			func() error { return db.ReplicaOf(ctxb, "NO", "ONE").Err() },
		},
		"memory": {
			func() error { return db.ConfigSet(ctxb, "maxmemory", "1").Err() },
			func() error { return db.ConfigSet(ctxb, "maxmemory", "0").Err() },
		},
		"auth": {
			func() error { return db.Do(ctxb, "ACL", "SETUSER", "default", "-set").Err() },
			func() error { return db.Do(ctxb, "ACL", "SETUSER", "default", "+set").Err() },
		},
	} {
		if err := tc.refuse(); err != nil {
			t.Fatal(why, err)
		}
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		if err != nil || v.Source != Bypassed || testutil.ToFloat64(s.servers.metrics.degraded.WithLabelValues("c1", why)) != 1 {
			t.Errorf("%s: %s, %v", why, v.Source, err)
		}
		var se *ServerError
		if err := s.Write(ctxb, []Ref{ref}, reg.writer); !errors.As(err, &se) {
			t.Errorf("%s: a write: %v", why, err)
		}
		if err := tc.allow(); err != nil {
			t.Fatal(why, err)
		}
		if err := s.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
			t.Errorf("%s is over: %v", why, err)
		}
	}
}

// TestALateCommandChangesNothing guards I3: what was sent before a time-out is executed when the server wakes up.
func TestALateCommandChangesNothing(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:k"}
	if _, err := s.Read(ctxb, Ref{Server: "c1", Name: "warm"}, aMinute, 0, reg.loader); err != nil { // a connection is there
		t.Fatal(err)
	}
	r.Pause()
	s.hurry()
	v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader) // its ask times out, and will be executed
	wantVersion(t, v, err, 0)
	reg.commit()
	r.Resume()
	s.cfg.StepTimeout = patient().StepTimeout
	within(t, "the late lease is there", func() bool {
		b, _ := db.Get(ctxb, ref.Name).Bytes()
		return Kind(b) == KindLease
	})
	within(t, "readers go on past it", func() bool {
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, 1)
		return true
	})
	if b, _ := db.Get(ctxb, ref.Name).Bytes(); Kind(b) != KindLease {
		t.Errorf("somebody filled under a lease that nobody got: %q", b)
	}
	if left := db.PTTL(ctxb, ref.Name).Val(); left > s.cfg.LeaseTTL {
		t.Errorf("the lease lives %v", left)
	}
}

func TestApply(t *testing.T) {
	r := realredis.T(t)
	s := newSidecar(t, testConfig(), r)
	ss, conf := s.servers, s.config[0]
	client := func() *redis.Client {
		srv := ss.acquire("c1")
		defer ss.release(srv)
		return srv.client
	}
	first := client()
	if err := ss.Apply([]ServerConfig{conf}); err != nil || client() != first {
		t.Errorf("the same configuration replaces the client (%v)", err)
	}
	inUse := ss.acquire("c1")
	for name, change := range map[string]func(*ServerConfig){
		"run id":   func(c *ServerConfig) { c.RunID = "other" },
		"password": func(c *ServerConfig) { c.Password = "other" },
		"address":  func(c *ServerConfig) { c.Addr = "127.0.0.1:1" },
	} {
		next := conf
		change(&next)
		before := client()
		if err := ss.Apply([]ServerConfig{next}); err != nil || client() == before {
			t.Errorf("another %s does not replace the client (%v)", name, err)
		}
	}
	if err := inUse.client.Ping(ctxb).Err(); err != nil {
		t.Errorf("a client in use was closed: %v", err)
	}
	ss.release(inUse)
	if err := inUse.client.Ping(ctxb).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a replaced client stays open: %v", err)
	}
	for _, bad := range [][]ServerConfig{{conf, conf}, {{Name: "c1"}}, {{Addr: "127.0.0.1:1"}}} {
		if ss.Apply(bad) == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
	if err := ss.Apply(nil); err != nil || ss.acquire("c1") != nil {
		t.Error("a removed server is there")
	}
}

// TestConnectionsAreBoundedAndPlain: what one sidecar costs a server.
func TestConnectionsAreBoundedAndPlain(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	reg := new(row)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 20 {
				s.Write(ctxb, []Ref{{Server: "c1", Name: "rs:1.0:k"}}, reg.writer)
			}
		})
	}
	wg.Wait()
	info := db.Info(ctxb, "clients").Val()
	var clients int
	if _, err := sscanLine(info, "connected_clients:%d", &clients); err != nil || clients > s.servers.cfg.Connections+1 {
		t.Errorf("%d connections, %v", clients, err)
	}
	for line := range strings.Lines(db.Info(ctxb, "errorstats").Val()) {
		if strings.HasPrefix(line, "errorstat_") && !strings.HasPrefix(line, "errorstat_NOSCRIPT") {
			t.Errorf("connecting left errors on the server: %s", line)
		}
	}
}

// A row's Ref is worked out by one topology; the servers may be configured by the next one a moment later. Its name means nothing on the
// process that is configured then. Found with a server that came back with an old snapshot, in the moment of its adoption (P3).
func TestARefIsUsedOnTheProcessItWasMadeForOnly(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:k", RunID: "the process before"}
	entry := AppendValue(nil, time.Now(), time.Now(), []byte("what the snapshot brought back"))
	if err := db.Set(ctxb, ref.Name, entry, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
	wantVersion(t, v, err, 0)
	if v.Source != Bypassed {
		t.Errorf("the row came from %v", v.Source)
	}
	err = s.Write(ctxb, []Ref{ref}, reg.writer)
	se, refused := errors.AsType[*ServerError](err)
	ie, other := errors.AsType[*IncarnationError](err)
	if !refused || se.Server != "c1" || !other || ie.Want != ref.RunID {
		t.Errorf("write: %v", err)
	}
	if kept, err := db.Get(ctxb, ref.Name).Bytes(); err != nil || string(kept) != string(entry) {
		t.Errorf("the other process's entry was touched: %q %v", kept, err)
	}
	ref.RunID = s.config[0].RunID
	if err := s.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
		t.Errorf("on its own process: %v", err)
	}
}
