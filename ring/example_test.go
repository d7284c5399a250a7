package ring_test

import (
	"fmt"

	"ringside/ring"
)

func ExamplePlace() {
	caches := []ring.Node{{Name: "c1", Weight: 1}, {Name: "c2", Weight: 1}, {Name: "c3", Weight: 2}}
	placement, err := ring.Place(caches, ring.CacheSalt, ring.DefaultParams())
	if err != nil {
		fmt.Println(err)
		return
	}
	hasher := ring.NewHasher() // one per loop: it is not safe for concurrent use
	for _, key := range []string{"user:42", "{user:42}:posts", "{user:42}:likes"} {
		vnode := hasher.Vnode(ring.CacheKey([]byte(key)))
		owner := placement.Owner(vnode)
		heir := placement.Heirs(vnode, 1)[0]
		fmt.Println(key, "is in vnode", vnode, "of", placement.Names()[owner], "and next of", placement.Names()[heir])
	}
	// Output:
	// user:42 is in vnode 51110 of c2 and next of c1
	// {user:42}:posts is in vnode 51110 of c2 and next of c1
	// {user:42}:likes is in vnode 51110 of c2 and next of c1
}

func ExampleDiff() {
	c1, c2, c3 := ring.Node{Name: "c1", Weight: 1}, ring.Node{Name: "c2", Weight: 1}, ring.Node{Name: "c3", Weight: 1}
	before, err := ring.Place([]ring.Node{c1, c3}, ring.CacheSalt, ring.DefaultParams())
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := ring.Place([]ring.Node{c1, c2, c3}, ring.CacheSalt, ring.DefaultParams())
	if err != nil {
		fmt.Println(err)
		return
	}
	old, err := ring.Reindex(before.Table(), before.Names(), after.Names()) // c3 was number 1 and is number 2 now
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, flow := range ring.Diff(old, after.Table()).Flows {
		fmt.Println(flow.Vnodes, "vnodes from", after.Names()[flow.From], "to", after.Names()[flow.To])
	}
	// Output:
	// 10963 vnodes from c1 to c2
	// 10853 vnodes from c3 to c2
}

func ExamplePlanShards() {
	shards := []ring.Node{{Name: "s1", Weight: 1}, {Name: "s2", Weight: 1}}
	table, err := ring.PlanShards(nil, shards, ring.ShardSalt)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ring.Counts(table, 2))

	shards = append(shards, ring.Node{Name: "s3", Weight: 2})
	next, err := ring.PlanShards(table, shards, ring.ShardSalt)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ring.Counts(next, 3), "after", ring.Diff(table, next).Moved, "moves")
	// Output:
	// [32768 32768]
	// [16384 16384 32768] after 32768 moves
}
