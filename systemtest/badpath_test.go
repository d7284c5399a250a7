//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/localcluster"
)

// badPath is a cluster of five sidecars, of which the last one loses its path to one cache server: what it connects to there is a link of its own.
type badPath struct {
	*cluster
	server string
	hurt   *localcluster.Sidecar
	link   *link
	epoch  uint64
	rows   []string // whose entries are on that server
	plain  []string // keys on it
	other  string   // a plain key on another one
}

// downAfter is how long a server may be silent before a sidecar votes against it: this test needs several times as long.
const downAfter = 2 * time.Second

func newBadPath(t *testing.T) *badPath {
	t.Helper()
	r := newRig(t)
	b := &badPath{cluster: own(t, func(o *localcluster.Options) {
		o.Binary, o.Env, o.Sidecars, o.Config = failing(t), r.env, 5, fmt.Sprintf("limits: { cache_down_after: %v, %s }\n", downAfter, hold)
	})}
	b.server, b.hurt = b.Caches[1].Name, b.Sidecars[4]
	b.link = r.link(b.hurt.Name, b.server)
	w := dial(t, b.hurt.Redis)
	for id := 1; len(b.rows) < 30; id++ {
		if key := fmt.Sprintf("user:%d", id); lookup(t, b.hurt, key).Cache == b.server {
			b.rows = append(b.rows, key)
			w.want(t, fmt.Sprintf("user %d", id), "HGET", key, "name")
		}
	}
	for n := 0; len(b.plain) < 30 || b.other == ""; n++ {
		key := fmt.Sprintf("plain:%d", n)
		if lookup(t, b.hurt, key).Cache == b.server {
			b.plain = append(b.plain, key)
		} else {
			b.other = key
		}
		w.want(t, "OK", "SET", key, key)
	}
	b.epoch = b.ring(t, b.hurt).Epoch
	return b
}

