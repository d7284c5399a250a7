package loadtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringside/internal/childproc"
)

// Sidecars are what is loaded.
type Sidecars struct {
	Redis    []string // host:port
	Admin    []string // host:port of their admin interfaces; none: hits and shard reads are not known
	Password string
	PIDs     []int // of their processes, if they run here
}

// Target makes a target of the sidecars.
func (s Sidecars) Target(plan Plan) Target {
	t := Target{Name: "ringside", Addrs: s.Redis, Password: s.Password, CountFound: plan.Text}
	if plan.Text {
		t.HitsFrom = "values found"
		t.Warm = func(ctx context.Context) error { return fill(ctx, s.Redis, s.Password, plan) }
	} else {
		t.Warm = func(ctx context.Context) error { return readAll(ctx, s.Redis, s.Password, plan) }
	}
	if len(s.Admin) > 0 && !plan.Text {
		m := &meter{last: make([]Counts, len(s.Admin)), client: &http.Client{Timeout: sampleTimeout}}
		for _, addr := range s.Admin {
			m.urls = append(m.urls, "http://"+addr+"/metrics")
		}
		t.Sample = m.sample
		t.HitsFrom = "the sidecars' metrics: rows looked up, less rows asked of shards"
		t.ShardReadsFrom = "the sidecars' metrics: rows asked of shards"
	}
	if len(s.PIDs) > 0 {
		t.ProcessorTime = func() (time.Duration, bool) { return processorTime(s.PIDs) }
	}
	return t
}

func processorTime(pids []int) (time.Duration, bool) {
	var all time.Duration
	for _, pid := range pids {
		d, err := childproc.ProcessorTime(pid)
		if err != nil {
			return 0, false
		}
		all += d
	}
	return all, true
}

// sampleTimeout is shorter than the time between two samples.
const sampleTimeout = 900 * time.Millisecond

// meter adds up what the sidecars count. Counts of a sidecar that does not answer stand still; those of one that was restarted go on from there.
type meter struct {
	urls   []string
	client *http.Client
	last   []Counts
	total  Counts
}

// sample is not called by two goroutines at a time.
func (m *meter) sample(ctx context.Context) Counts {
	found := make([]Counts, len(m.urls))
	ok := make([]bool, len(m.urls))
	var asking sync.WaitGroup
	for i, url := range m.urls {
		asking.Go(func() {
			var err error
			found[i], err = m.ask(ctx, url)
			ok[i] = err == nil
		})
	}
	asking.Wait()
	for i, now := range found {
		if !ok[i] {
			continue
		}
		rose := now.minus(m.last[i])
		if rose.Reads < 0 || rose.ShardReads < 0 || rose.ShardWrites < 0 {
			rose = now // restarted
		}
		m.last[i], m.total = now, m.total.plus(rose)
	}
	return m.total
}

func (m *meter) ask(ctx context.Context, url string) (Counts, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Counts{}, err
	}
	res, err := m.client.Do(req)
	if err != nil {
		return Counts{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return Counts{}, fmt.Errorf("%s answers %s", url, res.Status)
	}
	return countsOf(res.Body)
}

// countsOf reads the counts from the text that Prometheus reads. Every row that is looked up is a hit or a miss of the event loop, and a miss
// that was found after all asks no shard.
func countsOf(text io.Reader) (Counts, error) {
	var c Counts
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		var into *float64
		switch name {
		case "ringside_row_hits_total", "ringside_row_misses_total":
			into = &c.Reads
		case "ringside_cache_loads_total":
			into = &c.ShardReads
		case "ringside_cache_writes_total":
			into = &c.ShardWrites
		default:
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return Counts{}, fmt.Errorf("%s is %q", name, value)
		}
		*into += n
	}
	return c, lines.Err()
}
