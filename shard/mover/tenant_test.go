package mover

import (
	"hash/crc32"
	"math"
	"strconv"
	"testing"
	"time"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/origin"
)

// The exercise of the hot tenant: events of 500 tenants, tenant 7 has 40% of them. Tenants are in 16 groups, by crc32 of their number; groups 0 to 7 begin on the first
// shard, the others on the second. A third one takes six groups, then the hot tenant, then gives the groups back.

const hotTenant = "7"

// third are the groups that go to the third shard and back: their tenants are 190 of the 500.
var third = map[uint32]bool{0: true, 1: true, 7: true, 8: true, 9: true, 11: true}

func groupOf(tenant int) uint32 { return crc32.ChecksumIEEE([]byte(strconv.Itoa(tenant))) % 16 }

// tenantVnodes lists the vnodes of the tenants of which which is true.
func tenantVnodes(which func(group uint32) bool) (out []uint16) {
	seen := map[uint16]bool{}
	for tenant := 1; tenant <= 500; tenant++ {
		if v := vnodeOf(strconv.Itoa(tenant)); which(groupOf(tenant)) && !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

func newTenantRig(t testing.TB, events int) *rig {
	r := newRig(t, 0, eventsTable)
	for name := range r.dsn {
		r.exec(name, `select ringside.attach('events', 'tenant')`)
	}
	r.dsn["s3"] = realpg.T(t).Database(t)
	r.sql["s3"] = connect(t, r.dsn["s3"])
	r.exec("s3", countersTable)
	r.exec("s3", eventsTable)
	var all []origin.ShardConfig
	for name, dsn := range r.dsn {
		all = append(all, origin.ShardConfig{Name: name, DSN: dsn, MaxConnections: 16})
	}
	if err := r.fleet.Apply(all); err != nil {
		t.Fatal(err)
	}
	if err := r.fleet.Install(t.Context(), "s3", shard.View{Epoch: 7, Phase: shard.Done}, []byte("topology"), nil); err != nil {
		t.Fatal(err)
	}
	r.exec("s3", `select ringside.attach('counters', 'id'), ringside.attach('events', 'tenant')`)
	second := tenantVnodes(func(group uint32) bool { return group >= 8 })
	r.exec("s1", `delete from ringside.owner where vnode = any($1)`, numbersOf(second))
	r.exec("s2", `insert into ringside.owner (vnode, state, epoch) select n, 'owned', 7 from unnest($1::int[]) n`, numbersOf(second))
	r.mu.Lock()
	for _, v := range second {
		r.ring.Owners[v] = 1
	}
	r.ring.Shards, r.ring.Weights = []string{"s1", "s2", "s3"}, []uint32{1, 1, 1}
	r.mu.Unlock()
	for _, name := range []string{"s1", "s2"} {
		r.exec(name, `insert into events select t::text, i, 'event ' || i from (
	select i, case when i % 5 < 2 then 7 else 1 + (i / 5 * 3 + i % 5 - 2) % 500 end as t from generate_series(0, $1 - 1) i) x
where exists (select from ringside.owner o where o.vnode = ringside.vnode(t::text))`, events)
		r.exec(name, `analyze events`)
	}
	return r
}

// shares checks the shares of the three shards in the events, in percent, within half a point of each; and how many tenants each has.
func (r *rig) shares(when string, want [3]float64, tenants [3]int) {
	r.t.Helper()
	var rows, each [3]float64
	var sum float64
	for i, name := range []string{"s1", "s2", "s3"} {
		n, err := strconv.Atoi(r.text(name, `select count(*)::text from events`))
		distinct, err2 := strconv.Atoi(r.text(name, `select count(distinct tenant)::text from events`))
		if err != nil || err2 != nil {
			r.t.Fatal(err, err2)
		}
		rows[i], each[i] = float64(n), float64(distinct)
		sum += float64(n)
	}
	for i := range rows {
		if share := 100 * rows[i] / sum; math.Abs(share-want[i]) > 0.5 || math.Abs(each[i]-float64(tenants[i])) > 2 { // two tenants may share a vnode
			r.t.Errorf("%s: shard %d has %.1f%% of the events, of %.0f tenants; want %.1f%%, %d", when, i+1, share, each[i], want[i], tenants[i])
		}
	}
	r.t.Logf("%s: %.1f / %.1f / %.1f %%, tenants %v", when, 100*rows[0]/sum, 100*rows[1]/sum, 100*rows[2]/sum, each)
}

// hotTenantExercise carries it out. It returns how long the tenant's move took.
func hotTenantExercise(r *rig) (took time.Duration) {
	m := r.mover("a", nil)
	r.start(m)
	move := func(want Request) time.Duration {
		begun := time.Now()
		id, _, err := m.Start(r.t.Context(), want)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, p := range r.await(id) {
			if p.State != catalog.PartDone {
				r.t.Fatalf("%s: %+v", p.State, p.Progress)
			}
		}
		return time.Since(begun)
	}
	r.shares("on two shards", [3]float64{72.1, 27.9, 0}, [3]int{268, 232, 0})
	move(Request{To: "s3", Vnodes: tenantVnodes(func(group uint32) bool { return third[group] })})
	r.shares("on three", [3]float64{59.9, 17.4, 22.7}, [3]int{166, 144, 190})
	took = move(Request{Key: hotTenant, To: "s3"})
	r.shares("with an override alone", [3]float64{19.8, 17.4, 62.8}, [3]int{165, 144, 191})
	move(Request{To: "s1", Vnodes: tenantVnodes(func(group uint32) bool { return third[group] && group < 8 })})
	move(Request{To: "s2", Vnodes: tenantVnodes(func(group uint32) bool { return third[group] && group >= 8 })})
	r.shares("with a shard of its own", [3]float64{32.0, 27.9, 40.1}, [3]int{267, 232, 1})
	r.mu.Lock()
	r.ring.Weights = []uint32{1, 0, 0}
	r.mu.Unlock()
	if p, err := m.Plan(r.t.Context(), Request{}); err != nil || len(p.Parts) != 1 || p.Parts[0].From != "s2" {
		r.t.Errorf("a shard without weight and vnodes keeps its override: %+v, %v", p, err)
	}
	r.check()
	return took
}

// What an override does for a hot tenant, and what it does not: alone it takes the heat elsewhere; the shard must be the tenant's alone.
func TestTheHotTenant(t *testing.T) {
	t.Parallel()
	hotTenantExercise(newTenantRig(t, 10_000))
}

func BenchmarkTheHotTenant(b *testing.B) {
	for range b.N {
		b.StopTimer()
		r := newTenantRig(b, 300_000)
		b.StartTimer()
		took := hotTenantExercise(r)
		b.ReportMetric(took.Seconds(), "s/override")
		if n, err := strconv.Atoi(r.text("s3", `select count(*)::text from events`)); err == nil {
			b.ReportMetric(float64(n)/took.Seconds(), "rows/s")
		}
	}
}
