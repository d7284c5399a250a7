package loadtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ringside/internal/realredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// textPlan is a short load of plain keys.
func textPlan() Plan {
	p := DefaultPlan()
	p.Rate, p.Duration, p.Connections, p.Keys, p.Reads, p.Text, p.Pattern, p.Timeout = 500, 2*time.Second, 6, 50, 0.8, true, "k:{n}", 20*time.Second
	return p
}

// A server that stands still for a while delays all requests that were due meanwhile, each by what was left of it.
func TestLatencyCountsFromWhenRequestsWereDue(t *testing.T) {
	t.Parallel()
	s, err := realredis.Start(t.Context(), realredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	plan := textPlan()
	plan.Warm = true
	var lines []Second
	events := []Event{{At: 500 * time.Millisecond, Name: "a pause", Do: func(context.Context) error {
		if err := s.Pause(); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // it is what is measured
		return s.Resume()
	}}}
	target := Target{Name: "redis", Addrs: []string{s.Addr()}, CountFound: true, HitsFrom: "values found",
		Warm: func(ctx context.Context) error { return fill(ctx, []string{s.Addr()}, "", plan) }}
	r, err := Run(t.Context(), target, plan, events, func(s Second) { lines = append(lines, s) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 1000 || r.Failed != 0 || r.All.Count != 1000 || r.HitRatio != 1 || r.ShardReads != -1 {
		t.Errorf("%+v", r)
	}
	// 250 of 1000 were due in the pause, evenly: a tenth of all waited for 0.3 s and more.
	if least := (290 * time.Millisecond).Microseconds(); r.All.P90 < least {
		t.Errorf("p90 is %d us, want %d and more", r.All.P90, least)
	}
	if r.Check.Reads != r.Reads || r.Check.Stale+r.Check.Lost+r.Check.Back != 0 {
		t.Errorf("%+v", r.Check)
	}
	if len(lines) < 1 || len(r.Seconds) != 2 || r.Seconds[0].Requests != 500 || r.Seconds[1].HitRatio != 1 {
		t.Errorf("%d lines of progress, seconds %+v", len(lines), r.Seconds)
	}
}

// Requests that a lost connection takes with it, and those that are due while there is none, fail; the rest is answered.
func TestALostServerIsAccountedFor(t *testing.T) {
	t.Parallel()
	s, err := realredis.Start(t.Context(), realredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	plan := textPlan()
	plan.Poisson, plan.Batch, plan.Pipeline, plan.Duration = true, 5*time.Millisecond, 3, 4*time.Second
	events := []Event{
		{At: 300 * time.Millisecond, Name: "kill", Do: func(context.Context) error { return s.Kill() }},
		{At: 600 * time.Millisecond, Name: "restart", Do: s.Restart},
	}
	r, err := Run(t.Context(), Target{Name: "redis", Addrs: []string{s.Addr()}}, plan, events, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Errors[kindUnconnected] + r.Errors[kindClosed]; n == 0 || n != r.Failed || r.All.Count+r.Failed != r.Requests {
		t.Errorf("%d requests, %d answered, errors %v", r.Requests, r.All.Count, r.Errors)
	}
	if r.Check.Stale != 0 { // values are lost, and that is said, but none is older
		t.Errorf("%+v", r.Check)
	}
	if last := r.Seconds[len(r.Seconds)-1]; last.Failed == last.Requests {
		t.Errorf("nothing was answered after the restart: %+v", last)
	}
}

// forgetful acknowledges every SET and answers every GET with what the first one said.
func forgetful(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		serving.Wait()
	})
	answer := func(c net.Conn) {
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			switch {
			case strings.HasPrefix(line, "GET"):
				_, _ = fmt.Fprint(c, "$4\r\nv1 x\r\n")
			case strings.HasPrefix(line, "SET"):
				_, _ = fmt.Fprint(c, "+OK\r\n")
			}
		}
	}
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { answer(c) })
		}
	})
	return l.Addr().String()
}

