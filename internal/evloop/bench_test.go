package evloop

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"
)

// requestSize is what one request and one reply have.
const requestSize = 100

// counting answers each whole request.
type counting struct{ hooks }

func (h *counting) OnData(c *Conn, in []byte) int {
	n := len(in) / requestSize * requestSize
	c.Write(in[:n])
	return n
}

// BenchmarkEcho is the round trip of 50 clients that keep p requests in flight each. Both sides are in this process: the clients
// are a second loop. us-cpu is the processor time of both.
func BenchmarkEcho(b *testing.B) {
	for _, p := range []int{1, 16} {
		b.Run(fmt.Sprintf("P=%d", p), func(b *testing.B) { benchEcho(b, 50, p) })
	}
}

func benchEcho(b *testing.B, conns, pipeline int) {
	server := startLoop(b, Config{})
	client := startLoop(b, Config{})
	addr := serve(b, server, func() Handler { return &counting{} })
	request := bytes.Repeat([]byte("x"), requestSize)
	var opened, done sync.WaitGroup
	opened.Add(conns)
	done.Add(conns)
	var list []*Conn
	left := 0 // on the client's loop
	dataOf := func() func(c *Conn, in []byte) int {
		inFlight := pipeline
		return func(c *Conn, in []byte) int {
			n := len(in) / requestSize
			for range n {
				inFlight--
				if left > 0 {
					left--
					inFlight++
					c.Write(request)
				}
			}
			if inFlight == 0 {
				done.Done()
			}
			return n * requestSize
		}
	}
	on(b, client, func() {
		for range conns {
			list = append(list, client.Dial("tcp", addr, patience, &hooks{
				open: func(*Conn) { opened.Done() },
				data: dataOf(),
			}))
		}
	})
	opened.Wait()
	b.ReportAllocs()
	cpu := processorTime()
	b.ResetTimer()
	on(b, client, func() {
		left = max(b.N-conns*pipeline, 0)
		for _, c := range list {
			for range pipeline {
				c.Write(request)
			}
		}
	})
	done.Wait()
	b.StopTimer()
	total := max(b.N, conns*pipeline)
	b.ReportMetric(float64((processorTime()-cpu).Nanoseconds())/1e3/float64(total), "us-cpu/op")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLarge echoes one large value at a time.
func BenchmarkLarge(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 32 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			l := startLoop(b, Config{})
			addr := serve(b, l, func() Handler {
				return &hooks{data: func(c *Conn, in []byte) int {
					if len(in) < size {
						c.Want(size)
						return 0
					}
					c.Write(in[:size])
					return size
				}}
			})
			c := dial(b, addr)
			value := make([]byte, size)
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			for b.Loop() {
				_ = c.SetDeadline(time.Now().Add(patience))
				go func() { _, _ = c.Write(value) }()
				if _, err := io.CopyN(io.Discard, c, int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTimerReset is what an idle timeout costs per request.
func BenchmarkTimerReset(b *testing.B) {
	l, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Stop()
	l.running = true // the clock stands still within a turn
	var list []*Timer
	for range 10000 {
		list = append(list, l.AfterFunc(time.Minute, func() {}))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		list[i%len(list)].Reset(time.Minute)
		i++
	}
	l.running = false
}
