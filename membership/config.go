package membership

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Config says who this sidecar is and where it listens and looks for others. Start from DefaultConfig.
type Config struct {
	// Name is this sidecar's name, unique in the cluster, 1 to 128 bytes.
	Name string
	// Meta is what peers and operators are told about this sidecar. An empty Boot is replaced by a random one in New.
	Meta Meta

	// BindAddr is the IP address to listen on, for TCP and UDP. A host name is refused: memberlist would listen on all
	// interfaces instead.
	BindAddr string
	// BindPort is the port to listen on, for TCP and UDP. 0 takes any free one (tests).
	BindPort int
	// Advertise is what peers use to reach this sidecar, as IP:port, when that is not what it listens on: behind NAT, or on a machine
	// with several networks. Empty: BindAddr or, when that is 0.0.0.0 or ::, the first private address of the machine, and the
	// port listened on.
	Advertise string

	// Join lists seeds as host:port. Names are resolved freshly at each attempt.
	Join []string
	// Keys encrypt and authenticate gossip: the first encrypts, all decrypt; 16, 24 or 32 bytes each. None: plain text.
	// SetKeys changes them later.
	Keys [][]byte
	// Cluster labels all traffic; a sidecar of another cluster is not heard. It keeps clusters from merging by mistake; it does not
	// authenticate (Keys do). At most 200 bytes.
	Cluster string

	// RejoinInterval is the time between two attempts to join seeds and members that are not alive, which is what heals a
	// partition that outlasted memberlist's memory. A sidecar that is alone tries more often. Default 30 s.
	RejoinInterval time.Duration
	// RequestAfter is how long a peer's higher hint stands before its topology is asked for. 0, the default, asks at once;
	// with a catalog to read from, give that a second first.
	RequestAfter time.Duration
	// LeaveTimeout bounds the farewell at the end of Run, which usually takes 0.3 s. Default 2 s.
	LeaveTimeout time.Duration
	// StreamTimeout bounds dialling a peer and each exchange with it. Default 3 s.
	StreamTimeout time.Duration
}

// DefaultConfig returns what a sidecar uses unless told otherwise: all interfaces, port 7946. Name is left to the caller.
func DefaultConfig() Config {
	return Config{BindAddr: "0.0.0.0", BindPort: 7946}.withDefaults()
}

func (c Config) withDefaults() Config {
	fill := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	fill(&c.RejoinInterval, 30*time.Second)
	fill(&c.LeaveTimeout, 2*time.Second)
	fill(&c.StreamTimeout, 3*time.Second)
	return c
}

// Validate reports everything that is wrong with the configuration. Durations that are zero count as their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("gossip: "+format, args...)) }

	if c.Name == "" || len(c.Name) > maxName {
		bad("name must have 1 to %d bytes, not %d", maxName, len(c.Name))
	}
	if _, err := c.Meta.encode(); err != nil {
		errs = append(errs, err)
	}
	if net.ParseIP(c.BindAddr) == nil {
		bad("listen address %q must be an IP address, such as 0.0.0.0 or 127.0.0.1 (host names are not resolved here)", c.BindAddr)
	}
	if c.BindPort < 0 || c.BindPort > 65535 {
		bad("listen port %d is not within 0..65535", c.BindPort)
	}
	if c.Advertise != "" {
		a, err := netip.ParseAddrPort(c.Advertise)
		if ip := a.Addr(); err != nil || a.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
			bad("advertised address %q must be IP:port that peers can reach, such as 10.1.2.3:7946 or [fd00::3]:7946 (host names are not resolved here)",
				c.Advertise)
		}
	}
	for _, seed := range c.Join {
		host, port, err := net.SplitHostPort(seed)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
			bad("join address %q must be host:port", seed)
		}
	}
	if err := checkKeys(c.Keys); err != nil {
		errs = append(errs, err)
	}
	if len(c.Cluster) > maxCluster {
		bad("cluster %q is longer than %d bytes", c.Cluster, maxCluster)
	}
	for _, d := range []struct {
		what  string
		value time.Duration
		least time.Duration
	}{
		{"rejoin interval", c.RejoinInterval, 50 * time.Millisecond},
		{"request delay", c.RequestAfter, 0},
		{"leave timeout", c.LeaveTimeout, time.Millisecond},
		{"stream timeout", c.StreamTimeout, time.Millisecond},
	} {
		if d.value < d.least {
			bad("%s %v is shorter than %v", d.what, d.value, d.least)
		}
	}
	return errors.Join(errs...)
}
