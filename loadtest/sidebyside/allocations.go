package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"ringside/loadtest/gauge"
)

// allocations runs the proxy's own benchmarks, which measure inside the process what cannot be seen from outside. They are of this
// source, whatever --ringside says.
func allocations(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkRequest$/^(plain_GET|plain_SET|row_hit)$", "-benchtime", strconv.Itoa(r.o.Scaled(30_000))+"x",
		"-benchmem", "ringside/sidecar/proxy")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench: %w\n%s", errors.Join(err, ctx.Err()), out)
	}
	found, err := parseAllocations(string(out))
	if err != nil {
		return nil, err
	}
	var list []gauge.Figure
	for _, b := range found {
		list = append(list, gauge.Judge("allocations per request, "+b.name, gauge.Limit{Exact: true}, []float64{b.count}, "%.0f bytes", b.bytes))
	}
	return list, nil
}

// allocated is what a benchmark says of one operation.
type allocated struct {
	name         string
	count, bytes float64
}

// parseAllocations reads the lines "BenchmarkRequest/plain_GET/P=16-2  30000  512 ns/op  0 B/op  0 allocs/op".
func parseAllocations(out string) ([]allocated, error) {
	var list []allocated
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		one := allocated{name: name}
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			one.name = name[:i] // without GOMAXPROCS
		}
		known := 0
		for i := 2; i+1 < len(fields); i += 2 {
			n, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break
			}
			switch fields[i+1] {
			case "allocs/op":
				one.count = n
				known++
			case "B/op":
				one.bytes = n
				known++
			}
		}
		if known == 2 {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no benchmark with allocations in the output:\n%s", out)
	}
	return list, nil
}
