package cache

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringside/internal/realredis"
)

const aMinute = time.Minute

// TestColdReadersLoadOnce guards P5, in one sidecar and in two.
func TestColdReadersLoadOnce(t *testing.T) {
	r := realredis.T(t)
	a, b := newSidecar(t, patient(), r), newSidecar(t, patient(), r)
	for name, sides := range map[string][]*sidecar{"one": {a}, "two": {a, b}} {
		reg := new(row)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				v, err := sides[i%len(sides)].Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:" + name}, aMinute, 0, func(context.Context) (Loaded, error) {
					time.Sleep(20 * time.Millisecond)
					return reg.load(), nil
				})
				if err != nil || string(v.Body) != "0" {
					t.Errorf("%q, %v", v.Body, err)
				}
			})
		}
		wg.Wait()
		if n := reg.loaded(); n != 1 {
			t.Errorf("%s sidecar(s): %d loads", name, n)
		}
	}
}

func TestFirstCallersCancelFailsNobodyElse(t *testing.T) {
	s := newSidecar(t, testConfig(), realredis.T(t))
	ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
	loading, goOn := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(ctxb)
	first := make(chan error)
	go func() {
		_, err := s.Read(ctx, ref, aMinute, 0, func(ctx context.Context) (Loaded, error) {
			close(loading)
			<-goOn
			return reg.load(), ctx.Err()
		})
		first <- err
	}()
	<-loading
	second := make(chan Value)
	go func() {
		v, err := s.Read(ctxb, ref, aMinute, 0, func(context.Context) (Loaded, error) { return Loaded{}, errors.New("loaded twice") })
		if err != nil {
			t.Error(err)
		}
		second <- v
	}()
	within(t, "the second joins", func() bool { return testutil.ToFloat64(s.metrics.coalesced) == 1 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	close(goOn)
	if v := <-second; string(v.Body) != "0" || v.Source != Coalesced {
		t.Errorf("second: %q, %s", v.Body, v.Source)
	}
}

func TestReadManyKeepsOrderAndLoadsTogether(t *testing.T) {
	r1, r2 := realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), r1, r2)
	var items []Item
	for i := range 60 {
		server := "c" + strconv.Itoa(1+i%2)
		items = append(items, Item{Ref: Ref{Server: server, Name: "rs:1.0:" + strconv.Itoa(i%50)}, TTL: aMinute, NegTTL: aMinute}) // ten come twice
	}
	var loads, rows atomic.Int32
	failing := errors.New("this row's shard is down")
	load := func(_ context.Context, idx []int) ([]Loaded, error) {
		loads.Add(1)
		rows.Add(int32(len(idx)))
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			switch i % 50 {
			case 7:
				out[n] = Loaded{MayFill: true} // no such row
			case 8:
				out[n] = Loaded{Err: failing}
			default:
				out[n] = Loaded{Found: true, Body: []byte(strconv.Itoa(i % 50)), MayFill: true}
			}
		}
		return out, nil
	}
	for round, want := range []struct{ loads, rows int32 }{{1, 50}, {2, 51}} { // the row that failed is loaded again
		results := s.ReadMany(ctxb, items, load)
		for i, res := range results {
			switch i % 50 {
			case 7:
				if res.Err != nil || res.Found {
					t.Errorf("%d: %+v", i, res)
				}
			case 8:
				if !errors.Is(res.Err, failing) {
					t.Errorf("%d: %+v", i, res)
				}
			default:
				if res.Err != nil || string(res.Body) != strconv.Itoa(i%50) {
					t.Errorf("%d: %+v", i, res)
				}
			}
		}
		if loads.Load() != want.loads || rows.Load() != want.rows {
			t.Errorf("round %d: %d loads of %d rows, want %+v", round, loads.Load(), rows.Load(), want)
		}
	}
	if s.ReadMany(ctxb, nil, load) != nil {
		t.Error("results of nothing")
	}
}

