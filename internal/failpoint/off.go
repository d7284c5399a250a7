//go:build !failpoint

package failpoint

import (
	"context"
	"net"
)

// At is a point. Any goroutine may pass it, but for that of an event loop.
func At(Point) {}

// Without reports whether a rule is to be left out.
func Without(Rule) bool { return false }

// Route returns the address to connect to instead of addr.
func Route(addr string) string { return addr }

// Dial is what a client dials with instead of dial.
func Dial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return dial
}

// NoPeers reports whether gossip is to reach nobody.
func NoPeers() bool { return false }
