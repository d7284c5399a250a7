package loadtest

import (
	"bufio"
	"bytes"
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
	Token    string // of their admin interfaces, which from another machine want it for metrics too
	PIDs     []int  // of their processes, if they run here
}

// Target makes a target of the sidecars.
func (s Sidecars) Target(plan Plan) Target {
	t := Target{Name: "ringside", Addrs: s.Redis, Password: s.Password, CountFound: plan.Text}
	if plan.Text {
		t.HitsFrom = "values found"
		t.Warm = func(ctx context.Context) error { return fill(ctx, s.Redis, s.Password, plan) }
	} else {
		m := newMeter(s.Admin, s.Token)
		t.Warm = func(ctx context.Context) error {
			m.settle(ctx)
			return readAll(ctx, s.Redis, s.Password, plan)
		}
		if len(s.Admin) > 0 {
			t.Sample = m.sample
		}
	}
	if t.Sample != nil {
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
	token  string
	client *http.Client
	last   []Counts
	total  Counts
}

func newMeter(admin []string, token string) *meter {
	m := &meter{token: token, last: make([]Counts, len(admin)), client: &http.Client{Timeout: sampleTimeout}}
	for _, addr := range admin {
		m.urls = append(m.urls, "http://"+addr+"/metrics")
	}
	return m
}

// answerLimit bounds the wait for a sidecar's metrics before a load.
const answerLimit = 10 * time.Second

// settleLimit bounds the wait for a cluster that may have just been started.
const settleLimit = 30 * time.Second

// settle waits until every sidecar keeps rows for as long as it is told to: until somebody follows what others change on the shards, that is a
// second at most, and what was warm would be cold again. A cluster in which that does not come is loaded all the same.
func (m *meter) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for _, url := range m.urls {
		for {
			text, err := m.fetch(ctx, url)
			if ctx.Err() != nil || err == nil && !brief(text) {
				break
			}
			timer := time.NewTimer(200 * time.Millisecond)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// brief reports whether a sidecar keeps the rows of some shard for a moment only.
func brief(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "ringside_cdc_degraded{") && value != "0" {
			return true
		}
	}
	return false
}

// Answer reports an error if a sidecar's metrics cannot be had: its hits and shard reads would be taken for none.
func (s Sidecars) Answer(ctx context.Context) error {
	m := newMeter(s.Admin, s.Token)
	m.client.Timeout = answerLimit
	for i, url := range m.urls {
		if _, err := m.fetch(ctx, url); err != nil {
			return fmt.Errorf("the admin interface at %s does not tell the metrics: %w", s.Admin[i], err)
		}
	}
	return nil
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
	text, err := m.fetch(ctx, url)
	if err != nil {
		return Counts{}, err
	}
	return countsOf(bytes.NewReader(text))
}

func (m *meter) fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if m.token != "" {
		req.Header.Set("Authorization", "Bearer "+m.token)
	}
	res, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, res.Status)
	}
	return io.ReadAll(res.Body)
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
