package proxy

import (
	"fmt"
	"testing"
	"time"

	"ringside/cache"
	"ringside/internal/realredis"
	"ringside/shard"
	"ringside/sidecar/topology"
)

// changing is a proxy whose row user:<id> moves from its former server to the third one. The former holds it as "former", the third as "present",
// the shard as "shard".
type changing struct {
	*bench
	key    string
	former *realredis.Server
}

// newChanging publishes the epochs 1 (two servers), 2 (the third is joining) and 3 (it is active).
func newChanging(t *testing.T) *changing {
	t.Helper()
	b := &changing{bench: start(t, 2, func(c *Config) { c.Loops = 1 })}
	third := realredis.T(t)
	one := b.holder.Current()
	two, err := topology.AddCache(one, topology.Cache{Name: "c3", Addr: third.Addr(), Weight: 1})
	if err != nil {
		t.Fatal(err)
	}
	three, err := topology.Activate(two, map[string]string{"c3": runIDAt(t, third.Addr())})
	if err != nil {
		t.Fatal(err)
	}
	for id := 1; ; id++ {
		b.key = fmt.Sprintf("user:%d", id)
		was, err := one.Locate(testKeyspaces(t), []byte(b.key))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := three.Locate(testKeyspaces(t), []byte(b.key)); err != nil || is.Cache != was.Cache {
			b.former = b.caches[one.CacheIndex(was.Cache)]
			break
		}
	}
	b.rows.set(b.key, `"shard"`)
	b.put(b.key, `"former"`, cache.KindValue)
	b.holder.Publish(two)
	b.holder.Publish(three)
	b.caches = append(b.caches, third)
	b.put(b.key, `"present"`, cache.KindValue)
	return b
}

func (b *changing) confirm(v shard.View) {
	b.shards.confirmation.Forget()
	b.shards.confirmation.Confirm(v, time.Now().Add(time.Hour), nil)
}

// Guards P3: a row is read where its own shard's view says, by the topology of that view's epoch.
func TestARowIsReadByTheTopologyThatItsShardIsAt(t *testing.T) {
	b := newChanging(t)
	w := b.dial()
	for round := range 2 { // the second time with what the first has worked out
		for _, c := range []struct {
			view shard.View
			from string
		}{
			{shard.View{Epoch: 1, Phase: shard.Done}, "former"},
			{shard.View{Epoch: 2, Phase: shard.Done, From: 1}, "former"},
			{shard.View{Epoch: 3, Phase: shard.Preparing, From: 2}, "former"},
			{shard.View{Epoch: 3, Phase: shard.Active, From: 2}, "present"},
			{shard.View{Epoch: 3, Phase: shard.Done, From: 2}, "present"},
			{shard.View{Epoch: 3, Phase: shard.Preparing, From: 0}, "shard"}, // nobody knows where it was then
			{shard.View{Epoch: 3, Phase: shard.Active, From: 0}, "present"},
			{shard.View{Epoch: 4, Phase: shard.Done, From: 3}, "shard"}, // a topology that is not known here
		} {
			b.confirm(c.view)
			want := bulk(`"` + c.from + `"`)
			if got := w.do("GET " + b.key); got != want {
				t.Errorf("round %d, %s from %d: %q, want %q", round, c.view, c.view.From, got, want)
			}
			if got := w.do("MGET nothing " + b.key); got != "*2\r\n$-1\r\n"+want {
				t.Errorf("round %d, %s from %d: MGET: %q, want %q", round, c.view, c.view.From, got, want)
			}
		}
	}
}

// Guards P3: what a server answers after the shard has gone on to a view by which the row is read elsewhere does not count. A view that changes
// nothing for the row does not matter.
func TestAnAnswerCountsOnlyWhileItsPlaceIsTheOneToRead(t *testing.T) {
	b := newChanging(t)
	w, other := b.dial(), b.dial()
	preparing := shard.View{Epoch: 3, Phase: shard.Preparing, From: 2}
	for _, c := range []struct {
		name  string
		asked shard.View
		then  shard.View
		from  string
	}{
		{"the same view", preparing, preparing, "former"},
		{"a view by which it is still the place", shard.View{Epoch: 2, Phase: shard.Done, From: 1}, preparing, "former"},
		{"a phase by which it is not", preparing, shard.View{Epoch: 3, Phase: shard.Active, From: 2}, "shard"},
		{"an epoch that is not known", preparing, shard.View{Epoch: 4, Phase: shard.Preparing, From: 3}, "shard"},
		{"no view at all", preparing, shard.View{}, "shard"},
	} {
		for _, command := range []string{"GET", "MGET"} {
			b.confirm(c.asked)
			want := bulk(`"` + c.from + `"`)
			if command == "MGET" {
				want = "*1\r\n" + want
			}
			w.do("GET " + b.key) // the connection is open
			if err := b.former.Pause(); err != nil {
				t.Fatal(err)
			}
			w.send(command + " " + b.key)
			other.want("PING", "+PONG\r\n") // on the same loop: it has taken the command
			b.shards.confirmation.Forget()
			if c.then != (shard.View{}) {
				b.confirm(c.then)
			}
			if err := b.former.Resume(); err != nil {
				t.Fatal(err)
			}
			if got := w.reply(); got != want {
				t.Errorf("%s: %s: %q, want %q", c.name, command, got, want)
			}
		}
	}
}

// A server of an earlier topology that is not part of the present one is not asked: the shard is.
func TestAServerThatIsGoneIsNotAsked(t *testing.T) {
	b := newChanging(t)
	w := b.dial()
	b.confirm(shard.View{Epoch: 1, Phase: shard.Done})
	w.want("GET "+b.key, bulk(`"former"`))
	content := b.holder.Current().Content()
	content.Epoch, content.Caches, content.Former, content.Handovers, content.Handing = 4, content.Caches[2:], nil, nil, topology.PerVnode{}
	four, err := topology.New(content)
	if err != nil {
		t.Fatal(err)
	}
	b.holder.Publish(four)
	w.want("GET "+b.key, bulk(`"shard"`))
}

// BenchmarkRowEntry is what the hit path spends on where a row is: by the present topology, and by an earlier one.
func BenchmarkRowEntry(b *testing.B) {
	bench := start(b, 1, func(c *Config) { c.Loops = 1 })
	one := bench.holder.Current()
	two, err := topology.AddCache(one, topology.Cache{Name: "c2", Addr: "127.0.0.1:1", Weight: 1})
	if err != nil {
		b.Fatal(err)
	}
	bench.holder.Publish(two)
	for _, epoch := range []uint64{2, 1} {
		b.Run(fmt.Sprintf("epoch %d of 2", epoch), func(b *testing.B) {
			bench.shards.confirmation.Forget()
			bench.shards.confirmation.Confirm(shard.View{Epoch: epoch, Phase: shard.Done}, time.Now().Add(time.Hour), nil)
			w := bench.server.workers[0]
			done := make(chan struct{})
			w.loop.Submit(func() {
				defer close(done)
				w.turn()
				key := w.key
				if ok, err := w.server.keyspaces.Match(w.hasher, []byte("user:42"), &key); !ok || err != nil {
					b.Error("user:42 is no row")
					return
				}
				b.ReportAllocs()
				b.ResetTimer()
				var at entryAt
				for b.Loop() {
					if _, ok := w.entry(&key, 2, &at); !ok {
						b.Error("the cache may not be asked")
						return
					}
				}
			})
			<-done
		})
	}
}
