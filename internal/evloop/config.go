package evloop

import (
	"fmt"
	"time"
)

// Config holds a loop's settings. The zero value of each field means its default.
type Config struct {
	// ReadBuffer is how many bytes one connection may bring in per turn; the loop has one such buffer. Larger is faster for
	// large values and less fair between connections. Default 64 KiB, at least 1 KiB.
	ReadBuffer int
	// MaxEvents is how many ready descriptors one turn serves at most. Default 256.
	MaxEvents int
	// LowWater and HighWater are the marks, in bytes of unread output, that a new connection starts with; see
	// Conn.SetWatermarks. Defaults 64 KiB and 1 MiB.
	LowWater, HighWater int
	// KeepAlive is the idle time after which TCP asks whether the peer is still there, and the interval of asking. Default
	// 60 s; negative switches it off.
	KeepAlive time.Duration
	// YieldEvery is how long a loop with something to do keeps other goroutines waiting at most, whether it blocks in between or
	// not, if there is no other processor for them. Each time costs some 10 us. Default 1 ms, at least 100 us.
	YieldEvery time.Duration
}

const (
	defaultReadBuffer = 64 << 10
	minReadBuffer     = 1 << 10
	maxReadBuffer     = 16 << 20
	defaultMaxEvents  = 256
	maxMaxEvents      = 1 << 16
	defaultLowWater   = 64 << 10
	defaultHighWater  = 1 << 20
	defaultKeepAlive  = 60 * time.Second
	defaultYieldEvery = time.Millisecond
	minYieldEvery     = 100 * time.Microsecond
)

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	if c.ReadBuffer == 0 {
		c.ReadBuffer = defaultReadBuffer
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = defaultMaxEvents
	}
	if c.HighWater == 0 {
		c.HighWater = max(defaultHighWater, c.LowWater)
	}
	if c.LowWater == 0 {
		c.LowWater = min(defaultLowWater, c.HighWater)
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = defaultKeepAlive
	}
	if c.YieldEvery == 0 {
		c.YieldEvery = defaultYieldEvery
	}
	return c
}

// Validate says which setting is out of range, after defaults have been applied.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.ReadBuffer < minReadBuffer || c.ReadBuffer > maxReadBuffer {
		return fmt.Errorf("evloop: ReadBuffer is %d bytes; allowed are %d to %d", c.ReadBuffer, minReadBuffer, maxReadBuffer)
	}
	if c.MaxEvents < 1 || c.MaxEvents > maxMaxEvents {
		return fmt.Errorf("evloop: MaxEvents is %d; allowed are 1 to %d", c.MaxEvents, maxMaxEvents)
	}
	if c.LowWater < 0 || c.HighWater < c.LowWater {
		return fmt.Errorf("evloop: LowWater is %d and HighWater %d bytes; allowed is 0 <= LowWater <= HighWater", c.LowWater, c.HighWater)
	}
	if c.KeepAlive > 0 && c.KeepAlive < time.Second {
		return fmt.Errorf("evloop: KeepAlive is %v; allowed is 1s or more, or negative for none", c.KeepAlive)
	}
	if c.YieldEvery < minYieldEvery {
		return fmt.Errorf("evloop: YieldEvery is %v; allowed is %v or more", c.YieldEvery, minYieldEvery)
	}
	return nil
}
