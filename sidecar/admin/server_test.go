package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of these tests; what they wait for takes milliseconds.
const patience = time.Minute

// start runs a server and returns what stops it and waits for its end.
func start(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		select {
		case err := <-done:
			done <- err // for the next who asks
			return err
		case <-time.After(patience):
			t.Fatal("Run does not return")
			return nil
		}
	}
	t.Cleanup(func() { _ = stop() })
	select {
	case <-s.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("Run ended: %v", err)
	case <-time.After(patience):
		t.Fatal("never ready")
	}
	return stop
}

func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func TestRun(t *testing.T) {
	server := newSetup(t, small(t)).server(t)
	if got := server.Addr(); got != "127.0.0.1:0" {
		t.Errorf("address before it listens: %s", got)
	}
	stop := start(t, server)
	resp, err := client(t).Get("http://" + server.Addr() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(body) != "ok\n" {
		t.Errorf("got %q, %v", body, err)
	}
	if err := stop(); err != nil {
		t.Errorf("a stop that was asked for: %v", err)
	}
	if _, err := net.DialTimeout("tcp", server.Addr(), time.Second); err == nil {
		t.Error("it still listens")
	}
}

func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	s := newSetup(t, small(t))
	asked, release := make(chan struct{}), make(chan struct{})
	s.deps.Members = func() []Member {
		close(asked)
		<-release
		return nil
	}
	server := s.server(t)
	stop := start(t, server)
	code := make(chan int, 1)
	c := client(t)
	go func() {
		resp, err := c.Get("http://" + server.Addr() + "/members")
		if err != nil {
			code <- 0
			return
		}
		_ = resp.Body.Close()
		code <- resp.StatusCode
	}()
	<-asked
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := <-code; got != http.StatusOK {
		t.Errorf("the request that was under way got %d", got)
	}
}

func TestStopIsBounded(t *testing.T) {
	server := newSetup(t, small(t)).server(t)
	stop := start(t, server)
	c, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET /ring HTTP/1.1\r\nHost: "); err != nil { // and never the rest
		t.Fatal(err)
	}
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > stopWithin+patience/2 {
		t.Errorf("stopping took %v", took)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s := newSetup(t, nil)
	s.cfg.Listen = taken.Addr().String()
	err = s.server(t).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "admin.listen "+s.cfg.Listen+" is in use") {
		t.Errorf("got %v", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := &boundedListener{Listener: l, slots: make(chan struct{}, 1)}
	defer func() { _ = bounded.Close() }()
	accepted := make(chan net.Conn, 3)
	go func() {
		defer close(accepted)
		for {
			c, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	}
	dial()
	first := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection beyond the limit is kept")
	}
	_ = first.Close()
	_ = first.Close() // gives back one place, not two
	dial()
	second := <-accepted
	defer func() { _ = second.Close() }()
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("closing twice has made room for two")
	}
}
