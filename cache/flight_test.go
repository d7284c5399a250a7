package cache

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// lateJoiner lets a flight of sidecar a get as far as a load, which reads the row; then a write through b is acknowledged; then a
// second reader comes to a, while the load's answer is still on its way. It returns what the second reader got.
func lateJoiner(t *testing.T, a, b *sidecar, ref Ref, reg *row, mayFill bool) Value {
	t.Helper()
	loaded, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan Value, 1)
	go func() {
		v, err := a.Read(ctxb, ref, aMinute, 0, func(context.Context) (Loaded, error) {
			l := reg.load()
			l.MayFill = mayFill
			close(loaded)
			<-goOn
			return l, nil
		})
		if err != nil {
			t.Error(err)
		}
		first <- v
	}()
	<-loaded
	if err := b.Write(ctxb, []Ref{{Server: ref.Server, Name: "rs:1.0:k"}}, reg.writer); err != nil {
		t.Fatal(err)
	}
	second := make(chan Value, 1)
	joined := testutil.ToFloat64(a.metrics.coalesced)
	go func() {
		v, err := a.Read(ctxb, ref, aMinute, 0, reg.loader)
		if err != nil {
			t.Error(err)
		}
		second <- v
	}()
	within(t, "the second reader joins", func() bool { return testutil.ToFloat64(a.metrics.coalesced) > joined })
	close(goOn)
	if v := <-first; string(v.Body) != "0" {
		t.Errorf("first reader got %q", v.Body)
	}
	return <-second
}

// TestNobodyIsGivenALoadThatIsOlderThanHisCall guards P3 within a flight (I5): each way in which a load ends without proof.
func TestNobodyIsGivenALoadThatIsOlderThanHisCall(t *testing.T) {
	r := realredis.T(t)
	db := admin(t, r)
	for name, tc := range map[string]struct {
		ref     Ref
		before  []byte // what the first reader finds
		mayFill bool
	}{
		"the write took the lease":     {Ref{Server: "c1", Name: "rs:1.0:k"}, nil, true},
		"the load went past a lease":   {Ref{Server: "c1", Name: "rs:1.0:k"}, AppendLease(nil, Token{9}), true},
		"the load went past poison":    {Ref{Server: "c1", Name: "rs:1.0:k"}, AppendPoison(nil, Token{9}), true},
		"the shard had another view":   {Ref{Server: "c1", Name: "rs:0.0:k"}, nil, false},
		"the server cannot be reached": {Ref{Server: "c2", Name: "rs:1.0:k"}, nil, true},
	} {
		for _, rule := range []bool{true, false} {
			reg := new(row)
			a, b := newSidecar(t, testConfig(), r), newSidecar(t, testConfig(), r)
			if tc.ref.Server == "c2" { // a cannot reach what b can
				conf := b.config[0]
				conf.Name = "c2"
				if err := b.servers.Apply([]ServerConfig{conf}); err != nil {
					t.Fatal(err)
				}
			}
			if !rule {
				a.serves = func(_, _ uint64) bool { return true }
			}
			db.Del(ctxb, "rs:1.0:k", "rs:0.0:k")
			if tc.before != nil {
				db.Set(ctxb, tc.ref.Name, tc.before, aMinute)
			}
			v := lateJoiner(t, a, b, tc.ref, reg, tc.mayFill)
			switch got := string(v.Body); {
			case rule && got != "1":
				t.Errorf("%s: a reader that came after the write got version %s", name, got)
			case !rule && got != "0":
				t.Errorf("%s: without the rule the reader should have got the old version, got %s", name, got)
			}
		}
	}
}

// TestNobodyIsGivenAFillThatIsOlderThanHisCall: the fill has been done, its answer is on its way; then comes the write, then a reader.
func TestNobodyIsGivenAFillThatIsOlderThanHisCall(t *testing.T) {
	r := realredis.T(t)
	for _, rule := range []bool{true, false} {
		for _, step := range []string{"fill", "ask"} {
			reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:k"}
			a, b := newSidecar(t, testConfig(), r), newSidecar(t, testConfig(), r)
			if !rule {
				a.serves = func(_, _ uint64) bool { return true }
			}
			admin(t, r).Del(ctxb, ref.Name)
			if step == "ask" { // which then finds a value
				if _, err := b.Read(ctxb, ref, aMinute, 0, reg.loader); err != nil {
					t.Fatal(err)
				}
			}
			done, goOn := make(chan struct{}), make(chan struct{})
			armed := true
			a.after("c1", func(cmd redis.Cmder) {
				if armed && stepOf(a.Cache, cmd) == step {
					armed = false
					close(done)
					<-goOn
				}
			})
			first := make(chan Value, 1)
			go func() {
				v, err := a.Read(ctxb, ref, aMinute, 0, reg.loader)
				if err != nil {
					t.Error(err)
				}
				first <- v
			}()
			<-done
			if err := b.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
				t.Fatal(err)
			}
			second := make(chan Value, 1)
			go func() {
				v, _ := a.Read(ctxb, ref, aMinute, 0, reg.loader)
				second <- v
			}()
			within(t, "the second reader joins", func() bool { return testutil.ToFloat64(a.metrics.coalesced) == 1 })
			close(goOn)
			<-first
			want := "1"
			if !rule {
				want = "0"
			}
			if v := <-second; string(v.Body) != want {
				t.Errorf("%s, rule %v: a reader that came after the write got version %s", step, rule, v.Body)
			}
		}
	}
}

// TestLocalWriteDetachesTheFlight: who reads after a write does not wait for a load from before it (and would get it too late).
func TestLocalWriteDetachesTheFlight(t *testing.T) {
	s := newSidecar(t, testConfig(), realredis.T(t))
	ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
	loaded, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan Value, 1)
	go func() {
		v, err := s.Read(ctxb, ref, aMinute, 0, func(context.Context) (Loaded, error) {
			l := reg.load()
			close(loaded)
			<-goOn
			return l, nil
		})
		if err != nil {
			t.Error(err)
		}
		first <- v
	}()
	<-loaded
	if err := s.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
		t.Fatal(err)
	}
	v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader) // while the old load hangs
	wantVersion(t, v, err, 1)
	close(goOn)
	if v := <-first; v.Source != Bypassed {
		t.Errorf("the overtaken reader: %s", v.Source)
	}
	v, err = s.Read(ctxb, ref, aMinute, 0, reg.loader)
	wantVersion(t, v, err, 1)
	if v.Source != Hit {
		t.Errorf("afterwards: %s", v.Source)
	}
}

func TestErrorsAreNotGivenToLateCallers(t *testing.T) {
	s := newSidecar(t, testConfig(), realredis.T(t))
	ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
	loading, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := s.Read(ctxb, ref, aMinute, 0, func(context.Context) (Loaded, error) {
			close(loading)
			<-goOn
			return Loaded{}, errors.New("my map was old")
		})
		first <- err
	}()
	<-loading
	second := make(chan Value, 1)
	go func() {
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		if err != nil {
			t.Error(err)
		}
		second <- v
	}()
	within(t, "the second reader joins", func() bool { return testutil.ToFloat64(s.metrics.coalesced) == 1 })
	close(goOn)
	if <-first == nil {
		t.Error("no error")
	}
	if v := <-second; string(v.Body) != "0" {
		t.Errorf("second got %q", v.Body)
	}
}
