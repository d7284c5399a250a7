package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/internal/failpoint"
)

// poisonLife is how long poison lasts (cache.Config.PoisonTTL).
const poisonLife = 15 * time.Second

// deathAfterCommit kills a sidecar between the commit of a write and its clean-up. Nobody reads the older value then, through any sidecar, although nobody may
// fill the entry. The function that it returns looks whether the entry is filled again once the poison's life is over.
func deathAfterCommit(t *testing.T, c *cluster, r *rig) (afterwards func(t *testing.T)) {
	t.Helper()
	const key = "user:4001"
	victim := c.Sidecars[1]
	readers := []*wire{dial(t, c.Sidecars[0].Redis), dial(t, c.Sidecars[2].Redis)}
	for _, w := range readers {
		w.want(t, "user 4001", "HGET", key, "name")
	}
	server := lookup(t, c.Sidecars[0], key).Cache
	entries := func(w *wire) (kinds string) {
		for _, name := range mustAsk(t, w, []string{"KEYS", "rs:*:" + key}) {
			for name := range strings.FieldsSeq(strings.Trim(name, "[]")) {
				if text := w.do(t, "GET", name); text != "(nil)" {
					kinds += text[:1]
				}
			}
		}
		return kinds
	}
	var redis *wire
	for _, s := range c.Caches {
		if s.Name == server {
			redis = dial(t, s.Addr())
		}
	}
	if kinds := entries(redis); kinds != "V" {
		t.Fatalf("the row is cached as %q", kinds)
	}

	order := failpoint.Order{}
	if err := r.order(victim.Name, func(o *failpoint.Orders) { o.At[failpoint.Cleaning] = order }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // until it has it
	if v, err := dial(t, victim.Redis).ask([]string{"HSET", key, "name", "after"}); err == nil {
		t.Fatalf("the write was answered with %s", show(v[0]))
	}
	killed := time.Now()
	select {
	case <-victim.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the sidecar lives on")
	}
	if err := r.heal(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		for _, w := range readers {
			w.want(t, "after", "HGET", key, "name")
		}
	}
	if kinds := entries(redis); kinds != "P" && time.Since(killed) < poisonLife {
		t.Errorf("the row is cached as %q, want its writer's poison", kinds)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) {
		w := dial(t, c.Sidecars[0].Redis)
		eventually(t, poisonLife+30*time.Second, fmt.Sprintf("%s is cached again", key), func() bool {
			w.want(t, "after", "HGET", key, "name")
			return entries(redis) == "V"
		})
		if took := time.Since(killed); took < poisonLife/2 {
			t.Errorf("the entry was filled %v after the death: its poison did not last", took)
		}
	}
}
