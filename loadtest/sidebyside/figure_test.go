package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limit limit
		value float64
		want  bool
		text  string
	}{
		{limit{most: 0.9}, 0.9, true, "<= 0.9"},
		{limit{most: 0.9}, 0.91, false, "<= 0.9"},
		{limit{least: 2}, 2, true, ">= 2"},
		{limit{least: 2}, 1.99, false, ">= 2"},
		{limit{exact: true}, 0, true, "0"},
		{limit{exact: true}, 1, false, "0"},
		{limit{}, 99, true, "-"},
	} {
		if got := c.limit.reached(c.value); got != c.want {
			t.Errorf("%v reached by %v: %v", c.limit, c.value, got)
		}
		if got := c.limit.String(); got != c.text {
			t.Errorf("%+v is shown as %q, want %q", c.limit, got, c.text)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   span
	}{
		{nil, span{}},
		{[]float64{3}, span{3, 3, 3}},
		{[]float64{3, 1}, span{1, 2, 3}},
		{[]float64{9, 1, 2}, span{1, 2, 9}},
	} {
		if got := spread(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
	values := []float64{2, 1}
	spread(values)
	if values[0] != 2 {
		t.Error("the values were sorted in place: the order of the rounds is lost")
	}
}

// A figure is the median of the rounds' ratios, not the ratio of the medians: what disturbs a round disturbs both of its turns.
func TestFiguresCompareRoundByRound(t *testing.T) {
	got := judge("x", limit{most: 0.5}, ratios([]float64{1, 10, 3}, []float64{2, 20, 4}), "%d rounds", 3)
	want := figure{What: "x", Target: "<= 0.5", Value: 0.5, Low: 0.5, High: 0.75, OK: true, Detail: "3 rounds"}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestParseBenchmark(t *testing.T) {
	const names = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	got, err := parseBenchmark(names + `"GET key:__rand_int__","60120.24","0.574","0.016","0.359","0.775","4.487","90.175"` + "\n")
	if err != nil || got != (turn{rate: 60120.24, p50: 0.359}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", names, names + "\"GET\",\"1\"\n", "\"a\",\"b\"\n1,2\n", strings.Replace(names, "rps", "x", 1) + `"GET","1","2","3","4","5","6","7"` + "\n"} {
		if got, err := parseBenchmark(bad); err == nil {
			t.Errorf("%q gave %+v", bad, got)
		}
	}
}

func TestParseAllocations(t *testing.T) {
	got, err := parseAllocations("goos: linux\nBenchmarkPlainGet/P=16-2 \t   30000\t      512 ns/op\t  12.5 us-cpu/op\t       8 B/op\t       1 allocs/op\nPASS\n")
	if want := []allocated{{"PlainGet/P=16", 1, 8}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := parseAllocations("ok  \tringside/sidecar/proxy\t0.1s\n"); err == nil {
		t.Errorf("no benchmark gave %+v", got)
	}
}

func TestParseResident(t *testing.T) {
	got, err := parseResident([]byte("Name:\tx\nVmHWM:\t   20000 kB\nVmRSS:\t   12345 kB\n"))
	if err != nil || got != 12345 {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := parseResident([]byte("Name:\tx\n")); err == nil {
		t.Error("no VmRSS is no error")
	}
}

func TestOptions(t *testing.T) {
	good := options{Rounds: 5, Scale: 1, Only: []string{"get1"}}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []options{{Rounds: 0, Scale: 1}, {Rounds: 5, Scale: math.NaN()}, {Rounds: 5, Scale: 1, Only: []string{"get2"}}} {
		if bad.validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestTheTableNamesWhatIsMissed(t *testing.T) {
	r := report{Figures: []figure{
		judge("a", limit{most: 1}, []float64{2}, "d"), judge("b", limit{most: 1}, []float64{1}, "d"), judge("c", limit{}, []float64{5}, "d"),
	}}
	var text strings.Builder
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "missed"); n != 2 || !strings.Contains(text.String(), "1 of 3 figures missed") {
		t.Errorf("the table says:\n%s", text.String())
	}
}
