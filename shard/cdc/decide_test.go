package cdc

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"ringside/shard/keyspace"
)

// I3: whenever changes may have been missed, the slot is replaced, which owes a flush.
func TestDecide(t *testing.T) {
	past := history{slot: "ringside_s1", system: "7000", timeline: 1}
	now := server{system: "7000", timeline: 1, flushed: 1000, database: "app"}
	good := slotInfo{plugin: "pgoutput", database: "app", walStatus: "reserved", safe: -1}
	slot := func(change func(*slotInfo)) *slotInfo {
		s := good
		change(&s)
		return &s
	}
	for _, c := range []struct {
		name string
		past history
		now  server
		slot *slotInfo
		seen LSN
		want plan
	}{
		{"the first time", history{}, now, nil, 0, create},
		{"made, but its maker died before he wrote it down", history{}, now, &good, 0, follow},
		{"as it was left", past, now, &good, 900, follow},
		{"somebody follows", past, now, slot(func(s *slotInfo) { s.active = true }), 0, standBy},
		{"somebody makes it", history{}, now, slot(func(s *slotInfo) { s.active, s.walStatus = true, "" }), 0, standBy},
		{"somebody follows on a new timeline, and has not written it down yet", past, server{"7000", 2, 1000, "app"}, slot(func(s *slotInfo) { s.active = true }), 0, standBy},
		{"it is gone", past, now, nil, 0, replace},
		{"it was invalidated", past, now, slot(func(s *slotInfo) { s.walStatus = "lost" }), 0, replace},
		{"it was invalidated before anything was written down", history{}, now, slot(func(s *slotInfo) { s.walStatus = "lost" }), 0, replace},
		{"it keeps too much, but all of it", past, now, slot(func(s *slotInfo) { s.walStatus = "unreserved" }), 0, follow},
		{"a standby was promoted", past, server{"7000", 2, 1000, "app"}, nil, 0, replace},
		{"a standby was promoted, and has a slot of that name", past, server{"7000", 2, 1000, "app"}, &good, 0, replace},
		{"the rows were restored elsewhere", past, server{"8000", 1, 1000, "app"}, nil, 0, replace},
		{"the disk was restored from before", past, now, &good, 1001, replace},
		{"the slot of another database", history{}, now, slot(func(s *slotInfo) { s.database = "other" }), 0, refuse},
		{"another plugin", history{}, now, slot(func(s *slotInfo) { s.plugin = "wal2json" }), 0, refuse},
		{"a physical slot", history{}, now, slot(func(s *slotInfo) { s.plugin, s.database = "", "" }), 0, refuse},
		{"a temporary slot", history{}, now, slot(func(s *slotInfo) { s.temporary = true }), 0, refuse},
	} {
		got, why := decide(c.past, c.now, c.slot, c.seen)
		if got != c.want || (why == "") != (got == follow || got == create) {
			t.Errorf("%s: %d (%s), want %d", c.name, got, why, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	pg := func(code string) error { return fmt.Errorf("some step: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err                error
		looking, following sort
	}{
		{pg("55006"), taken, taken},
		{pg("42710"), taken, taken},
		{pg("23505"), taken, taken},
		{pg("42704"), passing, broken},
		{pg("55000"), passing, broken},
		{pg("58P01"), passing, broken},
		{&malformedError{"x"}, broken, broken},
		{errors.Join(errors.New("x"), &malformedError{"x"}), broken, broken},
		{pg("42501"), setting, setting},
		{pg("53400"), setting, setting},
		{pg("53300"), setting, setting},
		{pg("28000"), setting, setting},
		{&settingError{what: "x"}, setting, setting},
		{pg("57P01"), passing, passing},
		{errEnded, passing, passing},
		{nil, passing, passing},
	} {
		if got, advice := judge(c.err, false); got != c.looking || got == setting && advice == "" && code(c.err) != "" {
			t.Errorf("%v: %d (%s), want %d", c.err, got, advice, c.looking)
		}
		if got, _ := judge(c.err, true); got != c.following {
			t.Errorf("%v in the stream: %d, want %d", c.err, got, c.following)
		}
	}
}

func TestSlotName(t *testing.T) {
	seen := map[string]string{}
	for _, shard := range []string{"s1", "s-1", "s.1", "s_1", strings.Repeat("a", 54), strings.Repeat("a", 55), strings.Repeat("a", 63), strings.Repeat("a", 62) + "b"} {
		name := SlotName(shard)
		if len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%q is no name of a slot", name)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%s and %s share the slot %s", shard, other, name)
		}
		seen[name] = shard
	}
	if got := SlotName("s1"); got != "ringside_s1" {
		t.Errorf("the slot of s1 is %s", got)
	}
}

func TestDegraded(t *testing.T) {
	now := time.Now()
	const limit = 2 * time.Second
	for _, c := range []struct {
		name     string
		role     Role
		asOf     time.Time
		complete bool
		want     bool
	}{
		{"followed here", Active, now.Add(-limit), true, false},
		{"followed elsewhere", StandBy, now, true, false},
		{"it lags", StandBy, now.Add(-limit - 1), true, true},
		{"never heard of", Starting, time.Time{}, false, true},
		{"a flush is owed, or keyspaces are missing", Active, now, false, true},
		{"down, a moment ago all was well", Down, now, true, false},
		{"cannot be followed", Off, time.Time{}, false, false},
	} {
		if got := degraded(c.role, c.asOf, now, c.complete, limit); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Beat: time.Second, LagLimit: time.Second, BatchKeys: -1, CallTimeout: 1}.Validate()
	for _, want := range []string{"lag_limit", "batch_keys", "call_timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not complain of %s", err, want)
		}
	}
}

