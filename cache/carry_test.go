package cache

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// handOver is a row that changes from server c1 to c2.
type handOver struct {
	*sidecar
	was, is Ref
	from    *redis.Client // c1 and c2, past the sidecar
	to      *redis.Client
	server  *realredis.Server // c1
	row     row
}

// epoch is that of the change.
const epoch = 9

func newHandOver(t *testing.T) *handOver {
	t.Helper()
	c1, c2 := realredis.T(t), realredis.T(t)
	h := &handOver{sidecar: newSidecar(t, patient(), c1, c2), from: admin(t, c1), to: admin(t, c2), server: c1}
	h.was = Ref{Server: "c1", RunID: runIDOf(t, c1), Name: "rs:1.0:user:1"}
	h.is = Ref{Server: "c2", RunID: runIDOf(t, c2), Name: "rs:9.0:user:1"}
	return h
}

// item is the row as a reader in phase active sees it.
func (h *handOver) item() Item {
	return Item{Ref: h.is, TTL: time.Minute, NegTTL: time.Minute, Carry: Carry{Ref: h.was, Shard: "s1", Epoch: epoch, Until: time.Now().Add(time.Hour)}}
}

func (h *handOver) read(t *testing.T) Value {
	t.Helper()
	r := h.ReadMany(ctxb, []Item{h.item()}, func(context.Context, []int) ([]Loaded, error) { return []Loaded{h.row.load()}, nil })[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r.Value
}

// put puts an entry on the former server.
func (h *handOver) put(t *testing.T, entry []byte, life time.Duration) {
	t.Helper()
	if err := h.from.Set(ctxb, h.was.Name, entry, life).Err(); err != nil {
		t.Fatal(err)
	}
}

func valueEntry(version string) []byte {
	return AppendValue(nil, time.UnixMilli(1000), time.UnixMilli(2000), []byte(version))
}

func TestAnEntryIsCarriedAsItIs(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry []byte
		life  time.Duration // on the former server; 0: without end
		least time.Duration // on the new one
		most  time.Duration
		found bool
		body  string
	}{
		{"value", valueEntry("7"), 20 * time.Second, 10 * time.Second, 20 * time.Second, true, "7"},
		{"value that would live longer than is configured now", valueEntry("7"), time.Hour, 50 * time.Second, time.Minute, true, "7"},
		{"value without an end", valueEntry("7"), 0, 50 * time.Second, time.Minute, true, "7"},
		{"empty value", valueEntry(""), time.Minute, 50 * time.Second, time.Minute, true, ""},
		{"absence", AppendAbsent(nil, time.UnixMilli(1000), time.UnixMilli(2000)), 20 * time.Second, 10 * time.Second, 20 * time.Second, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandOver(t)
			h.put(t, c.entry, c.life)
			v := h.read(t)
			if v.Found != c.found || string(v.Body) != c.body || v.Source != Carried {
				t.Errorf("%+v", v)
			}
			if got, err := h.to.Get(ctxb, h.is.Name).Bytes(); err != nil || string(got) != string(c.entry) {
				t.Errorf("on the new server: %q, %v", got, err)
			}
			if life := h.to.PTTL(ctxb, h.is.Name).Val(); life < c.least || life > c.most {
				t.Errorf("it lives for %v, want %v to %v", life, c.least, c.most)
			}
			if v = h.read(t); v.Source != Hit || h.row.loaded() != 0 {
				t.Errorf("then a %s; %d loads", v.Source, h.row.loaded())
			}
			if n := testutil.ToFloat64(h.metrics.carried); n != 1 {
				t.Errorf("carried %v", n)
			}
		})
	}
}

