package origin

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// Guards P3 of writes that could not put a cached copy out of reach: what is remembered of them comes and goes with them, every confirmation
// knows of it, and an answer that does not say what is remembered is none.
func TestTheOutboxIsPartOfTheShardsWord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	ks := users(t)
	k, other := key(t, ks, "user:1"), key(t, ks, "user:2")
	remember := func() (bool, error) { return true, nil }
	confirmation := f.Confirmation("s1")
	ask := func() {
		t.Helper()
		if _, _, err := f.Topology(t.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
	}
	trusts := func(vnode uint16, want shard.Standing) {
		t.Helper()
		if _, got := confirmation.Trust(time.Now(), time.Minute, vnode); got != want {
			t.Errorf("a row of vnode %d stands %d, want %d", vnode, got, want)
		}
	}
	asked := func() time.Time {
		_, at := confirmation.View()
		return at
	}

	ask()
	trusts(k.CacheVnode, shard.Current)
	if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"a"}`), func() (bool, error) { return true, errors.New("refused") }); err == nil {
		t.Error("a refusal that remembers is none")
	}
	if got := f.text(`select count(*)::text from ringside.outbox`); got != "0" {
		t.Errorf("%s rows are remembered of a write that was rolled back", got)
	}
	before := asked()
	if out, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"b"}`), remember); err != nil || !out.Inserted {
		t.Fatalf("%+v, %v", out, err)
	}
	if !asked().Equal(before) {
		t.Error("the write confirms that nothing is withheld")
	}
	for what, act := range map[string]func() error{
		"a load": func() error { _, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{k, other}); return err },
		"a write of another row": func() error {
			_, err := f.Write(t.Context(), "s1", at, upsert(t, other, `{"name":"c"}`), nil)
			return err
		},
	} {
		if err := act(); err != nil {
			t.Fatal(err)
		}
		if !asked().Equal(before) {
			t.Errorf("%s confirms although it does not say what is withheld", what)
		}
	}
	ask()
	trusts(k.CacheVnode, shard.Avoided)
	trusts(other.CacheVnode, shard.Current)
	if p := f.Pools()[0]; p.Outbox != 1 || p.OldestRow <= 0 {
		t.Errorf("the pool tells of %d rows, the oldest of %v", p.Outbox, p.OldestRow)
	}

	old := f.text(`select id::text from ringside.outbox`)
	for range 3 { // a row once, whoever sees to it now having to do it again
		if err := f.Remember(t.Context(), "s1", &k); err != nil {
			t.Fatal(err)
		}
		if err := f.Remember(t.Context(), "s1", &other); err != nil {
			t.Fatal(err)
		}
	}
	f.setOwner(k.ShardVnode, "closed")
	if err := f.Remember(t.Context(), "s1", &k); !errors.Is(err, shard.ErrNotOwner) {
		t.Errorf("a row that has moved: %v", err)
	}
	f.setOwner(k.ShardVnode, "owned")
	if got := f.text(`select count(*)::text from ringside.outbox where id > $1::bigint`, old); got != "2" {
		t.Errorf("%s rows are remembered anew, want 2", got)
	}
	if young, err := f.Outbox(t.Context(), "s1", time.Hour, 10); err != nil || len(young) != 0 {
		t.Errorf("%v, %v", young, err)
	}
	list, err := f.Outbox(t.Context(), "s1", 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, r := range list {
		if string(r.Key) == "user:1" {
			if err := f.Settled(t.Context(), "s1", []int64{r.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask()
	trusts(k.CacheVnode, shard.Current)
	trusts(other.CacheVnode, shard.Avoided)
	f.exec(`delete from ringside.outbox`)
	before = asked()
	if _, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{k}); err != nil {
		t.Fatal(err)
	}
	if !asked().After(before) {
		t.Error("a load does not confirm that nothing is withheld any more")
	}
	trusts(other.CacheVnode, shard.Current)
}

// Guards P6: a full outbox refuses the write.
func TestTheOutboxIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	k := key(t, users(t), "user:1")
	f.exec(fmt.Sprintf(`insert into ringside.outbox (key, vnode, shard_vnode) select 'x', n, 0 from generate_series(1, %d) n`, OutboxLimit))
	_, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"a"}`), func() (bool, error) { return true, nil })
	if !errors.Is(err, ErrOutboxFull) || f.text(`select count(*)::text from users`) != "0" {
		t.Errorf("%v; %s rows", err, f.text(`select count(*)::text from users`))
	}
	if err := f.Remember(t.Context(), "s1", &k); !errors.Is(err, ErrOutboxFull) {
		t.Errorf("%v", err)
	}
	if _, _, err := f.Topology(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if withheld, _ := f.Confirmation("s1").Withheld(); withheld.Len() != OutboxLimit {
		t.Errorf("%d vnodes are withheld", withheld.Len())
	}
}
