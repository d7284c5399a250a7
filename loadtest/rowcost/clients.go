package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ringside/loadtest/gauge"
)

// clients are connections, each for one goroutine.
type clients []*gauge.Conn

// dial connects n clients to the given sidecars in turn.
func (r *rig) dial(ctx context.Context, n int, sidecars ...int) (clients, error) {
	var list clients
	for i := range n {
		c, err := gauge.Dial(ctx, r.cluster.Sidecars[sidecars[i%len(sidecars)]].Redis)
		if err != nil {
			list.hangup()
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

func (l clients) hangup() {
	for _, c := range l {
		c.Hangup()
	}
}

// together has every client do its part at the same time, and returns how long all of them took.
func (l clients) together(part func(i int, c *gauge.Conn) error) (time.Duration, error) {
	return together(len(l), func(i int) error { return part(i, l[i]) })
}

// together runs parts at the same time, all from the same moment on.
func together(n int, part func(i int) error) (time.Duration, error) {
	start := make(chan struct{})
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			errs[i] = part(i)
		})
	}
	began := time.Now()
	close(start)
	group.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

// isRow says what is wrong with the reply to a GET of a row that is there.
func isRow(reply []byte, id int) error {
	for i := range reply {
		if reply[i] == '\n' {
			if want := fmt.Sprintf(`{"id":%d,`, id); len(reply) > i+1+len(want) && string(reply[i+1:i+1+len(want)]) == want {
				return nil
			}
			break
		}
	}
	return fmt.Errorf("user:%d is %.80q", id, reply)
}

func key(id int) string { return fmt.Sprintf("user:%d", id) }

// p50 is the median of times, in ms.
func p50(times [][]time.Duration) float64 {
	all := slices.Concat(times...)
	slices.Sort(all)
	return all[len(all)/2].Seconds() * 1e3
}