// What the former server cannot or must not give is loaded, and cached in the new place.
func TestWhatIsNotHandedIsLoaded(t *testing.T) {
	for _, c := range []struct {
		name   string
		former func(t *testing.T, h *handOver)
		change func(h *handOver, i *Item)
	}{
		{"nothing there", func(*testing.T, *handOver) {}, nil},
		{"poison", func(t *testing.T, h *handOver) { h.put(t, AppendPoison(nil, Token{1}), time.Minute) }, nil},
		{"a lease", func(t *testing.T, h *handOver) { h.put(t, AppendLease(nil, Token{1}), time.Minute) }, nil},
		{"no entry at all", func(t *testing.T, h *handOver) { h.put(t, []byte("V"), time.Minute) }, nil},
		{"another type", func(t *testing.T, h *handOver) { h.from.HSet(ctxb, h.was.Name, "a", "b") }, nil},
		{"a broken marker", func(t *testing.T, h *handOver) {
			h.put(t, valueEntry("77"), time.Minute)
			h.from.HSet(ctxb, closedMarker("s1"), "a", "b")
		}, nil},
		{"closed for this change", func(t *testing.T, h *handOver) {
			h.put(t, valueEntry("77"), time.Minute)
			if err := h.servers.CloseFor(ctxb, "c1", h.was.RunID, "s1", epoch); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"closed for a later one", func(t *testing.T, h *handOver) {
			h.put(t, valueEntry("77"), time.Minute)
			if err := h.servers.CloseFor(ctxb, "c1", h.was.RunID, "s1", epoch+1); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"dead", func(t *testing.T, h *handOver) {
			if err := h.server.Kill(); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"restarted", func(t *testing.T, h *handOver) {
			if err := h.server.Restart(ctxb); err != nil {
				t.Fatal(err)
			}
			h.put(t, valueEntry("77"), time.Minute)
		}, nil},
		{"another incarnation than the one meant", func(t *testing.T, h *handOver) { h.put(t, valueEntry("77"), time.Minute) },
			func(_ *handOver, i *Item) { i.Carry.Ref.RunID = "another" }},
		{"an unknown server", func(t *testing.T, h *handOver) {}, func(_ *handOver, i *Item) { i.Carry.Ref.Server = "c9" }},
		{"too late", func(t *testing.T, h *handOver) { h.put(t, valueEntry("77"), time.Minute) },
			func(_ *handOver, i *Item) { i.Carry.Until = time.Now().Add(-time.Millisecond) }},
		{"an absence, which is not cached any more", func(t *testing.T, h *handOver) {
			h.put(t, AppendAbsent(nil, time.Now(), time.Now()), time.Minute)
		}, func(_ *handOver, i *Item) { i.NegTTL = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandOver(t)
			h.row.commit()
			c.former(t, h)
			item := h.item()
			if c.change != nil {
				c.change(h, &item)
			}
			r := h.ReadMany(ctxb, []Item{item}, func(context.Context, []int) ([]Loaded, error) { return []Loaded{h.row.load()}, nil })[0]
			wantVersion(t, r.Value, r.Err, 1)
			if r.Source != Filled {
				t.Errorf("it was %s", r.Source)
			}
			if got, err := h.to.Get(ctxb, h.is.Name).Bytes(); err != nil || Kind(got) != KindValue || string(Body(got)) != "1" {
				t.Errorf("on the new server: %q, %v", got, err)
			}
		})
	}
}

// An earlier closing, or that of another shard, closes nothing.
func TestOnlyThisChangeAndShardAreClosed(t *testing.T) {
	h := newHandOver(t)
	h.put(t, valueEntry("7"), time.Minute)
	for _, c := range []struct {
		shard string
		epoch uint64
	}{{"s1", epoch - 1}, {"s2", epoch}, {"s1", epoch - 2}} {
		if err := h.servers.CloseFor(ctxb, "c1", h.was.RunID, c.shard, c.epoch); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.from.Get(ctxb, closedMarker("s1")).Val(); got != fmt.Sprint(epoch-1) {
		t.Errorf("the marker went back to %s", got)
	}
	if v := h.read(t); v.Source != Carried {
		t.Errorf("it was %s", v.Source)
	}
	if life := h.from.PTTL(ctxb, closedMarker("s1")).Val(); life < closedFor/2 || life > closedFor {
		t.Errorf("the marker lives for %v", life)
	}
}

// Guards P3. A write that comes between the former server's answer and the fill takes the lease away: what was handed is not put, and who comes
// after the write sees it.
func TestAWriteBetweenHandAndFill(t *testing.T) {
	h := newHandOver(t)
	h.put(t, valueEntry("0"), time.Minute)
	other := newSidecarLike(t, h.sidecar)
	var once atomic.Bool
	h.after("c1", func(cmd redis.Cmder) {
		if stepOf(h.Cache, cmd) == "hand" && once.CompareAndSwap(false, true) {
			if err := other.Write(ctxb, []Ref{h.was, h.is}, h.row.writer); err != nil {
				t.Error(err)
			}
		}
	})
	if v := h.read(t); string(v.Body) != "0" { // it began before the write was acknowledged
		t.Errorf("the read that was overtaken: %q", v.Body)
	}
	if !once.Load() {
		t.Fatal("nothing was handed")
	}
	if n := h.to.Exists(ctxb, h.is.Name).Val(); n != 0 {
		t.Error("what a write has overtaken was put")
	}
	wantVersion(t, h.read(t), nil, 1)
	if n := testutil.ToFloat64(h.metrics.carried); n != 0 {
		t.Errorf("carried %v", n)
	}
}

// Guards P3. A reader that comes while such an overtaken flight is under way, after the write, is not given its value.
func TestWhoComesAfterTheWriteIsNotGivenWhatWasHandedBefore(t *testing.T) {
	h := newHandOver(t)
	h.put(t, valueEntry("0"), time.Minute)
	other := newSidecarLike(t, h.sidecar)
	late := make(chan Result, 1)
	var once atomic.Bool
	h.after("c1", func(cmd redis.Cmder) {
		if stepOf(h.Cache, cmd) != "hand" || !once.CompareAndSwap(false, true) {
			return
		}
		if err := other.Write(ctxb, []Ref{h.was, h.is}, h.row.writer); err != nil {
			t.Error(err)
		}
		joined := testutil.ToFloat64(h.metrics.coalesced)
		go func() {
			late <- h.ReadMany(ctxb, []Item{h.item()}, func(context.Context, []int) ([]Loaded, error) { return []Loaded{h.row.load()}, nil })[0]
		}()
		for end := time.Now().Add(aMinute); testutil.ToFloat64(h.metrics.coalesced) == joined && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	})
	h.read(t)
	r := <-late
	wantVersion(t, r.Value, r.Err, 1)
}

// Guards P3. The server is closed, and a writer then leaves it alone, while a reader is on its way there: nothing old comes across.
func TestClosingBetweenAskAndHand(t *testing.T) {
	h := newHandOver(t)
	h.put(t, valueEntry("0"), time.Minute)
	other := newSidecarLike(t, h.sidecar)
	var once atomic.Bool
	h.after("c2", func(cmd redis.Cmder) {
		if stepOf(h.Cache, cmd) == "ask" && once.CompareAndSwap(false, true) {
			if err := other.servers.CloseFor(ctxb, "c1", h.was.RunID, "s1", epoch); err != nil {
				t.Error(err)
			}
			if err := other.Write(ctxb, []Ref{h.is}, h.row.writer); err != nil { // by a view of phase done
				t.Error(err)
			}
		}
	})
	wantVersion(t, h.read(t), nil, 1)
	if n := testutil.ToFloat64(h.metrics.carryRefused); n != 1 {
		t.Errorf("refused %v", n)
	}
	wantVersion(t, h.read(t), nil, 1)
}

// A read of many rows asks each former server once, takes what is there and loads the rest in one go.
func TestManyRowsFromSeveralFormerServers(t *testing.T) {
	c1, c2, c3 := realredis.T(t), realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), c1, c2, c3)
	var asked [2]atomic.Int64
	for i := range asked {
		s.after(fmt.Sprintf("c%d", i+1), func(cmd redis.Cmder) {
			if stepOf(s.Cache, cmd) == "hand" {
				asked[i].Add(1)
			}
		})
	}
	const rows = 300
	var items []Item
	for i := range rows {
		from := i%2 + 1
		was := Ref{Server: fmt.Sprintf("c%d", from), Name: fmt.Sprintf("rs:1.0:%d", i)}
		items = append(items, Item{
			Ref: Ref{Server: "c3", Name: fmt.Sprintf("rs:9.0:%d", i)}, TTL: time.Minute,
			Carry: Carry{Ref: was, Shard: "s1", Epoch: epoch, Until: time.Now().Add(time.Hour)},
		})
		if i%3 > 0 {
			if err := admin(t, []*realredis.Server{c1, c2}[from-1]).Set(ctxb, was.Name, valueEntry(fmt.Sprint(i)), time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var calls, loaded atomic.Int64
	for i, r := range s.ReadMany(ctxb, items, func(_ context.Context, idx []int) ([]Loaded, error) {
		calls.Add(1)
		loaded.Add(int64(len(idx)))
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			out[n] = Loaded{Found: true, Body: fmt.Append(nil, i), MayFill: true}
		}
		return out, nil
	}) {
		want := Carried
		if i%3 == 0 {
			want = Filled
		}
		if r.Err != nil || string(r.Body) != fmt.Sprint(i) || r.Source != want {
			t.Fatalf("row %d: %q, %s, %v", i, r.Body, r.Source, r.Err)
		}
	}
	if calls.Load() != 1 || loaded.Load() != rows/3 {
		t.Errorf("%d calls of load for %d rows", calls.Load(), loaded.Load())
	}
	if a, b := asked[0].Load(), asked[1].Load(); a != 1 || b != 1 {
		t.Errorf("the former servers were asked %d and %d times", a, b)
	}
	if n := admin(t, c3).DBSize(ctxb).Val(); n != rows {
		t.Errorf("%d entries on the new server", n)
	}
}

func TestOneClaimsAFormerServerAtATime(t *testing.T) {
	h := newHandOver(t)
	claim := func(token string, life time.Duration) Claim {
		t.Helper()
		c, err := h.servers.Claim(ctxb, "c1", h.was.RunID, "s1", epoch, token, life, false)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if a, b, again := claim("a", time.Minute), claim("b", time.Minute), claim("a", 50*time.Millisecond); a != ClaimOurs || b != ClaimOthers || again != ClaimOurs {
		t.Errorf("%v, %v, %v", a, b, again)
	}
	carriedFrom := func(token string) {
		t.Helper()
		if err := h.servers.CarriedFrom(ctxb, "c1", h.was.RunID, "s1", epoch, token); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the claim lapses", func() bool { return claim("b", time.Minute) == ClaimOurs })
	carriedFrom("a") // whose claim has lapsed
	if a, b := claim("a", time.Minute), claim("b", time.Minute); a != ClaimOthers || b != ClaimOurs {
		t.Errorf("%v, %v", a, b)
	}
	carriedFrom("b")
	if a, b := claim("a", time.Minute), claim("b", time.Minute); a != ClaimCarried || b != ClaimCarried {
		t.Errorf("after the first time through it: %v, %v", a, b)
	}
	again, err := h.servers.Claim(ctxb, "c1", h.was.RunID, "s1", epoch, "a", time.Minute, true)
	if b := claim("b", time.Minute); err != nil || again != ClaimOurs || b != ClaimOthers {
		t.Errorf("for the second time through it: %v, %v; %v", again, err, b)
	}
	carriedFrom("a")
	later, err := h.servers.Claim(ctxb, "c1", h.was.RunID, "s1", epoch+1, "b", time.Minute, false)
	if err != nil || later != ClaimOurs {
		t.Errorf("for a later change: %v, %v", later, err)
	}
	if err := h.servers.CloseFor(ctxb, "c1", h.was.RunID, "s1", epoch); err != nil {
		t.Fatal(err)
	}
	if a, b := claim("a", time.Minute), claim("b", time.Minute); a != ClaimClosed || b != ClaimClosed {
		t.Errorf("after closing: %v, %v", a, b)
	}
	_, err = h.servers.Claim(ctxb, "c1", "another", "s1", epoch, "a", time.Minute, true)
	if err == nil || !strings.Contains(err.Error(), "run_id") {
		t.Errorf("on another incarnation: %v", err)
	}
	if err := h.servers.CloseFor(ctxb, "c9", "", "s1", epoch); err == nil {
		t.Error("an unknown server was closed")
	}
}

func TestScanFindsAllEntriesAndNothingElse(t *testing.T) {
	h := newHandOver(t)
	for i := range 3000 {
		h.from.Set(ctxb, fmt.Sprintf("rs:1.0:user:%d", i), "x", 0)
		h.from.Set(ctxb, fmt.Sprintf("plain:%d", i), "x", 0)
	}
	found := map[string]bool{}
	for cursor := uint64(0); ; {
		names, next, err := h.servers.Scan(ctxb, "c1", h.was.RunID, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			g, f, key, ok := ParseName(name)
			if !ok || g != 1 || f != 0 || !strings.HasPrefix(key, "user:") {
				t.Fatalf("%s: %d, %d, %s, %v", name, g, f, key, ok)
			}
			found[key] = true
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if len(found) != 3000 {
		t.Errorf("%d entries", len(found))
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string]string{
		"rs:12.3:user:1": "12 3 user:1 true", "rs:0.0:": "0 0  true", "rs:ring": "0 0  false", "rs:closed:s1": "0 0  false", "rs:1:user": "0 0  false",
		"rs:1.x:user": "0 0  false", "rs:-1.0:user": "0 0  false", "user:1": "0 0  false", "1.0:user": "0 0  false", "rs:1.0": "0 0  false",
	} {
		g, f, key, ok := ParseName(name)
		if got := fmt.Sprint(g, " ", f, " ", key, " ", ok); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
