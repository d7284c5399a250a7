package loadtest

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Plan is the load, the same for every target. Start from DefaultPlan.
type Plan struct {
	Rate        float64       `json:"rate"` // requests a second
	Duration    time.Duration `json:"duration_ns"`
	Ramp        time.Duration `json:"ramp_ns"` // part of the duration
	Poisson     bool          `json:"poisson"` // arrivals at random instead of evenly spaced
	Connections int           `json:"connections"`
	Batch       time.Duration `json:"batch_ns"` // what is due within this time is sent together
	Pipeline    int           `json:"pipeline"` // requests that follow each other on one connection, if so many are due together
	Timeout     time.Duration `json:"timeout_ns"`
	Pattern     string        `json:"pattern"`
	Keys        int           `json:"keys"`
	Zipf        float64       `json:"zipf"` // exponent; 0: uniform
	Reads       float64       `json:"reads"`
	MinSize     int           `json:"min_size"` // of what is written, in bytes
	MaxSize     int           `json:"max_size"`
	Text        bool          `json:"text"` // plain keys instead of rows
	// The columns of a row that hold its version (bigint) and text that makes it large.
	VersionColumn string `json:"version_column"`
	TextColumn    string `json:"text_column"`
	Warm          bool   `json:"warm"` // read every key once before
	Seed          uint64 `json:"seed"`
}

// DefaultPlan is a load that the demo bears easily.
func DefaultPlan() Plan {
	return Plan{
		Rate: 2000, Duration: 30 * time.Second, Connections: 50, Batch: 200 * time.Microsecond, Pipeline: 1, Timeout: 5 * time.Second,
		Pattern: "user:{id}", Keys: 100_000, Zipf: 0.99, Reads: 0.95, MinSize: 20, MaxSize: 100, VersionColumn: "visits", TextColumn: "name", Seed: 1,
	}
}

// ExercisePlan is that of the known exercise: a cache server is added while all rows, which are cached, are read alike.
func ExercisePlan() Plan {
	p := DefaultPlan()
	p.Duration, p.Keys, p.Zipf, p.Reads, p.Warm = time.Minute, 20_000, 0, 1, true
	return p
}

// The limits of a plan.
const (
	maxRate        = 1_000_000
	maxDuration    = 2 * time.Hour
	maxConnections = 10_000
	maxKeys        = 5_000_000
	maxSize        = 1 << 20
)

// Validate says which number is out of range. It names the flags of ringside loadtest.
func (p Plan) Validate() error {
	switch {
	case math.IsNaN(p.Rate) || p.Rate < 1 || p.Rate > maxRate:
		return fmt.Errorf("--rate is %v; allowed are 1 to %d requests a second", p.Rate, maxRate)
	case p.Duration < time.Second || p.Duration > maxDuration:
		return fmt.Errorf("--duration is %v; allowed are 1s to %v", p.Duration, maxDuration)
	case p.Ramp < 0 || p.Ramp > p.Duration:
		return fmt.Errorf("--ramp is %v; allowed are 0s to the duration, %v", p.Ramp, p.Duration)
	case p.Connections < 1 || p.Connections > maxConnections:
		return fmt.Errorf("--connections is %d; allowed are 1 to %d", p.Connections, maxConnections)
	case p.Batch < 0 || p.Batch > time.Second:
		return fmt.Errorf("--batch is %v; allowed are 0s to 1s", p.Batch)
	case p.Pipeline < 1 || p.Pipeline > window:
		return fmt.Errorf("--pipeline is %d; allowed are 1 to %d", p.Pipeline, window)
	case p.Timeout < 10*time.Millisecond || p.Timeout > 30*time.Second:
		return fmt.Errorf("--request-timeout is %v; allowed are 10ms to 30s", p.Timeout)
	case p.Keys < 1 || p.Keys > maxKeys:
		return fmt.Errorf("--keys is %d; allowed are 1 to %d", p.Keys, maxKeys)
	case math.IsNaN(p.Zipf) || p.Zipf < 0 || p.Zipf > 5:
		return fmt.Errorf("--zipf is %v; allowed are 0 (uniform) to 5", p.Zipf)
	case math.IsNaN(p.Reads) || p.Reads < 0 || p.Reads > 1:
		return fmt.Errorf("--reads is %v; allowed are 0 to 1: the share of requests that read", p.Reads)
	case p.MinSize < 0 || p.MaxSize < p.MinSize || p.MaxSize > maxSize:
		return fmt.Errorf("--value-size is %d-%d; allowed are 0 to %d bytes, the smaller one first", p.MinSize, p.MaxSize, maxSize)
	case !p.Text && (!identifier(p.VersionColumn) || !identifier(p.TextColumn)):
		return errors.New("--version-column and --text-column must be names of columns: letters, digits and _")
	}
	_, err := ParseKeys(p.Pattern, p.Keys)
	return err
}

// identifier reports whether a column can be named without quotes, in SQL and in JSON.
func identifier(name string) bool {
	for i, c := range name {
		letter := c == '_' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func (p Plan) schedule() Schedule { return Schedule{Rate: p.Rate, Ramp: p.Ramp} }
