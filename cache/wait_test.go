package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// meeting is a reader of sidecar a whose load goes on when it is told to, and one of sidecar b that waits for it.
type meeting struct {
	t          *testing.T
	a, b       *sidecar
	db         *redis.Client
	ref        Ref
	reg        *row
	asks       atomic.Int32 // of b
	mayNotFill bool         // a
	goOn       chan struct{}
	first      chan Value
	second     chan Value
}

func meet(t *testing.T, cfg Config, configure ...func(m *meeting)) *meeting {
	t.Helper()
	r := realredis.T(t)
	m := &meeting{t: t, a: newSidecar(t, cfg, r), b: newSidecar(t, cfg, r), db: admin(t, r), ref: Ref{Server: "c1", Name: "rs:1.0:k"}, reg: new(row),
		goOn: make(chan struct{}), first: make(chan Value, 1), second: make(chan Value, 1)}
	for _, f := range configure {
		f(m)
	}
	m.b.tap("c1", func(cmd redis.Cmder) bool {
		if stepOf(m.b.Cache, cmd) == "ask" {
			m.asks.Add(1)
		}
		return false
	})
	loading := make(chan struct{})
	go m.read(m.a, m.first, func(context.Context) (Loaded, error) {
		l := m.reg.load()
		l.MayFill = !m.mayNotFill
		close(loading)
		<-m.goOn
		return l, nil
	})
	<-loading
	go m.read(m.b, m.second, m.reg.loader)
	return m
}

func (m *meeting) read(s *sidecar, got chan<- Value, load func(context.Context) (Loaded, error)) {
	v, err := s.Read(ctxb, m.ref, aMinute, 0, load)
	if err != nil {
		m.t.Error(err)
	}
	got <- v
}

// awaited waits until b's reader has said so in the lease.
func (m *meeting) awaited() {
	m.t.Helper()
	within(m.t, "the second reader waits", func() bool {
		lease, _ := m.db.Get(ctxb, m.ref.Name).Bytes()
		return Kind(lease) == KindLease && lease[awaitedByte]&0x80 != 0
	})
}

func (m *meeting) want(source Source, version int) {
	m.t.Helper()
	v := <-m.second
	wantVersion(m.t, v, nil, version)
	if v.Source != source {
		m.t.Errorf("the second reader's value is %s, want %s", v.Source, source)
	}
	if n := testutil.ToFloat64(m.b.metrics.waiting); n != 0 {
		m.t.Errorf("%v readers wait", n)
	}
}

// published is how many messages the server was ever told to publish.
func (m *meeting) published() int {
	m.t.Helper()
	stats, err := m.db.Info(ctxb, "commandstats").Result()
	if err != nil {
		m.t.Fatal(err)
	}
	n := 0
	_, _ = sscanLine(stats, "cmdstat_publish:calls=%d", &n) // no line: none
	return n
}

// TestAWaitingReaderIsWokenByTheFill guards P5: it asks once, is told, and asks once more.
func TestAWaitingReaderIsWokenByTheFill(t *testing.T) {
	m := meet(t, patient())
	m.awaited()
	if n := testutil.ToFloat64(m.b.metrics.waiting); n != 1 {
		t.Errorf("%v readers wait, want 1", n)
	}
	close(m.goOn)
	m.want(Hit, 0)
	<-m.first
	if m.asks.Load() != 2 || m.reg.loaded() != 1 || testutil.ToFloat64(m.b.metrics.woken) != 1 || testutil.ToFloat64(m.b.metrics.polled) != 0 {
		t.Errorf("%d asks, %d loads, woken %v, polled %v", m.asks.Load(), m.reg.loaded(), testutil.ToFloat64(m.b.metrics.woken), testutil.ToFloat64(m.b.metrics.polled))
	}
	if n := m.published(); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	// Where nobody waits nothing is published.
	v, err := m.a.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:other"}, aMinute, 0, m.reg.loader)
	wantVersion(t, v, err, 0)
	if err := m.a.Write(ctxb, []Ref{m.ref}, m.reg.writer); err != nil {
		t.Fatal(err)
	}
	if n := m.published(); n != 1 {
		t.Errorf("%d messages, want 1 still", n)
	}
}

// TestAWaitingReaderIsWokenByWhateverEndsTheLease: by a release, a write, the loss of the connection.
func TestAWaitingReaderIsWokenByWhateverEndsTheLease(t *testing.T) {
	t.Run("a release", func(t *testing.T) {
		m := meet(t, patient(), func(m *meeting) { m.mayNotFill = true })
		m.awaited()
		close(m.goOn)
		m.want(Filled, 0)
		<-m.first
	})
	t.Run("a write", func(t *testing.T) {
		m := meet(t, patient())
		m.awaited()
		if err := m.a.Write(ctxb, []Ref{m.ref}, m.reg.writer); err != nil {
			t.Fatal(err)
		}
		if v := <-m.second; string(v.Body) != "0" && string(v.Body) != "1" { // it came before the write
			t.Errorf("%q", v.Body)
		}
		close(m.goOn)
		<-m.first
	})
	t.Run("the connection is lost", func(t *testing.T) {
		m := meet(t, patient())
		m.awaited()
		if n, err := m.db.ClientKillByFilter(ctxb, "TYPE", "pubsub").Result(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		within(t, "the second reader asks again and again", func() bool { return m.asks.Load() > 5 })
		close(m.goOn)
		m.want(Hit, 0)
		<-m.first
	})
}

// TestALostWordCostsTheTimeForWaiting: what nobody tells is found when the time for waiting is over.
func TestALostWordCostsTheTimeForWaiting(t *testing.T) {
	cfg := patient()
	cfg.LeaseWait = 2 * time.Second
	m := meet(t, cfg)
	m.awaited()
	now := time.Now()
	m.db.Set(ctxb, m.ref.Name, AppendValue(nil, now, now, []byte("0")), aMinute) // by no script of ours
	m.want(Hit, 0)
	if n := testutil.ToFloat64(m.b.metrics.wakesLost); n != 1 {
		t.Errorf("%v words were counted as lost, want 1", n)
	}
	close(m.goOn)
	<-m.first
}

// TestALeaseIsWaitedForNoLongerThanItLives: its holder may be dead.
func TestALeaseIsWaitedForNoLongerThanItLives(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, patient(), r), admin(t, r)
	db.Set(ctxb, "rs:1.0:k", AppendLease(nil, Token{9}), 300*time.Millisecond)
	v, err := s.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:k"}, aMinute, 0, new(row).loader)
	if err != nil || v.Source != Filled {
		t.Errorf("%s, %v", v.Source, err)
	}
}

