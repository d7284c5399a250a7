package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"ringside/internal/childproc"
)

// load is what redis-benchmark is to send.
type load struct {
	clients  int
	pipeline int
	requests int
	keys     int // "__rand_int__" in command becomes 12 digits below it
	command  []string
}

// turn is what one contestant reached in one round.
type turn struct {
	processor float64 // of the proxy process, us per request
	rate      float64 // requests per second
	p50       float64 // ms
}

// turnLimit bounds a turn: redis-benchmark itself waits for ever when a server has gone.
const turnLimit = 90 * time.Second

// run sends the load to addr and measures what the process pid pays for it.
func (l load) run(ctx context.Context, addr string, pid int) (turn, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return turn{}, err
	}
	args := []string{"-h", host, "-p", port, "-c", strconv.Itoa(l.clients), "-P", strconv.Itoa(l.pipeline), "-n", strconv.Itoa(l.requests),
		"-r", strconv.Itoa(l.keys), "--csv"}
	before, err := childproc.ProcessorTime(pid)
	if err != nil {
		return turn{}, err
	}
	out, err := exec.CommandContext(ctx, "redis-benchmark", append(args, l.command...)...).Output()
	if err != nil {
		said := out // an error reply that ends it stands among the results
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			said = append(said, failed.Stderr...)
		}
		return turn{}, fmt.Errorf("redis-benchmark %s: %w: %.500q", strings.Join(args, " "), errors.Join(err, ctx.Err()), said)
	}
	after, err := childproc.ProcessorTime(pid)
	if err != nil {
		return turn{}, err
	}
	t, err := parseBenchmark(string(out))
	t.processor = float64((after - before).Nanoseconds()) / 1e3 / float64(l.requests)
	return t, err
}

// parseBenchmark reads what redis-benchmark --csv prints: a line of names and a line of values.
func parseBenchmark(out string) (turn, error) {
	r := csv.NewReader(strings.NewReader(out))
	r.FieldsPerRecord = -1
	lines, err := r.ReadAll()
	if err != nil || len(lines) != 2 || len(lines[0]) != len(lines[1]) {
		return turn{}, errors.Join(fmt.Errorf("redis-benchmark printed %q, expected a line of names and one of values", out), err)
	}
	var t turn
	found := 0
	for i, name := range lines[0] {
		var into *float64
		switch name {
		case "rps":
			into = &t.rate
		case "p50_latency_ms":
			into = &t.p50
		default:
			continue
		}
		if *into, err = strconv.ParseFloat(lines[1][i], 64); err != nil {
			return turn{}, fmt.Errorf("redis-benchmark printed %q as %s", lines[1][i], name)
		}
		found++
	}
	if found != 2 {
		return turn{}, fmt.Errorf("redis-benchmark printed %q, without rps and p50_latency_ms", out)
	}
	return t, nil
}

// turns are what one contestant reached, by round.
type turns struct{ processor, rate, p50 []float64 }

func (t *turns) add(one turn) {
	t.processor = append(t.processor, one.processor)
	t.rate = append(t.rate, one.rate)
	t.p50 = append(t.p50, one.p50)
}

// contestant is a load on a proxy.
type contestant struct {
	load load
	addr string
	pid  int
}

// takeTurns runs the two in turns. Who comes first changes from round to round. A short round before the first one, which does not
// count, opens connections and fills buffers.
func takeTurns(ctx context.Context, rounds int, a, b contestant) (ofA, ofB turns, err error) {
	const warmUp = 10
	for _, c := range []contestant{a, b} {
		c.load.requests = max(c.load.requests/warmUp, 1)
		if _, err := c.load.run(ctx, c.addr, c.pid); err != nil {
			return ofA, ofB, err
		}
	}
	for i := range rounds {
		list := []struct {
			contestant
			into *turns
		}{{a, &ofA}, {b, &ofB}}
		if i%2 == 1 {
			list[0], list[1] = list[1], list[0]
		}
		for _, c := range list {
			t, err := c.load.run(ctx, c.addr, c.pid)
			if err != nil {
				return ofA, ofB, err
			}
			c.into.add(t)
		}
	}
	return ofA, ofB, nil
}