func TestReadOfEachEntry(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	now := time.Now()
	for _, tc := range []struct {
		why    string
		entry  []byte
		source Source
		body   string
		after  EntryKind
	}{
		{"a hit", AppendValue(nil, now, now, []byte("cached")), Hit, "cached", KindValue},
		{"a negative hit", AppendAbsent(nil, now, now), Hit, "", KindAbsent},
		{"a lease that nobody fills", AppendLease(nil, Token{9}), Bypassed, "0", KindLease},
		{"poison", AppendPoison(nil, Token{9}), Bypassed, "0", KindPoison},
		{"malformed", []byte("what is this"), Filled, "0", KindValue},
		{"empty", []byte{}, Filled, "0", KindValue},
	} {
		db.Set(ctxb, "rs:1.0:k", tc.entry, aMinute)
		v, err := s.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:k"}, aMinute, 0, new(row).loader)
		if err != nil || v.Source != tc.source || string(v.Body) != tc.body || v.Found != (tc.body != "") {
			t.Errorf("%s: %q %s %v", tc.why, v.Body, v.Source, err)
		}
		if b, _ := db.Get(ctxb, "rs:1.0:k").Bytes(); Kind(b) != tc.after {
			t.Errorf("%s: left %q", tc.why, b)
		}
	}
	db.Del(ctxb, "rs:1.0:k")
	db.LPush(ctxb, "rs:1.0:k", "x")
	v, err := s.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:k"}, aMinute, 0, new(row).loader)
	if err != nil || v.Source != Filled {
		t.Errorf("another type: %s, %v", v.Source, err)
	}
	if n := testutil.ToFloat64(s.metrics.malformed); n != 3 {
		t.Errorf("%v malformed entries were counted", n)
	}
}

func TestLeaseOfADeadReaderExpires(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, patient(), r), admin(t, r)
	db.Set(ctxb, "rs:1.0:k", AppendLease(nil, Token{9}), 100*time.Millisecond)
	v, err := s.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:k"}, aMinute, 0, new(row).loader)
	if err != nil || v.Source != Filled {
		t.Errorf("%s, %v", v.Source, err)
	}
}

func TestWhatIsNotCachedGivesTheLeaseBack(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	for _, tc := range []struct {
		why         string
		ttl, negTTL time.Duration
		loaded      Loaded
		err         error
	}{
		{"the shard was at another view", aMinute, aMinute, Loaded{Found: true, Body: []byte("x")}, nil},
		{"absences are not cached", aMinute, 0, Loaded{MayFill: true}, nil},
		{"rows are not cached", 0, aMinute, Loaded{Found: true, Body: []byte("x"), MayFill: true}, nil},
		{"the load failed", aMinute, aMinute, Loaded{}, errors.New("shard is down")},
		{"the row failed", aMinute, aMinute, Loaded{Err: errors.New("shard is down")}, nil},
	} {
		v, err := s.Read(ctxb, Ref{Server: "c1", Name: "rs:1.0:k"}, tc.ttl, tc.negTTL, func(context.Context) (Loaded, error) { return tc.loaded, tc.err })
		if failed := tc.err != nil || tc.loaded.Err != nil; (err != nil) != failed || v.Found != tc.loaded.Found || !failed && v.Source != Bypassed {
			t.Errorf("%s: %+v, %v", tc.why, v, err)
		}
		if db.Exists(ctxb, "rs:1.0:k").Val() != 0 {
			t.Errorf("%s: something is left", tc.why)
		}
	}
}

func TestLifeIsJitteredAndNeverLonger(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	lives := make(map[time.Duration]bool)
	for i := range 30 {
		ref := Ref{Server: "c1", Name: "rs:1.0:" + strconv.Itoa(i)}
		if _, err := s.Read(ctxb, ref, 10_000*time.Second, 1000*time.Second, func(context.Context) (Loaded, error) {
			return Loaded{Found: i%2 == 0, MayFill: true}, nil
		}); err != nil {
			t.Fatal(err)
		}
		limit := 10_000 * time.Second
		if i%2 == 1 {
			limit = 1000 * time.Second
		}
		left := db.PTTL(ctxb, ref.Name).Val()
		if left > limit || left < limit*88/100 {
			t.Errorf("entry lives %v of %v", left, limit)
		}
		lives[left.Truncate(10*time.Millisecond)] = true
		b, _ := db.Get(ctxb, ref.Name).Bytes()
		if e, err := Decode(b); err != nil || !e.SoftExpires.After(time.Now()) || e.SoftExpires.After(time.Now().Add(left)) {
			t.Errorf("soft expiry %v, %v", e.SoftExpires, err)
		}
	}
	if len(lives) < 10 {
		t.Errorf("only %d different lives", len(lives))
	}
}

