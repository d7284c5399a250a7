package evloop

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestAcceptForOtherLoops: one loop accepts, others serve.
func TestAcceptForOtherLoops(t *testing.T) {
	acceptor := startLoop(t, Config{})
	workers := []*Loop{startLoop(t, Config{}), startLoop(t, Config{})}
	var addr string
	on(t, acceptor, func() {
		next := 0
		n, err := acceptor.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, func(a *Accepted) {
			w := workers[next%len(workers)]
			next++
			if !w.Submit(func() {
				c, err := w.Adopt(a, echo())
				if err != nil || c.Loop() != w {
					t.Errorf("Adopt: %v", err)
				}
				if _, err := w.Adopt(a, echo()); !errors.Is(err, ErrTaken) {
					t.Errorf("a second Adopt: %v", err)
				}
				a.Close() // does nothing now
			}) {
				a.Close()
			}
		})
		if err != nil {
			t.Error(err)
			return
		}
		addr = n.Addr().String()
	})
	for range 10 {
		c := dial(t, addr)
		send(t, c, "hello")
		expect(t, c, "hello")
	}
	for _, w := range workers {
		if n := w.Stats().Conns; n != 5 {
			t.Errorf("a worker has %d connections, want 5", n)
		}
	}
	if n := acceptor.Stats(); n.Accepted != 10 || n.Conns != 0 {
		t.Errorf("acceptor: %+v", n)
	}
}

// TestAcceptedClose: a connection that nobody adopts is closed, and one that is offered to a loop that has ended too.
func TestAcceptedClose(t *testing.T) {
	l := startLoop(t, Config{})
	ended, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ended.Stop()
	refused := make(chan error, 1)
	var n *Listener
	on(t, l, func() {
		n, err = l.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, func(a *Accepted) {
			if len(refused) == 0 {
				_, err := ended.Adopt(a, echo())
				refused <- err
			}
			a.Close()
			a.Close()
			if a.RemoteAddr() == nil {
				t.Error("no remote address")
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	expectEnd(t, dial(t, n.Addr().String()))
	expectEnd(t, dial(t, n.Addr().String()))
	if err := <-refused; !errors.Is(err, ErrLoopStopped) {
		t.Errorf("Adopt on an ended loop: %v", err)
	}
	if _, err := ended.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, nil); !errors.Is(err, ErrLoopStopped) {
		t.Errorf("Listen on an ended loop: %v", err)
	}
}

// TestListenerClose: no more connections, but those that are there live on.
func TestListenerClose(t *testing.T) {
	l := startLoop(t, Config{})
	var n *Listener
	on(t, l, func() {
		var err error
		n, err = l.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, func(a *Accepted) {
			if _, err := l.Adopt(a, echo()); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	c := dial(t, n.Addr().String())
	send(t, c, "a")
	expect(t, c, "a")
	on(t, l, func() { n.Close(); n.Close() })
	if _, err := net.DialTimeout("tcp", n.Addr().String(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling the closed listener: %v", err)
	}
	send(t, c, "b")
	expect(t, c, "b")
}

func TestListenErrors(t *testing.T) {
	l := startLoop(t, Config{})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := socketDir(t)
	if err := os.WriteFile(dir+"/file", []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"/file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cfg  ListenConfig
		want string
	}{
		{ListenConfig{Network: "tcp", Addr: taken.Addr().String()}, "in use"},
		{ListenConfig{Network: "tcp", Addr: "localhost:1"}, "numeric"},
		{ListenConfig{Network: "tcp", Addr: "127.0.0.1:0", Backlog: -1}, "backlog"},
		{ListenConfig{Network: "udp", Addr: "127.0.0.1:0"}, "network"},
		{ListenConfig{Network: "unix", Addr: dir}, "not a socket"},
		{ListenConfig{Network: "unix", Addr: dir + "/file"}, "not a socket"},
		{ListenConfig{Network: "unix", Addr: dir + "/link"}, "not a socket"},
		{ListenConfig{Network: "unix", Addr: dir + "/none/s"}, "no such file"},
		{ListenConfig{Network: "unix", Addr: dir + "/s", Mode: os.ModeDir}, "mode"},
	} {
		on(t, l, func() {
			_, err := l.Listen(test.cfg, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v: got %v, want something about %q", test.cfg, err, test.want)
			}
		})
	}
	if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != "precious" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
	on(t, l, func() {}) // no descriptor may be left, which TestMain sees
}

func TestUnixSocketFile(t *testing.T) {
	dir := socketDir(t)
	path := dir + "/s"
	listenAt := func(l *Loop, mode os.FileMode) (n *Listener, err error) {
		on(t, l, func() {
			n, err = l.Listen(ListenConfig{Network: "unix", Addr: path, Mode: mode}, func(a *Accepted) {
				if _, err := l.Adopt(a, echo()); err != nil {
					t.Error(err)
				}
			})
		})
		return n, err
	}
	l := startLoop(t, Config{})
	first, err := listenAt(l, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := listenAt(l, 0); err == nil {
		t.Error("a socket in use was taken over")
	}
	c := dialNet(t, "unix", path)
	send(t, c, "x")
	expect(t, c, "x")
	on(t, l, first.Close)
	send(t, c, "y")
	expect(t, c, "y")
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}

	// What a process that was killed leaves is replaced.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenAt(l, 0); err == nil {
		t.Error("another program's socket was taken over")
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	second, err := listenAt(l, 0)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != defaultSocketMode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	// What somebody else has put in its place is not removed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	on(t, l, second.Close)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("somebody else's file is gone: %v", err)
	}
}

// TestUnixSocketRace: of many that start at once over a dead socket exactly one listens.
func TestUnixSocketRace(t *testing.T) {
	path := socketDir(t) + "/s"
	for range 20 {
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		_ = dead.Close()
		var loops []*Loop
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		for range 6 {
			l, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			loops = append(loops, l)
			wg.Go(func() {
				if _, err := l.Listen(ListenConfig{Network: "unix", Addr: path}, func(a *Accepted) { a.Close() }); err == nil {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d listen on one path", won)
		}
		if c, err := net.Dial("unix", path); err != nil {
			t.Errorf("nobody answers: %v", err)
		} else {
			_ = c.Close()
		}
		for _, l := range loops {
			l.Stop()
		}
	}
}
