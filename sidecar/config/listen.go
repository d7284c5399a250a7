package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// unixPrefix marks the path of a Unix socket.
const unixPrefix = "unix:"

// maxSocketPath is what macOS allows, NUL included; Linux allows four bytes more.
const maxSocketPath = 104

// checkListens makes the addresses numeric and reports those that are wrong or in each other's way.
func (c *Config) checkListens(d *decoder) {
	type listener struct {
		path string
		addr netip.AddrPort
	}
	var taken []listener
	for _, l := range []struct {
		path string
		addr *string
	}{{"redis.listen", &c.Redis.Listen}, {"admin.listen", &c.Admin.Listen}, {"gossip.listen", &c.Gossip.Listen}} {
		if l.path == "redis.listen" && strings.HasPrefix(*l.addr, unixPrefix) {
			if err := checkSocket(*l.addr); err != nil {
				d.fault(l.path, "%s %v", l.path, err)
			}
			continue
		}
		addr, err := parseListen(*l.addr)
		if err != nil {
			d.fault(l.path, "%s %v", l.path, err)
			continue
		}
		*l.addr = addr.String()
		for _, other := range taken {
			if inTheWay(addr, other.addr) {
				d.fault(l.path, "%s %s is taken by %s, %s", l.path, addr, other.path, other.addr)
			}
		}
		taken = append(taken, listener{l.path, addr})
		if l.path == "redis.listen" && !addr.Addr().IsLoopback() && c.Redis.Password == "" && !d.failed["redis.password"] {
			d.fault(l.path, "%s %s can be reached from other machines: set redis.password, or listen on 127.0.0.1", l.path, addr)
		}
	}
}

// inTheWay reports whether two sockets cannot listen at once. Port 0 is any free one.
func inTheWay(a, b netip.AddrPort) bool {
	return a.Port() != 0 && a.Port() == b.Port() &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// parseListen reads IP:port. A host name is not looked up, for it may stand for several addresses; localhost is 127.0.0.1, and no
// host means all interfaces.
func parseListen(text string) (netip.AddrPort, error) {
	const rule = "must be an IP address and a port, such as 127.0.0.1:6380"
	if strings.HasPrefix(text, unixPrefix) {
		return netip.AddrPort{}, fmt.Errorf("is %q: only redis.listen can be a Unix socket, this %s", text, rule)
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("is %q: it %s", text, rule)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("is %q: it %s (names are not looked up)", text, rule)
	}
	n, err := parsePort(port, 0)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("is %q: %w", text, err)
	}
	return netip.AddrPortFrom(addr, n), nil
}

func checkSocket(text string) error {
	path := strings.TrimPrefix(text, unixPrefix)
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("is %q: the path of a Unix socket must be absolute, such as unix:/run/ringside/redis.sock", text)
	case len(path) >= maxSocketPath:
		return fmt.Errorf("has a path of %d bytes: a Unix socket's has at most %d", len(path), maxSocketPath-1)
	}
	return nil
}

// checkAddr wants host:port of another machine.
func checkAddr(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, " /@") {
		return fmt.Errorf("is %q: it must be host:port, such as 10.0.0.1:6379", text)
	}
	if _, err := parsePort(port, 1); err != nil {
		return fmt.Errorf("is %q: %w", text, err)
	}
	return nil
}

// checkAdvertise wants the IP:port of this machine as others see it.
func checkAdvertise(text string) error {
	a, err := netip.ParseAddrPort(text)
	if ip := a.Addr(); err != nil || a.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return fmt.Errorf("is %q: it must be an IP address and a port that other sidecars can reach, such as 10.1.2.3:7946", text)
	}
	return nil
}

func parsePort(text string, low uint64) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < low || strconv.FormatUint(n, 10) != text {
		return 0, errors.New("a port is a number from 1 to 65535")
	}
	return uint16(n), nil
}