func TestReadWithoutAServer(t *testing.T) {
	s := newSidecar(t, testConfig())
	for _, ref := range []Ref{{}, {Server: "c9", Name: "rs:1.0:k"}} {
		reg := new(row)
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, 0)
		if v.Source != Bypassed || reg.loaded() != 1 {
			t.Errorf("%+v: %s, %d loads", ref, v.Source, reg.loaded())
		}
	}
}

func TestLoadThatBreaksItsRuleIsAnError(t *testing.T) {
	s := newSidecar(t, testConfig(), realredis.T(t))
	for _, res := range s.ReadMany(ctxb, []Item{{Ref: Ref{Server: "c1", Name: "a"}}, {Ref: Ref{Server: "c1", Name: "b"}}},
		func(context.Context, []int) ([]Loaded, error) { return make([]Loaded, 1), nil }) {
		if !errors.Is(res.Err, errLoadShort) {
			t.Errorf("%+v", res)
		}
	}
}

func TestCloseEndsReads(t *testing.T) {
	s := newSidecar(t, testConfig(), realredis.T(t))
	loading := make(chan struct{})
	got := make(chan error)
	go func() {
		_, err := s.Read(ctxb, Ref{Server: "c1", Name: "k"}, aMinute, 0, func(ctx context.Context) (Loaded, error) {
			close(loading)
			<-ctx.Done()
			return Loaded{}, ctx.Err()
		})
		got <- err
	}()
	<-loading
	s.Close()
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Errorf("under way: %v", err)
	}
	if _, err := s.Read(ctxb, Ref{Server: "c1", Name: "k"}, aMinute, 0, new(row).loader); !errors.Is(err, ErrClosed) {
		t.Errorf("later: %v", err)
	}
}

func TestEndedContextFailsOnlyWhatIsMissing(t *testing.T) {
	s := newSidecar(t, testConfig(), realredis.T(t))
	wantValue := func(r Result) bool { return r.Err == nil && string(r.Body) == "0" }
	if _, err := s.Read(ctxb, Ref{Server: "c1", Name: "warm"}, aMinute, 0, new(row).loader); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctxb)
	release := make(chan struct{})
	results := s.ReadMany(ctx, []Item{{Ref: Ref{Server: "c1", Name: "warm"}, TTL: aMinute}, {Ref: Ref{Server: "c1", Name: "cold"}, TTL: aMinute}},
		func(context.Context, []int) ([]Loaded, error) {
			cancel()
			<-release
			return []Loaded{{}}, nil
		})
	close(release)
	if !wantValue(results[0]) || !errors.Is(results[1].Err, context.Canceled) {
		t.Errorf("%+v", results)
	}
	if r := s.ReadMany(ctx, []Item{{Ref: Ref{Server: "c1", Name: "warm"}}}, nil); !errors.Is(r[0].Err, context.Canceled) {
		t.Errorf("with an ended context: %+v", r)
	}
}

// TestWaitingForOthersGoesOnBesideALoad: an item that another sidecar fills is there as soon as that one has filled it, not when the
// load of other items in the same call has ended.
func TestWaitingForOthersGoesOnBesideALoad(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, patient(), r), admin(t, r)
	theirs := Ref{Server: "c1", Name: "rs:1.0:theirs"}
	lease := AppendLease(nil, Token{9})
	db.Set(ctxb, theirs.Name, lease, aMinute)
	items := []Item{{Ref: Ref{Server: "c1", Name: "rs:1.0:ours"}, TTL: aMinute}, {Ref: theirs, TTL: aMinute}}
	results := s.ReadMany(ctxb, items, func(_ context.Context, idx []int) ([]Loaded, error) {
		if len(idx) != 1 || idx[0] != 0 {
			t.Errorf("asked for %v", idx)
		}
		now := time.Now()
		err := db.Eval(ctxb, s.scripts.fill.source, []string{theirs.Name}, lease, AppendValue(nil, now, now, []byte("theirs")), 60000, awaited(lease)).Err()
		if err != nil {
			t.Error(err)
		}
		for end := now.Add(aMinute); testutil.ToFloat64(s.metrics.hits) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Error("the other item is not there while this one is loaded")
				break
			}
		}
		return []Loaded{new(row).load()}, nil
	})
	if results[0].Source != Filled || results[1].Source != Hit || string(results[1].Body) != "theirs" {
		t.Errorf("%+v", results)
	}
}
