package main

import (
	"slices"
	"strings"
	"testing"
)

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
