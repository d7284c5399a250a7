package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringside/internal/realredis"
	"ringside/resp"
	"ringside/sidecar/topology"
)

// A scan by cursors passes over no page of a server that stays, whatever joins and leaves meanwhile, and ends.
func TestScanCursorsSurviveChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,6}`), 1, 12, rapid.ID).Draw(t, "names")
		pages := map[string]int{}
		for _, n := range names {
			pages[n] = rapid.IntRange(1, 4).Draw(t, "pages of "+n)
		}
		here := map[string]bool{}
		for _, n := range names {
			here[n] = rapid.Bool().Draw(t, n+" is here")
		}
		stayed := maps.Clone(here)
		seen := map[string]int{}
		cursor := uint64(0)
		for step := 0; step == 0 || cursor != 0; step++ {
			if step > 100 {
				t.Fatal("the scan does not end")
			}
			if step > 0 && rapid.IntRange(0, 2).Draw(t, "change") == 0 {
				n := rapid.SampledFrom(names).Draw(t, "who")
				here[n] = !here[n]
				stayed[n] = stayed[n] && here[n]
			}
			var now []string
			for n := range here {
				if here[n] {
					now = append(now, n)
				}
			}
			plan := &scanPlan{passes: [2][]scanServer{passOwners: scanOrder(now)}}
			at, more := plan.resume(cursor)
			if !more {
				break
			}
			own := at.own
			name := now[plan.passes[passOwners][at.place].index]
			if int(own) != seen[name] && stayed[name] {
				t.Fatalf("%s is asked for page %d after %d", name, own, seen[name])
			}
			seen[name] = int(own) + 1
			if own++; int(own) >= pages[name] {
				own = 0
			}
			var err error
			if cursor, err = plan.next(at, own); err != nil {
				t.Fatal(err)
			}
		}
		for n := range stayed {
			if stayed[n] && seen[n] != pages[n] {
				t.Fatalf("%d of %d pages of %s were seen", seen[n], pages[n], n)
			}
		}
	})
}

func TestScanCursorsFit(t *testing.T) {
	plan := &scanPlan{passes: [2][]scanServer{passOwners: scanOrder([]string{"c1", "c2", "c3"})}}
	for _, own := range []uint64{1, 1<<28 - 1, cursorMax} {
		for change := range uint64(changeMask + 1) {
			plan.change = change
			at := spot{pass: passOwners, place: 1, own: own}
			c, err := plan.next(at, own)
			if err != nil || c > 1<<63-1 || own < 1<<28 && c >= 1<<53 {
				t.Errorf("own cursor %d gives %d, %v", own, c, err)
			}
			if back, more := plan.resume(c); !more || back != at {
				t.Errorf("cursor %d leads to %+v, want %+v", c, back, at)
			}
		}
	}
	if c, err := plan.next(spot{pass: passOwners, place: 1}, cursorMax+1); err == nil {
		t.Errorf("a cursor of 2^38 gives %d", c)
	}
	if c, err := plan.next(spot{pass: passOwners, place: 2}, 0); c != 0 || err != nil {
		t.Errorf("the last page of the last server gives %d, %v", c, err)
	}
	var names []string
	for i := range 3000 { // about one pair of equal hashes
		names = append(names, fmt.Sprint("server", i))
	}
	tags := map[uint32]bool{0: true}
	for _, s := range scanOrder(names) {
		if tags[s.tag] || s.tag > tagMask {
			t.Errorf("tag %d is 0, taken or too large", s.tag)
		}
		tags[s.tag] = true
	}
}

// scanAll scans from beginning to end and returns the names, sorted, each once. between is called before each further page.
func scanAll(t testing.TB, w *wire, options string, between func(page int)) []string {
	t.Helper()
	names := map[string]bool{}
	cursor := "0"
	for page := 0; ; page++ {
		if page > 10000 {
			t.Fatal("the scan does not end")
		}
		if page > 0 && between != nil {
			between(page)
		}
		v, _, err := resp.Decode([]byte(w.do("SCAN " + cursor + options)))
		if err != nil || len(v.Elems) != 2 {
			t.Fatalf("SCAN %s: %v %v", cursor, v, err)
		}
		for _, e := range v.Elems[1].Elems {
			names[e.Text] = true
		}
		if cursor = v.Elems[0].Text; cursor == "0" {
			return slices.Sorted(maps.Keys(names))
		}
		if _, err := strconv.ParseInt(cursor, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
}

// fill sets plain keys through the proxy and puts names on every server that are none: entries of rows, rows' names, and keys of
// other owners. It returns the plain keys, sorted.
func fill(t testing.TB, b *bench, n int) []string {
	t.Helper()
	w := b.dial()
	var keys, out []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key:%d", i))
		out = append(out, "SET "+keys[i]+" x")
	}
	w.send(out...)
	for range out {
		if got := w.reply(); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	topo := b.holder.Current()
	for i, s := range b.caches {
		direct := dial(t, s.Addr())
		for j := range 50 {
			direct.want(fmt.Sprintf("SET rs:1.1:user:%d V", j), "+OK\r\n")
		}
		direct.want("SET user:7 old", "+OK\r\n")
		direct.want("SET user:007 old", "+OK\r\n")
		for j := 0; j < 1000 && len(b.caches) > 1; j++ {
			key := fmt.Sprintf("left:%d", j)
			if l, err := topo.Locate(testKeyspaces(t), []byte(key)); err == nil && l.Cache != fmt.Sprintf("c%d", i+1) {
				direct.want("SET "+key+" old", "+OK\r\n")
				break
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func TestScanShowsThePlainKeysOfAllServers(t *testing.T) {
	b := start(t, 3, nil)
	keys := fill(t, b, 3000)
	w := b.dial()
	w.want("LPUSH list 1", ":1\r\n")
	for proto := 2; proto <= 3; proto++ {
		w.do(fmt.Sprintf("HELLO %d", proto))
		all := append(slices.Clone(keys), "list")
		slices.Sort(all)
		for options, want := range map[string][]string{
			"": all, " COUNT 1000": all, " COUNT 999999999": all, " TYPE list": {"list"}, " MATCH li?t COUNT 500": {"list"}, " MATCH none COUNT 500": nil,
		} {
			if got := scanAll(t, w, options, nil); !slices.Equal(got, want) {
				t.Errorf("RESP%d SCAN%s: %d names, want %d", proto, options, len(got), len(want))
			}
		}
	}
	w.want("SCAN x", "-ERR invalid cursor\r\n")
	w.want("SCAN -1", "-ERR invalid cursor\r\n")
	w.want("SCAN 0 COUNT 0", "-ERR syntax error\r\n")
	w.want("SCAN 0 COUNT x", "-ERR value is not an integer or out of range\r\n")
	w.want("SCAN 0 MATCH", "-ERR syntax error\r\n")
	w.want("SCAN 18446744073692774399", "*2\r\n"+bulk("0")+"*0\r\n")
}

func TestScanDuringAChangeOfTheTopology(t *testing.T) {
	b := start(t, 3, nil)
	fill(t, b, 3000)
	before := b.holder.Current()
	joining := realredis.T(t)
	after := withCaches(t, before, func(caches []topology.Cache) []topology.Cache {
		caches = slices.DeleteFunc(caches, func(c topology.Cache) bool { return c.Name == "c2" })
		return append(caches, topology.Cache{Name: "c0", Addr: joining.Addr(), Weight: 1, State: topology.Active})
	})
	var stay []string
	for i := range 3000 {
		key := fmt.Sprintf("key:%d", i)
		was, _ := before.Locate(b.server.keyspaces, []byte(key))
		is, _ := after.Locate(b.server.keyspaces, []byte(key))
		if was.Cache == is.Cache {
			stay = append(stay, key)
		}
	}
	for _, at := range []int{1, 40, 90, 150} {
		b.holder.Publish(before)
		got := scanAll(t, b.dial(), "", func(page int) {
			if page == at {
				b.holder.Publish(after)
			}
		})
		for _, key := range stay {
			if _, found := slices.BinarySearch(got, key); !found {
				t.Fatalf("change before page %d: %s was passed over", at, key)
			}
		}
	}
}

// withCaches returns the topology after t with other cache servers.
func withCaches(t testing.TB, topo *topology.Topology, change func([]topology.Cache) []topology.Cache) *topology.Topology {
	t.Helper()
	content := topo.Content()
	content.Epoch++
	content.Caches = change(content.Caches)
	next, err := topology.New(content)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestScanOfAServerThatIsDown(t *testing.T) {
	b := start(t, 3, nil)
	fill(t, b, 300)
	w := b.dial()
	if err := b.caches[1].Kill(); err != nil {
		t.Fatal(err)
	}
	cursor := "0"
	for range 1000 {
		got := w.do("SCAN " + cursor + " COUNT 1000")
		if strings.HasPrefix(got, "-CACHEDOWN c2 ") {
			return
		}
		v, _, err := resp.Decode([]byte(got))
		if err != nil || len(v.Elems) != 2 || v.Elems[0].Text == "0" {
			t.Fatalf("a scan without c2 came to its end: %q", got)
		}
		cursor = v.Elems[0].Text
	}
	t.Error("the scan does not end")
}