// I2, with ids that have wrapped around.
func TestSnapshotSees(t *testing.T) {
	const epoch = 3 << 32
	for _, c := range []struct {
		text string
		xid  uint32
		want bool
	}{
		{"100:100:", 99, true},
		{"100:100:", 100, false},
		{"100:110:100,105", 100, false},
		{"100:110:100,105", 101, true},
		{"100:110:100,105", 105, false},
		{"100:110:100,105", 109, true},
		{"100:110:100,105", 110, false},
		{"100:110:105,100", 105, false},
		{fmt.Sprintf("%d:%d:%d", epoch+5, epoch+10, epoch+5), 5, false},
		{fmt.Sprintf("%d:%d:%d", epoch+5, epoch+10, epoch+5), 6, true},
		{fmt.Sprintf("%d:%d:%d", epoch+5, epoch+10, epoch+5), 1<<32 - 1, true},                  // of the epoch before
		{fmt.Sprintf("%d:%d:%d", epoch-5, epoch+10, epoch-5), 1<<32 - 5, false},                 // likewise, and running
		{fmt.Sprintf("%d:%d:", epoch-10, epoch-10), 3, false},                                   // of the epoch after
		{fmt.Sprintf("%d:%d:%d,%d", epoch-5, epoch+10, epoch-5, epoch+3), 3, false},             // running on both sides
		{fmt.Sprintf("%d:%d:%d,%d", epoch-5, epoch+10, epoch-5, epoch+3), 1<<32 - 4, true},      // between them
		{fmt.Sprintf("%d:%d:", uint64(1)<<31+3<<32, uint64(1)<<31+3<<32), 1, true},              // nearly 2^31 ago
		{fmt.Sprintf("%d:%d:", uint64(1)<<31+3<<32-5, uint64(1)<<31+3<<32), 1<<31 - 6, true},    // just before xmin
		{fmt.Sprintf("%d:%d:", uint64(1)<<31+3<<32-5, uint64(1)<<31+3<<32), 1<<31 + 500, false}, // later than the snapshot
	} {
		s, err := parseSnapshot(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.sees(c.xid); got != c.want {
			t.Errorf("%s sees %d: %v", c.text, c.xid, got)
		}
	}
	for _, text := range []string{"", "1:2", "x:2:", "3:2:", "1:2:x", "1:2:3:4"} {
		if _, err := parseSnapshot(text); err == nil {
			t.Errorf("%q is a snapshot", text)
		}
	}
}

// I1 and I2: what is handed out when, and what may be acknowledged then.
func TestQueue(t *testing.T) {
	change := func(xid uint32, lsn LSN, keys ...string) item {
		it := item{xid: xid, gated: true, lsn: lsn}
		for _, k := range keys {
			it.keys = append(it.keys, Key{Text: []byte(k)})
		}
		return it
	}
	var q queue
	out := func(snap string, limit int) (batches [][]string, beat uint64) {
		t.Helper()
		s, err := parseSnapshot(snap)
		if err != nil {
			t.Fatal(err)
		}
		from := 0
		for more := true; more; {
			var b batch
			b, more = q.next(s, from, limit)
			var texts []string
			for _, k := range b.keys {
				texts = append(texts, string(k.Text))
			}
			batches, beat, from = append(batches, texts), max(beat, b.beat), b.to
			q.finish(b)
		}
		q.settle()
		return batches, beat
	}
	expect := func(step string, got [][]string, want [][]string, acked LSN, entries int) {
		t.Helper()
		if !reflect.DeepEqual(got, want) || q.acked != acked || len(q.entries) != entries {
			t.Errorf("%s: handed out %q, acknowledged %d, %d entries; want %q, %d, %d", step, got, q.acked, len(q.entries), want, acked, entries)
		}
	}

	q.add(item{lsn: 10})
	expect("an idle position needs no more", nil, nil, 10, 0)

	q.add(change(100, 20, "a", "b"))
	q.add(change(101, 30, "a", "c"))
	q.add(item{lsn: 40})
	got, _ := out("100:102:100", 10)
	expect("the second is visible, the first is not", got, [][]string{{"a", "c"}}, 10, 2)
	if q.held != 2+2 {
		t.Errorf("%d held, with two keys in one of two entries", q.held)
	}
	q.add(item{xid: 102, lsn: 50, beat: 7})
	got, beat := out("100:103:100", 10)
	expect("a heartbeat passes what is not visible", got, [][]string{nil}, 10, 2)
	if beat != 7 {
		t.Errorf("heartbeat %d", beat)
	}
	got, _ = out("103:103:", 10)
	expect("now it is", got, [][]string{{"a", "b"}}, 50, 0)
	if q.held != 0 {
		t.Errorf("%d held by nothing", q.held)
	}

	q.add(change(110, 0, "a", "b")) // pieces of one transaction
	q.add(change(110, 0, "c", "d"))
	got, _ = out("111:111:", 2)
	expect("pieces are handed out before the rest is there, in batches", got, [][]string{{"a", "b"}, {"c", "d"}}, 50, 0)
	q.add(change(110, 60, "e"))
	if !q.gated() {
		t.Error("needs no snapshot")
	}
	got, _ = out("111:111:", 2)
	expect("the last piece", got, [][]string{{"e"}}, 60, 0)

	for i := range 1000 { // a transaction that nobody sees for long, and others that are seen
		if i == 0 {
			q.add(change(200, 70, "slow"))
		}
		q.add(change(uint32(201+i), LSN(71+i), fmt.Sprint(i)))
		out("200:5000:200", 10)
	}
	if len(q.entries) != 2 || q.held != 3 || q.acked != 60 {
		t.Errorf("%d entries, %d held, acknowledged %d, with one transaction that is not visible", len(q.entries), q.held, q.acked)
	}
	out("5000:5000:", 10)
	if q.acked != 70+1000 || q.held != 0 {
		t.Errorf("acknowledged %d, %d held", q.acked, q.held)
	}
}

func TestAlterAndCovers(t *testing.T) {
	user := compile(t, keyspace.Spec{Name: "user", Pattern: "user:{id:int}", Table: "users"})
	mail := compile(t, keyspace.Spec{Name: "mail", Pattern: "mail:{address}", Table: "users"})
	order := compile(t, keyspace.Spec{Name: "order", Pattern: "o:{t}:{id:int}", ShardBy: "t", Table: "orders"})
	all := []*keyspace.Keyspace{user, mail, order}
	relations := map[string]relation{
		"users":  {1, tableName{"public", "users"}, "r", "p", "d", []string{"id"}},
		"orders": {2, tableName{"public", "orders"}, "p", "p", "d", []string{"id", "t"}},
	}
	good := publication{exists: true, complete: true, tables: map[uint32]published{1: {columns: []string{"id"}}, 2: {columns: []string{"id", "t"}}}}
	with := func(change func(*publication)) publication {
		p := good
		p.tables = map[uint32]published{1: good.tables[1], 2: good.tables[2]}
		change(&p)
		return p
	}
	const set = `ALTER PUBLICATION ringside SET TABLE "public"."orders" ("id", "t"), "public"."users" ("id")`
	const options = `publish = 'insert, update, delete, truncate', publish_via_partition_root = true`
	for _, c := range []struct {
		name       string
		p          publication
		statements []string
		touched    []string
		left       []string
	}{
		{"as it should be", good, nil, nil, []string{"mail"}},
		{"none", publication{}, []string{`CREATE PUBLICATION ringside FOR TABLE "public"."orders" ("id", "t"), "public"."users" ("id") WITH (` + options + `)`}, []string{"user", "order"}, []string{"mail", "order", "user"}},
		{"a table lacks", with(func(p *publication) { delete(p.tables, 2) }), []string{set}, []string{"order"}, []string{"mail", "order"}},
		{"a table too many", with(func(p *publication) { p.tables[9] = published{} }), []string{set}, nil, []string{"mail"}},
		{"a column lacks", with(func(p *publication) { p.tables[2] = published{columns: []string{"id"}} }), []string{set}, []string{"order"}, []string{"mail", "order"}},
		{"all columns", with(func(p *publication) { p.tables[1] = published{} }), []string{set}, []string{"user"}, []string{"mail"}},
		{"a row filter", with(func(p *publication) { p.tables[1] = published{[]string{"id"}, true} }), []string{set}, []string{"user"}, []string{"mail", "user"}},
		{"no truncates", with(func(p *publication) { p.complete = false }), []string{"ALTER PUBLICATION ringside SET (" + options + ")", set}, []string{"user", "order"}, []string{"mail", "order", "user"}},
		{"for all tables", publication{exists: true, complete: true, allTables: true}, nil, nil, []string{"mail"}},
	} {
		statements, touched := c.p.alter(all, relations)
		if !slices.Equal(statements, c.statements) || !slices.Equal(touched, c.touched) {
			t.Errorf("%s: %q, of %q; want %q, of %q", c.name, statements, touched, c.statements, c.touched)
		}
		var left []string
		covers := c.p.covers(all, relations)
		for name := range covers.left {
			left = append(left, name)
		}
		slices.Sort(left)
		bound := 0
		for _, keyspaces := range covers.byName {
			bound += len(keyspaces)
		}
		if !slices.Equal(left, c.left) || bound != len(all)-len(left) {
			t.Errorf("%s: left are %q, want %q; %d bound", c.name, left, c.left, bound)
		}
	}
}