// TestAServerThatMayNotBeListenedToIsAsked: the user may have no channels.
func TestAServerThatMayNotBeListenedToIsAsked(t *testing.T) {
	m := meet(t, patient(), func(m *meeting) {
		if err := m.db.Do(ctxb, "ACL", "SETUSER", "mute", "on", ">secret", "~*", "resetchannels", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		config := m.b.config[0]
		config.Username, config.Password = "mute", "secret"
		if err := m.b.servers.Apply([]ServerConfig{config}); err != nil {
			t.Fatal(err)
		}
	})
	within(t, "it asks again and again", func() bool { return m.asks.Load() > 5 })
	close(m.goOn)
	m.want(Hit, 0)
	<-m.first
	if testutil.ToFloat64(m.b.metrics.polled) == 0 || m.published() != 0 {
		t.Errorf("polled %v, %d messages", testutil.ToFloat64(m.b.metrics.polled), m.published())
	}
}

// TestOneConnectionIsListenedTo guards P6: whatever the number of rows that are waited for; and nothing is left of it.
func TestOneConnectionIsListenedTo(t *testing.T) {
	r := realredis.T(t)
	a, b, db := newSidecar(t, patient(), r), newSidecar(t, patient(), r), admin(t, r)
	pubsub := func() (connections int) {
		list, err := db.ClientList(ctxb).Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(list) {
			if strings.Contains(line, "flags=P ") {
				connections++
			}
		}
		return connections
	}
	channels := func() int { return len(db.PubSubChannels(ctxb, "*").Val()) }
	const rows = 40
	items := make([]Item, rows)
	for i := range items {
		items[i] = Item{Ref: Ref{Server: "c1", Name: "rs:1.0:" + strconv.Itoa(i)}, TTL: aMinute}
	}
	goOn := make(chan struct{})
	load := func(_ context.Context, idx []int) ([]Loaded, error) {
		<-goOn
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			out[n] = Loaded{Found: true, Body: fmt.Append(nil, i), MayFill: true}
		}
		return out, nil
	}
	var group sync.WaitGroup
	group.Go(func() { a.ReadMany(ctxb, items, load) })
	within(t, "all have leases", func() bool { return db.DBSize(ctxb).Val() == rows })
	if n := pubsub(); n != 0 {
		t.Errorf("%d connections listen before anybody waits", n)
	}
	for _, half := range [][]Item{items[:rows/2], items[rows/2:], items} {
		group.Go(func() {
			for i, res := range b.ReadMany(ctxb, half, nil) {
				if res.Err != nil || "rs:1.0:"+string(res.Body) != half[i].Ref.Name {
					t.Errorf("%s is %q, %v", half[i].Ref.Name, res.Body, res.Err)
				}
			}
		})
	}
	within(t, "all are waited for", func() bool { return testutil.ToFloat64(b.metrics.waiting) == rows })
	within(t, "each lease has a channel", func() bool { return channels() == (rows+mostAtOnce-1)/mostAtOnce })
	if n := pubsub(); n != 1 {
		t.Errorf("%d connections listen, want 1", n)
	}
	close(goOn)
	group.Wait()
	within(t, "no channel is left", func() bool { return channels() == 0 })
	srv := b.servers.acquire("c1")
	defer b.servers.release(srv)
	within(t, "nothing is kept of it", func() bool {
		srv.listener.mu.Lock()
		defer srv.listener.mu.Unlock()
		return len(srv.listener.topics) == 0
	})
	if n := testutil.ToFloat64(b.metrics.woken); n != rows {
		t.Errorf("%v were woken, want %d", n, rows)
	}
}

// A server that takes connections and says nothing holds up nobody beyond his own time: not who joins behind another one, and not who leaves.
func TestWhoListensDoesNotWaitForOthers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := redis.NewClient(&redis.Options{
		Addr: silent.Addr().String(), DialTimeout: 5 * time.Minute, ReadTimeout: 5 * time.Minute, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
	})
	defer client.Close()
	l := newListener(client, time.Minute)
	first, second := &flight{channel: "1", signal: make(chan struct{}, 1)}, &flight{channel: "2", signal: make(chan struct{}, 1)}
	joined := make(chan error, 1)
	go func() { joined <- l.join(ctxb, []*flight{first}) }()
	within(t, "the first one waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.topics["1"] != nil
	})
	began := time.Now()
	l.leave([]*flight{second}) // which is not there
	ctx, cancel := context.WithTimeout(ctxb, 100*time.Millisecond)
	defer cancel()
	if err := l.join(ctx, []*flight{second}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second one: %v", err)
	}
	if err := <-joined; !errors.Is(err, errNotListening) { // nobody knows what became of the connection
		t.Errorf("the first one: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
