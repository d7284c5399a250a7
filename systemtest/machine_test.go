package systemtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	sampleEvery = 100 * time.Millisecond
	// kept is how long, within one sample, a thread of a watched process may wait for a processor before the machine counts as overworked. A
	// sidecar has 200 ms for a connection and 500 ms for a step, in which a few threads have their turn one after the other.
	kept = 40 * time.Millisecond
	// after is for how long what was delayed may still come too late.
	after = time.Second
)

// machine watches how long the computer keeps processes waiting for a processor. A test that fails because a deadline was missed can tell by it
// whether the program had the time.
type machine struct {
	stop  chan struct{}
	group sync.WaitGroup
	mu    sync.Mutex // guards the following
	pids  []int
	waits map[string]time.Duration // by thread: how long it has waited in all
	slow  []span                   // in order
	worst time.Duration
}

type span struct{ from, to time.Time }

// watchMachine watches these processes and our own until the end of the test.
func watchMachine(t *testing.T, pids ...int) *machine {
	t.Helper()
	m := &machine{stop: make(chan struct{}), pids: append(pids, os.Getpid()), waits: map[string]time.Duration{}}
	m.group.Go(m.run)
	t.Cleanup(func() {
		close(m.stop)
		m.group.Wait()
	})
	return m
}

// watch adds a process; those that end are let go.
func (m *machine) watch(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pids = append(m.pids, pid)
}

func (m *machine) run() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		late := now.Sub(last) - sampleEvery
		m.sample(last, now, late)
		last = now
		tick.Reset(sampleEvery)
	}
}

// sample notes what the threads have waited between two moments; late is what we have waited ourselves.
func (m *machine) sample(from, to time.Time, late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := map[string]time.Duration{}
	for _, pid := range m.pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			fields := strings.Fields(string(text))
			if err != nil || len(fields) < 2 {
				continue // it has ended
			}
			ns, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				continue
			}
			waits[file] = time.Duration(ns)
			if before, known := m.waits[file]; known {
				late = max(late, time.Duration(ns)-before)
			}
		}
	}
	m.waits = waits
	m.worst = max(m.worst, late)
	if late > kept {
		m.slow = append(m.slow, span{from, to})
	}
}

// overworked reports whether the machine has kept somebody waiting between two moments, or so shortly before that it still mattered.
func (m *machine) overworked(from, to time.Time) bool {
	return m.share(from.Add(-after), to) > 0
}

// share is how much of the time between two moments the machine was overworked.
func (m *machine) share(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum time.Duration
	for _, s := range m.slow {
		if s.from.Before(to) && s.to.After(from) {
			sum += s.to.Sub(s.from)
		}
	}
	return float64(sum) / float64(to.Sub(from))
}
