//go:build failpoint

package failpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// look is how often the file is looked at.
const look = 5 * time.Millisecond

// orders are Orders that are carried out.
type orders struct {
	Orders
	passed map[Point]*atomic.Int64
}

var present = sync.OnceValue(follow)

// follow reads the file, and goes on reading it for as long as the program runs.
func follow() *atomic.Pointer[orders] {
	now := &atomic.Pointer[orders]{}
	path := os.Getenv(Environment)
	if path == "" {
		now.Store(&orders{})
		return now
	}
	last := read(path, now, nil)
	go func() {
		for range time.Tick(look) {
			last = read(path, now, last)
		}
	}()
	return now
}

func read(path string, now *atomic.Pointer[orders], last os.FileInfo) os.FileInfo {
	info, err := os.Stat(path)
	if err == nil && last != nil && os.SameFile(info, last) && info.ModTime().Equal(last.ModTime()) {
		return last
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	o := &orders{passed: map[Point]*atomic.Int64{}}
	if err == nil {
		err = json.Unmarshal(text, &o.Orders)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %v", Environment, err))
	}
	for p := range o.At {
		o.passed[p] = &atomic.Int64{}
	}
	now.Store(o)
	return info
}

// At is a point. Any goroutine may pass it, but for that of an event loop.
func At(p Point) {
	o := present().Load()
	order, ok := o.At[p]
	if !ok {
		return
	}
	n := o.passed[p].Add(1)
	switch {
	case n <= int64(order.After):
	case order.Sleep > 0:
		time.Sleep(time.Duration(order.Sleep) * time.Millisecond)
	default:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// Without reports whether a rule is to be left out.
func Without(r Rule) bool { return slices.Contains(present().Load().Orders.Without, r) }

// Route returns the address to connect to instead of addr.
func Route(addr string) string {
	if other, ok := present().Load().Routes[addr]; ok {
		return other
	}
	return addr
}

// Dial is what a client dials with instead of dial.
func Dial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dial(ctx, network, Route(addr))
	}
}

// NoPeers reports whether gossip is to reach nobody.
func NoPeers() bool { return present().Load().Orders.NoPeers }
