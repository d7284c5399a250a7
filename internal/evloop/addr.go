package evloop

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// endpoint is a parsed address: what the system calls take and what people read.
type endpoint struct {
	family int
	sock   unix.Sockaddr
	addr   net.Addr
}

// parseEndpoint understands "tcp" with a numeric host and port, and "unix" with a path. Names are not resolved: that blocks.
func parseEndpoint(network, addr string) (endpoint, error) {
	switch network {
	case "tcp":
		ap, err := netip.ParseAddrPort(addr)
		if err != nil {
			return endpoint{}, fmt.Errorf("address %q is not a numeric host:port such as 127.0.0.1:6380 or [::1]:6380", addr)
		}
		return tcpEndpoint(ap)
	case "unix":
		return unixEndpoint(addr)
	}
	return endpoint{}, fmt.Errorf("network %q is not known; allowed are tcp and unix", network)
}

func tcpEndpoint(ap netip.AddrPort) (endpoint, error) {
	ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	e := endpoint{addr: net.TCPAddrFromAddrPort(ap)}
	ip := ap.Addr()
	if ip.Is4() {
		e.family = unix.AF_INET
		e.sock = &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ip.As4()}
		return e, nil
	}
	zone, err := zoneIndex(ip.Zone())
	if err != nil {
		return endpoint{}, err
	}
	e.family = unix.AF_INET6
	e.sock = &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ip.As16(), ZoneId: zone}
	return e, nil
}

// zoneIndex turns the zone of a link-local address into its interface's number.
func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", zone, err)
	}
	return uint32(ifi.Index), nil
}

// maxUnixPath is what fits into the system's structure on every system that is supported, with its final zero.
const maxUnixPath = 103

func unixEndpoint(path string) (endpoint, error) {
	switch {
	case path == "":
		return endpoint{}, fmt.Errorf("the path of a unix socket is empty")
	case len(path) > maxUnixPath:
		return endpoint{}, fmt.Errorf("the path of a unix socket has %d bytes; allowed are %d: %q", len(path), maxUnixPath, path)
	case strings.HasPrefix(path, "@"), strings.ContainsRune(path, 0):
		return endpoint{}, fmt.Errorf("abstract unix sockets are not supported, only paths: %q", path)
	}
	return endpoint{
		family: unix.AF_UNIX,
		sock:   &unix.SockaddrUnix{Name: path},
		addr:   &net.UnixAddr{Name: path, Net: "unix"},
	}, nil
}

// netAddr is the readable form of what the system reports; nil for what it does not know.
func netAddr(sa unix.Sockaddr) net.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return net.TCPAddrFromAddrPort(inet4(sa))
	case *unix.SockaddrInet6:
		return net.TCPAddrFromAddrPort(inet6(sa))
	case *unix.SockaddrUnix:
		return &net.UnixAddr{Name: sa.Name, Net: "unix"}
	}
	return nil
}

func inet4(sa *unix.SockaddrInet4) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
}

func inet6(sa *unix.SockaddrInet6) netip.AddrPort {
	ip := netip.AddrFrom16(sa.Addr).Unmap()
	if ip.Is6() && sa.ZoneId != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(sa.ZoneId), 10))
	}
	return netip.AddrPortFrom(ip, uint16(sa.Port))
}

func localAddr(fd int) net.Addr {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil
	}
	return netAddr(sa)
}

// sameAddr says whether two ends of a TCP connection are one.
func sameAddr(a, b unix.Sockaddr) bool {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		b, ok := b.(*unix.SockaddrInet4)
		return ok && inet4(a) == inet4(b)
	case *unix.SockaddrInet6:
		b, ok := b.(*unix.SockaddrInet6)
		return ok && inet6(a) == inet6(b)
	}
	return false
}
