package membership

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// forwarder stands for a NAT: what comes to its address, by UDP or TCP, goes to another one.
type forwarder struct {
	udp      *net.UDPConn
	tcp      net.Listener
	to       atomic.Pointer[string]
	packets  atomic.Int64
	streams  atomic.Int64
	sessions sync.WaitGroup
}

func forward(t *testing.T) *forwarder {
	t.Helper()
	f := &forwarder{}
	var err error
	for range 10 { // until the port is free for both
		if f.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			continue
		}
		f.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(f.tcp.Addr().String())))
		if err == nil {
			break
		}
		_ = f.tcp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	f.sessions.Go(f.passPackets)
	f.sessions.Go(f.passStreams)
	t.Cleanup(func() {
		_ = f.tcp.Close()
		_ = f.udp.Close()
		f.sessions.Wait()
	})
	return f
}

func (f *forwarder) addr() string { return f.tcp.Addr().String() }

func (f *forwarder) passPackets() {
	b := make([]byte, 1<<16)
	for {
		n, _, err := f.udp.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		to := f.to.Load()
		if err != nil || to == nil {
			continue
		}
		f.packets.Add(1)
		_, _ = f.udp.WriteToUDPAddrPort(b[:n], netip.MustParseAddrPort(*to))
	}
}

func (f *forwarder) passStreams() {
	for {
		in, err := f.tcp.Accept()
		if err != nil {
			return
		}
		to := f.to.Load()
		if to == nil {
			_ = in.Close()
			continue
		}
		out, err := net.DialTimeout("tcp", *to, time.Second)
		if err != nil {
			_ = in.Close()
			continue
		}
		f.streams.Add(1)
		_ = in.SetDeadline(time.Now().Add(5 * time.Second))
		_ = out.SetDeadline(time.Now().Add(5 * time.Second))
		f.sessions.Go(func() {
			_, _ = io.Copy(out, in)
			_ = out.(*net.TCPConn).CloseWrite()
		})
		f.sessions.Go(func() {
			_, _ = io.Copy(in, out)
			_, _ = in.Close(), out.Close()
		})
	}
}

// A sidecar that its peers reach at another address than it listens on.
func TestAdvertise(t *testing.T) {
	t.Parallel()
	nat := forward(t)
	a := start(t, "a", func(_ *node, c *Config) { c.Advertise = nat.addr() })
	inner := a.net.NodeAwareTransport.(*transport)
	listening := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(inner.port())).String()
	nat.to.Store(&listening)
	if a.Addr() != nat.addr() || listening == nat.addr() {
		t.Fatalf("a gives peers %s and listens on %s; the advertised address is %s", a.Addr(), listening, nat.addr())
	}
	b := start(t, "b", seeds(a.Addr()))
	c := start(t, "c", seeds(b.Addr())) // knows a's address from b alone
	b.has([]byte("topology"), Hint{Epoch: 3, Digest: "d"})
	eventually(t, time.Minute, "a is known by its advertised address, and has the topology", func() bool {
		atB, _ := b.member("a")
		atC, _ := c.member("a")
		return atB.State == Alive && atC.State == Alive && atB.Addr == nat.addr() && atC.Addr == nat.addr() && string(a.got("b")) == "topology"
	})
	packets := nat.packets.Load()
	eventually(t, time.Minute, "probes go there too", func() bool { return nat.packets.Load() > packets+20 })
	if !b.sees("a", Alive) || !c.sees("a", Alive) || nat.streams.Load() == 0 {
		t.Errorf("%d streams; b knows %v, c %v", nat.streams.Load(), b.Members(), c.Members())
	}
}
