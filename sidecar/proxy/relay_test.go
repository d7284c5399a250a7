package proxy

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// patterned is a value in which every piece differs from every other.
func patterned(size, seed int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%d/%d ", seed, i)
	}
	return b.String()[:size]
}

// Values on both sides of the limit from which they are passed on in pieces come whole and in order among others, also several of them in
// one pipeline and from several servers.
func TestLargeValuesComeWholeAndInOrder(t *testing.T) {
	b := start(t, 3, nil)
	sizes := []int{0, 1, 64 << 10, relayFrom - 100, relayFrom - 13, relayFrom - 12, relayFrom - 11, relayFrom, relayFrom + 1, 1 << 20, 3<<20 + 17}
	setUp := b.dial()
	var gets, want []byte
	for i, size := range sizes {
		value := patterned(size, i)
		key := fmt.Sprintf("large:%d", i)
		setUp.write(string(resp.AppendCommandString(nil, "SET", key, value)))
		if reply := setUp.reply(); reply != "+OK\r\n" {
			t.Fatalf("SET of %d bytes: %q", size, reply)
		}
		for _, asked := range []string{"none", key, "none", key} {
			gets = resp.AppendCommandString(gets, "GET", asked)
		}
		want = append(append(append(want, "$-1\r\n"...), bulk(value)...), append([]byte("$-1\r\n"), bulk(value)...)...)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			w := dial(t, b.addr)
			if err := w.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Error(err)
				return
			}
			if _, err := w.conn.Write(gets); err != nil {
				t.Error(err)
				return
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(w.conn, got); err != nil {
				t.Error(err)
				return
			}
			if string(got) != string(want) {
				t.Error("the replies are not the values in their order")
			}
		})
	}
	all.Wait()
}

// A server that fails in the middle of a value costs the client that was given the first half its connection, and nobody else more than an
// error; a client that leaves in the middle costs nobody anything.
func TestServerFailsInTheMiddleOfAValue(t *testing.T) {
	const size = 1 << 20
	value := patterned(size, 1)
	half := bulk(value)[:size/2]
	hold := make(chan bool)
	s := fake(t, func(args []string) string {
		switch {
		case args[0] == "GET" && args[1] == "half":
			return half
		case args[0] == "GET" && args[1] == "odd":
			return bulk(value)[:size] + strings.Repeat("x", 1000)
		case args[0] == "GET" && args[1] == "then":
			<-hold
			return closeIt
		case args[0] == "GET" && args[1] == "whole":
			return bulk(value)
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: fakeRunID}}, func(c *Config) { c.Loops = 1 })
	cutMiddle, waits := b.dial(), b.dial()
	cutMiddle.send("GET half")
	got := make([]byte, size/4)
	if _, err := io.ReadFull(cutMiddle.conn, got); err != nil { // it comes before the value is whole
		t.Fatal(err)
	}
	waits.send("GET then")
	close(hold)
	rest, err := io.ReadAll(cutMiddle.conn)
	if err != nil || !strings.HasPrefix(half, string(got)+string(rest)) {
		t.Errorf("the cut client got %d bytes and %v, want what there was of the value, at most %d bytes, and the end", len(got)+len(rest), err, len(half))
	}
	if reply := waits.reply(); !strings.HasPrefix(reply, "-CACHEDOWN") {
		t.Errorf("who waited behind it got %.40q, want CACHEDOWN", reply)
	}

	odd := b.dial()
	waitUntilUp(t, odd)
	odd.send("GET odd")
	if rest, err := io.ReadAll(odd.conn); err != nil || len(rest) > size {
		t.Errorf("a value without its end came with %d bytes, %v", len(rest), err)
	}

	leaves, stays := b.dial(), b.dial()
	waitUntilUp(t, stays)
	leaves.send("GET whole")
	if _, err := io.ReadFull(leaves.conn, got); err != nil {
		t.Fatal(err)
	}
	if err := leaves.conn.Close(); err != nil {
		t.Fatal(err)
	}
	stays.send("GET whole")
	if reply := stays.reply(); reply != bulk(value) {
		t.Errorf("after a client has left in the middle the next one got %d bytes", len(reply))
	}
}

// waitUntilUp returns when the server is asked again after a failure.
func waitUntilUp(t *testing.T, w *wire) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		w.send("SET key value")
		if w.reply() == "+OK\r\n" {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the server is not asked again")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
