package origin

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Guards P6: who waits for the door has no connection to the server meanwhile, which would have a process for it. Only who was not answered the last time
// dials first, and then holds no place in the door.
func TestNobodyDialsBeforeTheDoor(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	came := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(came)
				return
			}
			came <- conn
		}
	}()
	var asked atomic.Int64
	f := New(Config{ConnectTimeout: 10 * time.Second}, nil, nil)
	defer f.Close()
	f.GuardDoors(func(context.Context, string, int) (func(), bool) {
		asked.Add(1)
		return nil, false
	})
	if err := f.Apply([]ShardConfig{{Name: "s1", DSN: "postgres://ringside@" + l.Addr().String() + "/app?sslmode=disable", MaxConnections: 4}}); err != nil {
		t.Fatal(err)
	}
	p, err := f.pool("s1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.db.Acquire(t.Context()); !isNoSeat(err) || asked.Load() != 1 {
		t.Errorf("%v, and the door was asked %d times", err, asked.Load())
	}
	p.seats.silent.Store(true)
	if _, err := p.db.Acquire(t.Context()); !isNoSeat(err) || asked.Load() != 2 {
		t.Errorf("%v, and the door was asked %d times", err, asked.Load())
	}
	if p.seats.silent.Load() {
		t.Error("a server that takes connections counts as silent")
	}
	_ = l.Close() // ends the goroutine, which has all that came
	n := 0
	for conn := range came {
		_ = conn.Close()
		n++
	}
	if n != 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}