func TestOldValuesAreFound(t *testing.T) {
	t.Parallel()
	plan := textPlan()
	plan.Duration, plan.Reads = time.Second, 0.5
	r, err := Run(t.Context(), Target{Name: "forgetful", Addrs: []string{forgetful(t)}}, plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Check.Stale == 0 || len(r.Check.Examples) == 0 || r.Check.Examples[0].Read != 1 || r.Check.Examples[0].Acked <= 1 {
		t.Errorf("%+v", r.Check)
	}
	report := NewReport("x", plan)
	report.Add(r)
	if report.Violations() != 0 {
		t.Error("a target that promises nothing makes the run fail")
	}
	if r.Judged = true; report.Violations() != r.Check.Stale {
		t.Errorf("%d violations, want %d", report.Violations(), r.Check.Stale)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "although version") {
		t.Errorf("%v: %s", err, text.String())
	}
}

func TestInterruptedRunEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	plan := textPlan()
	plan.Duration = time.Hour
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := Run(ctx, Target{Name: "x", Addrs: []string{forgetful(t)}}, plan, nil, nil); err == nil || err.Error() != "interrupted" {
		t.Errorf("%v", err)
	}
}

func TestTheLastEventEndsTheLoad(t *testing.T) {
	t.Parallel()
	plan := textPlan()
	plan.Duration = time.Hour
	last := Event{At: 100 * time.Millisecond, Name: "the last one", Do: func(context.Context) error { return nil }, Last: true}
	r, err := Run(t.Context(), Target{Name: "x", Addrs: []string{forgetful(t)}}, plan, []Event{last}, nil)
	if err != nil || r.Requests == 0 || r.All.Count != r.Requests || r.Events[0].Error != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCountsOfMetrics(t *testing.T) {
	got, err := countsOf(strings.NewReader("# HELP x\nringside_row_hits_total 90\nringside_row_misses_total 10\nringside_cache_loads_total 4\n" +
		"ringside_cache_writes_total 1e+06\nringside_cache_loads_totally 9\n"))
	if want := (Counts{100, 4, 1e6}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := countsOf(strings.NewReader("ringside_row_hits_total x\n")); err == nil {
		t.Error("a count that is no number is accepted")
	}
}

func TestBrief(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "# HELP ringside_cdc_degraded x\nringside_cdc_degraded{shard=\"s1\"} 0\n": false,
		"ringside_cdc_degraded{shard=\"s1\"} 0\nringside_cdc_degraded{shard=\"s2\"} 1\n": true,
	} {
		if got := brief([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A sidecar that does not answer stands still, one that was restarted goes on from there, and what is asked of shards late is no restart.
func TestMeter(t *testing.T) {
	var mu sync.Mutex
	text := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if text == "" || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	m := &meter{urls: []string{s.URL}, token: "secret", last: make([]Counts, 1), client: s.Client()}
	was := m.sample(t.Context())
	for _, c := range []struct {
		hits, loads int
		want        Counts
		ratio       float64
	}{
		{100, 10, Counts{100, 10, 0}, 0.9},
		{101, 30, Counts{1, 20, 0}, 0}, // asked for rows that were looked up before
		{-1, 0, Counts{}, -1},          // away
		{8, 2, Counts{8, 2, 0}, 0.75},  // restarted
		{9, 2, Counts{1, 0, 0}, 1},
	} {
		mu.Lock()
		text = fmt.Sprintf("ringside_row_hits_total %d\nringside_cache_loads_total %d\n", c.hits, c.loads)
		if c.hits < 0 {
			text = ""
		}
		mu.Unlock()
		now := m.sample(t.Context())
		if rose := now.minus(was); rose != c.want || rose.hits() != c.ratio {
			t.Errorf("%+v: rose by %+v, hit ratio %v", c, rose, rose.hits())
		}
		was = now
	}
}
