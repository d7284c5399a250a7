package handover

import (
	"errors"
	"fmt"
	"time"

	"ringside/cache"
	"ringside/sidecar/topology"
)

// Config is how much is done at a time and how long things may take.
type Config struct {
	// MaxValue is the most memory, in bytes as the cache server counts them (MEMORY USAGE), that a key may take to be carried. A bigger
	// one is dropped, with a warning and a metric: it would block both servers for too long. Default 64 MiB.
	MaxValue int64
	// Rate is how many keys per second one driver carries. Keys that applications ask for are carried at once, whatever the rate.
	// Default 20,000.
	Rate int
	// Parallel is how many batches are under way at a time from one server to another, for a driver, and as many again for those
	// who wait for their keys. Default 2.
	Parallel int
	// Batch is the most keys of one batch. Default 256.
	Batch int
	// BatchBytes is after how many bytes of values a batch is carried in parts. Default 1 MiB.
	BatchBytes int
	// Waiting is the most keys that may be waited for at a time for one hand-over. Default 65,536.
	Waiting int
	// LeaseTTL is the life of the lease under which a key is carried: it must be read and stored within that time. Longer for tries
	// after one that took too long. Default 3 s.
	LeaseTTL time.Duration
	// CarryTimeout bounds one call of Carry. Longer than LeaseTTL, so that a carrier that died does not fail others. Default 5 s.
	CarryTimeout time.Duration
	// StepTimeout bounds one command, the transfer of a large value included. Default 5 s.
	StepTimeout time.Duration
	// DriverTTL is the life of a driver's lease: so long nobody drives after a driver died, and commands may be held back. Default 3 s.
	DriverTTL time.Duration
	// HearPatience is how long a driver waits for sidecars to hear of the change before it ends the connections of those that have not. Default 3 s.
	HearPatience time.Duration
	// HoldPatience is the same for holding commands back; applications wait meanwhile. Default 300 ms.
	HoldPatience time.Duration
	// Asserting is how often a driver sees to it that the markers still say what they should. At most DriverTTL / 3. Default 1 s.
	Asserting time.Duration
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		MaxValue:     64 << 20,
		Rate:         20_000,
		Parallel:     2,
		Batch:        256,
		BatchBytes:   1 << 20,
		Waiting:      1 << 16,
		LeaseTTL:     3 * time.Second,
		CarryTimeout: 5 * time.Second,
		StepTimeout:  5 * time.Second,
		DriverTTL:    3 * time.Second,
		HearPatience: 3 * time.Second,
		HoldPatience: 300 * time.Millisecond,
		Asserting:    time.Second,
	}
}

// Validate returns all that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, n := range []struct {
		name         string
		value, limit int64
	}{
		{"max value", c.MaxValue, 512 << 20}, {"rate", int64(c.Rate), 10_000_000}, {"parallel", int64(c.Parallel), 64}, {"batch", int64(c.Batch), 2000},
		{"batch bytes", int64(c.BatchBytes), 512 << 20}, {"waiting", int64(c.Waiting), 10_000_000},
	} {
		if n.value < 1 || n.value > n.limit {
			errs = append(errs, fmt.Errorf("handover: %s is %d, must be from 1 to %d", n.name, n.value, n.limit))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"lease ttl", c.LeaseTTL}, {"carry timeout", c.CarryTimeout}, {"step timeout", c.StepTimeout}, {"driver ttl", c.DriverTTL},
		{"hear patience", c.HearPatience}, {"hold patience", c.HoldPatience}, {"asserting", c.Asserting},
	} {
		if d.value < time.Millisecond {
			errs = append(errs, fmt.Errorf("handover: %s is %v, must be at least 1ms", d.name, d.value))
		}
	}
	if c.CarryTimeout <= c.LeaseTTL {
		errs = append(errs, errors.New("handover: carry timeout must be longer than lease ttl"))
	}
	if 3*c.Asserting > c.DriverTTL {
		errs = append(errs, errors.New("handover: asserting must be at most a third of driver ttl"))
	}
	return errors.Join(errs...)
}

// Deps are what a Carrier works with.
type Deps struct {
	Servers *cache.Servers
	// Current returns the topology to act by, nil while there is none. Any goroutine calls it; it must not block.
	Current func() *topology.Topology
	// Changed returns a channel that is closed when the topology has changed since the call. More often does no harm.
	Changed func() <-chan struct{}
	// Carried is told, again and again until the topology has dropped the hand-over, that nothing is left to carry. It is called by the
	// hand-over's driver and must not block. Nil: nobody is told.
	Carried func(h topology.Handover)
}
