package ring

import (
	"fmt"
	"testing"
)

// BenchmarkOwner is the way of a request: cache key, hash, vnode, table.
func BenchmarkOwner(b *testing.B) {
	p, err := Place(fleet("bench", 10), CacheSalt, DefaultParams())
	if err != nil {
		b.Fatal(err)
	}
	for _, key := range []string{"session:0123456789abcdef", "{user:1234567}:timeline1"} {
		b.Run(fmt.Sprintf("key=%s", key), func(b *testing.B) {
			h := NewHasher()
			k := []byte(key)
			b.ReportAllocs()
			var sum uint64
			for b.Loop() {
				k[20]++
				sum += uint64(p.Owner(h.Vnode(CacheKey(k))))
			}
		})
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, weights := range []uint32{1, 4} {
		for _, n := range []int{3, 10, 100, 1000} {
			b.Run(fmt.Sprintf("weights=1..%d/servers=%d", weights, n), func(b *testing.B) {
				nodes := weighted("bench", n, weights)
				for b.Loop() {
					if _, err := Place(nodes, CacheSalt, DefaultParams()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkHeirs(b *testing.B) {
	p, err := Place(fleet("bench", 100), CacheSalt, DefaultParams())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var v uint16
	for b.Loop() {
		v++
		p.Heirs(v, 2)
	}
}

func BenchmarkPlanShards(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("join/shards=%d", n), func(b *testing.B) {
			nodes := fleet("bench", n+1)
			table, err := PlanShards(nil, nodes[:n], ShardSalt)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := PlanShards(table, nodes, ShardSalt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
