package cache

import (
	"errors"
	"fmt"
	"time"
)

// Config is how long things may take. Durations that depend on each other are checked by Validate.
type Config struct {
	// LeaseTTL is the life of a lease. A reader that dies leaves its lease that long. Longer than LoadTimeout, else a slow load
	// cannot be put into the cache. Default 3 s.
	LeaseTTL time.Duration
	// LeaseWait is how long a reader waits for somebody else's fill before it loads the row without filling. Default 1 s.
	LeaseWait time.Duration
	// LoadTimeout bounds one call of a load callback. Default 2 s.
	LoadTimeout time.Duration
	// ReadTimeout bounds all that is done for one caller of Read, counted from its call. Whoever drives a change of the ring waits
	// it out between two phases. Default 4 s.
	ReadTimeout time.Duration
	// PoisonTTL is the life of poison. It must be longer than a transaction can last, commit included. Default 15 s.
	PoisonTTL time.Duration
	// WriteTimeout bounds one call of a commit callback. Default 5 s.
	WriteTimeout time.Duration
	// CleanTimeout is how long the cleaning after a commit is tried. Default 3 s.
	CleanTimeout time.Duration
	// StepTimeout bounds one round trip to a cache server, connecting included. Default 500 ms.
	StepTimeout time.Duration
	// TTLJitter is the share by which the life of an entry is shortened at random, so that entries filled together do not expire
	// together: 0 none, below 1. Default 0.1.
	TTLJitter float64
	// SoftTTL is the share of its life after which an entry may be refreshed early: above 0, at most 1. Default 0.8.
	SoftTTL float64
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		LeaseTTL:     3 * time.Second,
		LeaseWait:    time.Second,
		LoadTimeout:  2 * time.Second,
		ReadTimeout:  4 * time.Second,
		PoisonTTL:    15 * time.Second,
		WriteTimeout: 5 * time.Second,
		CleanTimeout: 3 * time.Second,
		StepTimeout:  500 * time.Millisecond,
		TTLJitter:    0.1,
		SoftTTL:      0.8,
	}
}

// LongestWrite is the longest that Write takes.
func (c Config) LongestWrite() time.Duration {
	return c.StepTimeout + c.WriteTimeout + c.CleanTimeout + c.StepTimeout
}

// Validate returns all that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"lease ttl", c.LeaseTTL}, {"lease wait", c.LeaseWait}, {"load timeout", c.LoadTimeout}, {"read timeout", c.ReadTimeout},
		{"poison ttl", c.PoisonTTL}, {"write timeout", c.WriteTimeout}, {"clean timeout", c.CleanTimeout}, {"step timeout", c.StepTimeout},
	} {
		if d.value < time.Millisecond {
			errs = append(errs, fmt.Errorf("cache: %s is %v, must be at least 1ms", d.name, d.value))
		}
	}
	for _, r := range []struct {
		long, short string
		ok          bool
	}{
		{"lease ttl", "load timeout + step timeout", c.LeaseTTL >= c.LoadTimeout+c.StepTimeout},
		{"read timeout", "lease wait + load timeout", c.ReadTimeout >= c.LeaseWait+c.LoadTimeout},
		{"poison ttl", "2 x write timeout + step timeout", c.PoisonTTL >= 2*c.WriteTimeout+c.StepTimeout},
		{"clean timeout", "step timeout", c.CleanTimeout >= c.StepTimeout},
	} {
		if !r.ok {
			errs = append(errs, fmt.Errorf("cache: %s must be at least %s", r.long, r.short))
		}
	}
	if !(c.TTLJitter >= 0 && c.TTLJitter < 1) {
		errs = append(errs, fmt.Errorf("cache: ttl jitter is %v, must be at least 0 and below 1", c.TTLJitter))
	}
	if !(c.SoftTTL > 0 && c.SoftTTL <= 1) {
		errs = append(errs, fmt.Errorf("cache: soft ttl is %v, must be above 0 and at most 1", c.SoftTTL))
	}
	return errors.Join(errs...)
}

// ServersConfig is how cache servers are connected to. One sidecar keeps few connections to each: there are many sidecars.
type ServersConfig struct {
	// Watcher names this sidecar's process to the cache servers, on the connections by which it looks after them (see Servers.Watching). No spaces.
	// Empty: they have no name.
	Watcher string
	// Connections is the most connections to one server. Default 4.
	Connections int
	// ConnectTimeout bounds connecting, and the wait for each reply when a step has more time than that. Default 500 ms.
	ConnectTimeout time.Duration
	// PoolTimeout is how long a step waits for a free connection. Well below what a step may take, so that a busy server is told from one
	// that does not answer. Default 200 ms.
	PoolTimeout time.Duration
	// IdleTimeout is after how long an unused connection is closed; below the servers' own `timeout`. Default 4 min.
	IdleTimeout time.Duration
	// RetryMin and RetryMax: after a server could not be reached, reads do without it that long before one of them tries again;
	// doubled at each failure. Writes always try. Defaults 50 ms and 1 s.
	RetryMin, RetryMax time.Duration
}

// DefaultServersConfig returns the defaults.
func DefaultServersConfig() ServersConfig {
	return ServersConfig{
		Connections:    4,
		ConnectTimeout: 500 * time.Millisecond,
		PoolTimeout:    200 * time.Millisecond,
		IdleTimeout:    4 * time.Minute,
		RetryMin:       50 * time.Millisecond,
		RetryMax:       time.Second,
	}
}

// Validate returns all that is wrong.
func (c ServersConfig) Validate() error {
	var errs []error
	if c.Connections < 1 {
		errs = append(errs, fmt.Errorf("cache servers: connections is %d, must be at least 1", c.Connections))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"connect timeout", c.ConnectTimeout}, {"pool timeout", c.PoolTimeout}, {"idle timeout", c.IdleTimeout}, {"retry min", c.RetryMin},
	} {
		if d.value < time.Millisecond {
			errs = append(errs, fmt.Errorf("cache servers: %s is %v, must be at least 1ms", d.name, d.value))
		}
	}
	if c.RetryMax < c.RetryMin {
		errs = append(errs, fmt.Errorf("cache servers: retry max is %v, must be at least retry min, %v", c.RetryMax, c.RetryMin))
	}
	return errors.Join(errs...)
}
