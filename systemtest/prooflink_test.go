package systemtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is the way from one sidecar to one server: a listener that passes on what comes, and can be made to fail. What was sent before it fails may arrive
// late, after the sidecar has given up waiting, as on a network.
type link struct {
	addr   string // to connect to
	target string
	listen net.Listener
	group  sync.WaitGroup

	mu       sync.Mutex // guards the following
	closed   bool
	refusing bool
	ends     map[net.Conn]struct{}
	gates    [2]chan struct{} // of what goes to the server, and of what comes back; closed: open to all
	delay    time.Duration
}

// The directions.
const (
	toServer = 0
	toClient = 1
)

func newLink(target string) (*link, error) {
	l := &link{target: target, ends: map[net.Conn]struct{}{}}
	for i := range l.gates {
		l.gates[i] = make(chan struct{})
		close(l.gates[i])
	}
	var err error
	if l.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	l.addr = l.listen.Addr().String()
	l.group.Go(l.accept)
	return l, nil
}

func (l *link) accept() {
	for {
		client, err := l.listen.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		l.group.Go(func() { l.serve(client) })
	}
}

// keep remembers a connection to be cut; false: it is cut at once.
func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.refusing {
		_ = c.Close()
		return false
	}
	l.ends[c] = struct{}{}
	return true
}

func (l *link) drop(c net.Conn) {
	l.mu.Lock()
	delete(l.ends, c)
	l.mu.Unlock()
	_ = c.Close()
}

func (l *link) serve(client net.Conn) {
	defer l.drop(client)
	if !l.keep(client) {
		return
	}
	l.pass(toServer)
	server, err := net.DialTimeout("tcp", l.target, 5*time.Second)
	if err != nil {
		return
	}
	defer l.drop(server)
	if !l.keep(server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { l.pump(client, server, toClient) })
	l.pump(server, client, toServer)
	back.Wait()
}

// pump passes on what comes from src, and its end.
func (l *link) pump(dst, src net.Conn, direction int) {
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		l.pass(direction)
		if n > 0 {
			if _, e := dst.Write(buf[:n]); e != nil {
				err = e
			}
		}
		if err == io.EOF {
			_ = dst.(*net.TCPConn).CloseWrite() // it may be closed
			return
		}
		if err != nil {
			_ = dst.Close()
			_ = src.Close()
			return
		}
	}
}

// pass waits until what goes in that direction may.
func (l *link) pass(direction int) {
	for {
		l.mu.Lock()
		gate, delay := l.gates[direction], l.delay
		l.mu.Unlock()
		time.Sleep(delay)
		select {
		case <-gate:
			return
		default:
			<-gate // and look again: it may have been shut anew
		}
	}
}

// shut holds up what goes in these directions.
func (l *link) shut(directions ...int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range directions {
		select {
		case <-l.gates[d]:
			l.gates[d] = make(chan struct{})
		default: // it is shut already
		}
	}
}

// refuse ends all connections and lets no new ones be.
func (l *link) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = true
	l.cut()
}

// slow makes everything take longer by d.
func (l *link) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// heal lets everything pass again, what was held up too.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open()
}

func (l *link) open() {
	l.refusing, l.delay = false, 0
	for i, gate := range l.gates {
		select {
		case <-gate:
		default:
			close(gate)
		}
		l.gates[i] = gate
	}
}

// cut is called with mu held.
func (l *link) cut() {
	for c := range l.ends {
		_ = c.Close()
	}
}

// close ends it.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	_ = l.listen.Close()
	l.cut()
	l.open()
	l.mu.Unlock()
	l.group.Wait()
}

// A link passes on, holds up, delivers late, and refuses.
func TestProofLink(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until it is closed
			})
		}
	})
	l, err := newLink(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer group.Wait()
	defer echo.Close()
	defer l.close()
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(within time.Duration, want string) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		if n, _ := conn.Read(buf); string(buf[:n]) != want {
			t.Errorf("heard %q, want %q", buf[:n], want)
		}
	}
	say("one")
	hear(30*time.Second, "one")
	for _, direction := range []int{toServer, toClient} {
		l.shut(direction)
		say("two")
		hear(50*time.Millisecond, "")
		l.heal()
		hear(30*time.Second, "two")
	}
	l.refuse()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on")
	}
	again, err := net.Dial("tcp", l.addr)
	if err == nil {
		defer again.Close()
		if _, err = again.Read(make([]byte, 1)); err == nil {
			t.Error("a new connection lives")
		}
	}
}
