package origin

import (
	"fmt"
	"testing"

	"ringside/shard/keyspace"
)

func BenchmarkLoad(b *testing.B) {
	f := newFixture(b, Config{}, usersTable, `insert into users select n, 'user ' || n from generate_series(1, 10000) n`, `analyze users`)
	ks := users(b)
	for _, n := range []int{1, 10, 100} {
		keys := make([]keyspace.Key, n)
		for i := range keys {
			keys[i] = key(b, ks, fmt.Sprintf("user:%d", 1+i*97))
		}
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := f.Load(b.Context(), "s1", ks, keys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	f := newFixture(b, Config{}, usersTable)
	op := upsert(b, key(b, users(b), "user:1"), `{"name":"x","visits":1}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Write(b.Context(), "s1", at, op, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVnode measures the cost of ringside.vnode on the server, per call.
func BenchmarkVnode(b *testing.B) {
	f := newFixture(b, Config{})
	for _, text := range []string{"123456", "abcdefghijklmnopqrst"} {
		b.Run(fmt.Sprintf("bytes=%d", len(text)), func(b *testing.B) {
			f.exec(`select count(ringside.vnode($1::text || (n % 10)::text)) from generate_series(1, $2::int) n`, text[1:], b.N)
		})
	}
}
