package cache

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"ringside/internal/realredis"
)

// somethingAt listens and does with each connection what do says, until the test ends.
func somethingAt(t *testing.T, do func(c net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			do(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

func TestMeetTellsWhatIsNoRedisServer(t *testing.T) {
	s := watch(t).servers
	meet := func(addr string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(ctxb, within)
		defer cancel()
		_, err := s.Meet(ctx, addr, "", "", nil)
		return err
	}
	says := func(text string) string {
		return somethingAt(t, func(c net.Conn) { _, _ = c.Write([]byte(text)) })
	}
	for _, test := range []struct {
		what, addr string
		want       error
	}{
		{"HTTP", says("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrNotRedis},
		{"SSH", says("SSH-2.0-x\r\n"), ErrNotRedis},
		{"nothing", says(""), ErrNoAnswer},
		{"what ends at a request that it does not know", somethingAt(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4)) }), ErrNoAnswer},
	} {
		if err := meet(test.addr, 10*time.Second); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	over := make(chan struct{})
	silent := somethingAt(t, func(net.Conn) { <-over })
	for within := 100 * time.Millisecond; ; within *= 4 { // it must be connected by then
		err := meet(silent, within)
		if err != nil && err.Error() == "it takes the connection and does not answer" {
			break
		}
		if err == nil || within > 10*time.Second {
			t.Fatalf("silence: %v", err)
		}
	}
	close(over)
}

func TestAnErrorNamesItsServerOnce(t *testing.T) {
	for want, err := range map[string]error{
		"cache server c1: no":                             &ServerError{"c1", errors.New("no")},
		"cache server c1: run_id r1 is not confirmed yet": &ServerError{"c1", &IncarnationError{Server: "c1", Got: "r1"}},
		"cache server c1: cache server c2: no":            &ServerError{"c1", &ServerError{"c2", errors.New("no")}},
	} {
		if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMeetAsksAllThatAWatcherAsks: a server that could not be watched is not to join.
func TestMeetAsksAllThatAWatcherAsks(t *testing.T) {
	r := realredis.T(t)
	db, s := admin(t, r), watch(t).servers
	db.ConfigSet(ctxb, "maxmemory-policy", "noeviction")
	db.ConfigSet(ctxb, "maxmemory", "1")
	if met, err := s.Meet(ctxb, r.Addr(), "", "", nil); err != nil || met.Refuses != "OOM" {
		t.Errorf("a full server: %+v, %v", met, err)
	}
	if err := db.Do(ctxb, "acl", "setuser", "reader", "on", ">pw", "~*", "+@read", "+info", "+hello", "+auth").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Meet(ctxb, r.Addr(), "reader", "pw", nil); !IsNotAllowed(err) {
		t.Errorf("a user that may only read: %v", err)
	}
	if _, err := s.Meet(ctxb, r.Addr(), "reader", "wrong", nil); err == nil || IsNotAllowed(err) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}
