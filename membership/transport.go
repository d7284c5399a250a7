package membership

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"ringside/internal/failpoint"
)

// transport is memberlist's TCP and UDP transport with what it lacks: a deadline on streams that memberlist writes to without one, an end to
// all streams when the sidecar stops (memberlist waits for none of them), and true counts of bytes.
type transport struct {
	inner   *memberlist.NetTransport
	timeout time.Duration // of dialling, and of all that is then done on the stream
	packets chan *memberlist.Packet
	streams chan net.Conn

	packetsOut, packetsIn prometheus.Counter
	streamsOut, streamsIn prometheus.Counter

	ctx    context.Context // ends dialling
	cancel context.CancelFunc
	done   chan struct{} // ends the relays
	stop   sync.Once
	relays sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*stream]struct{}
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen opens the sockets. The port is taken for both TCP and UDP.
func listen(bind string, port int, timeout time.Duration, logger *log.Logger, m *metrics) (*transport, error) {
	inner, err := listenInner(bind, port, logger)
	if err != nil {
		where := net.JoinHostPort(bind, fmt.Sprint(port))
		if strings.Contains(err.Error(), "address already in use") {
			return nil, fmt.Errorf("gossip: %s is in use by another program, perhaps another sidecar: %w", where, err)
		}
		return nil, fmt.Errorf("gossip: cannot listen on %s: %w", where, err)
	}
	t := &transport{
		inner: inner, timeout: timeout,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		packetsOut: m.bytesSent.WithLabelValues("packet"), packetsIn: m.bytesRecv.WithLabelValues("packet"),
		streamsOut: m.bytesSent.WithLabelValues("stream"), streamsIn: m.bytesRecv.WithLabelValues("stream"),
		done: make(chan struct{}), conns: map[*stream]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.relays.Go(t.relayPackets)
	t.relays.Go(t.relayStreams)
	return t, nil
}

// listenInner tries again when the kernel chose a TCP port whose UDP twin is taken.
func listenInner(bind string, port int, logger *log.Logger) (t *memberlist.NetTransport, err error) {
	tries := 1
	if port == 0 {
		tries = 10
	}
	for range tries {
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{bind}, BindPort: port, Logger: logger})
		if err == nil {
			return t, nil
		}
	}
	return nil, err
}

func (t *transport) port() int { return t.inner.GetAutoBindPort() }

func (t *transport) relayPackets() {
	for {
		select {
		case p := <-t.inner.PacketCh():
			if failpoint.NoPeers() {
				continue
			}
			t.packetsIn.Add(float64(len(p.Buf)))
			select {
			case t.packets <- p:
			case <-t.done:
				return
			}
		case <-t.done:
			return
		}
	}
}

func (t *transport) relayStreams() {
	for {
		select {
		case conn := <-t.inner.StreamCh():
			if failpoint.NoPeers() {
				_ = conn.Close()
				continue
			}
			s, err := t.track(conn)
			if err != nil {
				continue // stopping
			}
			select {
			case t.streams <- s:
			case <-t.done:
				_ = s.Close()
				return
			}
		case <-t.done:
			return
		}
	}
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// FinalAdvertiseAddr implements memberlist.Transport. The address was settled before.
func (t *transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	return t.inner.FinalAdvertiseAddr(ip, port)
}

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if failpoint.NoPeers() {
		return time.Now(), nil
	}
	t.packetsOut.Add(float64(len(b)))
	return t.inner.WriteToAddress(b, a)
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. The stream comes with a deadline, since memberlist writes user messages
// without one: a peer that accepts and does not read would hold the sender for ever.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if failpoint.NoPeers() {
		return nil, errors.New("no peers")
	}
	dialer := net.Dialer{Timeout: min(timeout, t.timeout)}
	conn, err := dialer.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(t.timeout)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	s, err := t.track(conn)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// hangUp ends all streams and lets no more begin. Packets still flow, which is all that a goodbye needs.
func (t *transport) hangUp() {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	open := t.conns
	t.conns = map[*stream]struct{}{}
	t.mu.Unlock()
	for s := range open {
		_ = s.Conn.Close()
	}
}

// Shutdown implements memberlist.Transport.
func (t *transport) Shutdown() error {
	t.hangUp()
	err := t.inner.Shutdown() // waits for its listeners, which the relays keep from blocking
	t.stop.Do(func() { close(t.done) })
	t.relays.Wait()
	return err
}

var errHungUp = errors.New("gossip is stopping")

func (t *transport) track(conn net.Conn) (*stream, error) {
	s := &stream{Conn: conn, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close()
		return nil, errHungUp
	}
	t.conns[s] = struct{}{}
	return s, nil
}

// stream counts what passes and takes itself off the transport's list when it is closed.
type stream struct {
	net.Conn
	t *transport
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.t.streamsIn.Add(float64(n))
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.t.streamsOut.Add(float64(n))
	return n, err
}

func (s *stream) Close() error {
	s.t.mu.Lock()
	delete(s.t.conns, s)
	s.t.mu.Unlock()
	return s.Conn.Close()
}

// advertiseIP returns what peers are told to use when nobody said: the address listened on or, when that is all of them, the first private
// one of the machine's, else the first global one; IPv4 before IPv6.
func advertiseIP(bind netip.Addr, interfaces []netip.Addr) (netip.Addr, error) {
	if !bind.IsUnspecified() {
		return bind, nil
	}
	var best netip.Addr
	rank := func(a netip.Addr) int {
		r := 0
		switch {
		case !a.IsGlobalUnicast() || bind.Is4() && !a.Is4():
			return 0
		case a.IsPrivate():
			r = 2
		default:
			r = 1
		}
		if a.Is4() {
			r += 2
		}
		return r
	}
	top := 0
	for _, a := range interfaces {
		if r := rank(a.Unmap()); r > top {
			best, top = a.Unmap(), r
		}
	}
	if top == 0 {
		return best, fmt.Errorf("gossip: listening on %s, but the machine has no address to give to peers; set the advertised address", bind)
	}
	return best, nil
}

// interfaceAddrs lists the machine's addresses.
func interfaceAddrs() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("gossip: cannot list the machine's addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}