func (b *badPath) ring(t *testing.T, s *localcluster.Sidecar) ringState {
	t.Helper()
	r, err := ringOf(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// votes is how many sidecars vote against the server, as one of them sees it.
func (b *badPath) votes(t *testing.T, s *localcluster.Sidecar) int {
	t.Helper()
	var p struct {
		Servers []struct {
			Name  string
			Votes []string
		}
	}
	if err := json.Unmarshal(get(t, s, "/changes"), &p); err != nil {
		t.Fatal(err)
	}
	for _, server := range p.Servers {
		if server.Name == b.server {
			return len(server.Votes)
		}
	}
	t.Fatalf("%s does not know %s", s.Name, b.server)
	return 0
}

// stays fails the test if the ring has changed for anybody.
func (b *badPath) stays(t *testing.T) {
	t.Helper()
	for _, s := range b.Sidecars {
		r := b.ring(t, s)
		if r.Epoch != b.epoch {
			t.Fatalf("on %s epoch %d became %d", s.Name, b.epoch, r.Epoch)
		}
		if state, _ := cacheState(s, b.server); state != "active" {
			t.Fatalf("on %s %s is %s", s.Name, b.server, state)
		}
	}
}

// serves reads everything on the server again and again until stop, through a sidecar with a good path. No answer is wrong or refused, but that a machine
// with too much to do may shed one row in a hundred.
func (b *badPath) serves(t *testing.T, s *localcluster.Sidecar, stop <-chan struct{}) (commands int, slowest time.Duration) {
	shed := 0
	defer func() {
		if shed > 1+commands/300 {
			t.Errorf("%s: %d rows of %d were shed", s.Name, shed, commands/3)
		}
	}()
	w, err := open(s.Redis)
	if err != nil {
		t.Error(err)
		return
	}
	defer w.close()
	for {
		for i := range b.rows {
			select {
			case <-stop:
				return commands, slowest
			case <-time.After(20 * time.Millisecond):
			}
			begun := time.Now()
			v, err := w.ask([]string{"HGET", b.rows[i], "name"}, []string{"GET", b.plain[i]}, []string{"SET", b.plain[i], b.plain[i]})
			if err != nil {
				t.Errorf("%s: %v", s.Name, err)
				return
			}
			overloaded := strings.HasPrefix(show(v[0]), "-OVERLOADED")
			if overloaded {
				shed++
			}
			if name := "user " + strings.TrimPrefix(b.rows[i], "user:"); i > 0 && show(v[0]) != name && !overloaded || show(v[1]) != b.plain[i] || show(v[2]) != "OK" {
				t.Errorf("%s: %s, %s, %s", s.Name, show(v[0]), show(v[1]), show(v[2]))
			}
			commands, slowest = commands+len(v), max(slowest, time.Since(begun))
		}
	}
}

// Guards P3 and P7: one sidecar of five loses its path to one cache server, so that nothing comes back any more, or that no connection can be made. No key moves
// because of it, the other four serve all that is on that server, and the one that cannot reach it serves rows from their shards, says so where it cannot
// serve plain keys, and is well again by itself when the path is.
func TestMotionStaysWhenOneSidecarLosesItsPath(t *testing.T) {
	b := newBadPath(t)
	for _, fault := range []struct {
		what string
		hurt func()
		last time.Duration
	}{
		{"nothing passes", func() { b.link.shut(toServer, toClient) }, 6 * downAfter},
		{"nothing comes back", func() { b.link.shut(toClient) }, downAfter},
		{"connections are refused", b.link.refuse, downAfter},
	} {
		if !t.Run(fault.what, func(t *testing.T) { b.lose(t, fault.hurt, fault.last) }) {
			return
		}
	}
}

func (b *badPath) lose(t *testing.T, hurt func(), last time.Duration) {
	stop := make(chan struct{})
	var good sync.WaitGroup
	defer good.Wait()
	defer close(stop)
	for _, s := range b.Sidecars[:4] {
		good.Go(func() {
			commands, slowest := b.serves(t, s, stop)
			t.Logf("%s: %d commands, the slowest took %v", s.Name, commands, slowest.Round(time.Millisecond))
		})
	}
	writer, reader := dial(t, b.Sidecars[0].Redis), dial(t, b.hurt.Redis)
	hurt()
	begun := time.Now()
	read := func(n int) time.Duration {
		t.Helper()
		asked := time.Now()
		key := b.rows[n%len(b.rows)]
		if n%len(b.rows) == 0 { // what others have written meanwhile is seen
			want := fmt.Sprintf("user as of %v", time.Since(begun))
			writer.want(t, ":0", "HSET", key, "name", want)
			asked = time.Now()
			reader.want(t, want, "HGET", key, "name")
		} else {
			reader.want(t, "user "+strings.TrimPrefix(key, "user:"), "HGET", key, "name")
		}
		return time.Since(asked)
	}
	refused := func(reply, what string) {
		t.Helper()
		if !strings.HasPrefix(reply, "-CACHEDOWN "+b.server) {
			t.Errorf("%s: %s", what, reply)
		}
	}
	first := read(1)
	refused(reader.do(t, "GET", b.plain[0]), "the first plain key")
	eventually(t, time.Minute, "its vote is known to the others", func() bool { return b.votes(t, b.Sidecars[0]) == 1 && b.votes(t, b.hurt) == 1 })
	voted := time.Since(begun)
	var slowest time.Duration
	for n := 0; time.Since(begun) < last+voted; n++ {
		slowest = max(slowest, read(n))
		refused(reader.do(t, "GET", b.plain[n%len(b.plain)]), "a plain key")
		reader.want(t, ":0", "HSET", b.rows[n%len(b.rows)], "visits", "1") // remembered by the shard, since its copy is out of reach
		reader.want(t, b.other, "GET", b.other)
		if n%20 == 0 {
			b.stays(t)
		}
		if n := b.votes(t, b.Sidecars[n%4]); n != 1 {
			t.Errorf("%d vote against %s", n, b.server)
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.stays(t)
	t.Logf("the first row took %v, later ones at most %v; it voted after %v, and nothing moved for %v", first.Round(time.Millisecond), slowest.Round(time.Millisecond),
		voted.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))

	b.link.heal()
	healed := time.Now()
	eventually(t, time.Minute, "plain keys again", func() bool { return reader.do(t, "GET", b.plain[0]) == b.plain[0] })
	eventually(t, time.Minute, "rows written again", func() bool { return !strings.HasPrefix(reader.do(t, "HSET", b.rows[1], "visits", "1"), "-") })
	eventually(t, time.Minute, "no vote any more", func() bool { return b.votes(t, b.Sidecars[0]) == 0 && b.votes(t, b.hurt) == 0 })
	for i, key := range b.plain {
		reader.want(t, key, "GET", key)
		read(i)
	}
	eventually(t, time.Minute, "rows are read from the server again", func() bool {
		before := b.hits(t)
		read(2)
		return b.hits(t) > before
	})
	b.stays(t)
	t.Logf("well again within %v", time.Since(healed).Round(time.Millisecond))
}

// hits is how many rows the hurt sidecar has answered from the cache.
func (b *badPath) hits(t *testing.T) int {
	t.Helper()
	return counterOf(t, b.hurt, "ringside_row_hits_total")
}
