package mover

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
)

const wideTable = `create type mood as enum ('sad', 'so so');
create table wide (tenant text, at timestamptz, k numeric, u uuid not null default gen_random_uuid(), b bytea, j jsonb, js json, a int[], t text, f float8, r float4,
	i interval, d date, m mood, ts tsvector, x inet, rng int4range, "Odd name" text, n bigint generated always as identity, c char(5), bits bit varying,
	sum numeric generated always as (k * 2) stored, primary key (tenant, at, k))`

const wideRows = `insert into wide (tenant, at, k, b, j, js, a, t, f, r, i, d, m, ts, x, rng, "Odd name", c, bits)
select case when n % 3 = 0 then 'big' else 't' || n % 40 end, timestamptz '2026-01-01 00:00:00.123456+05' + n * interval '1 hour', n / 7.0, decode(md5(n::text), 'hex'),
	jsonb_build_object('n', n, 'é', E'tab\t, newline\n, backslash \\ and "quotes"'), '{"b": 1,  "a": [1, 2]}', array[n, null, -n], E'\\N \\. \t \n \r ''' || n, 1e300 / n, 0.1, n * interval '1 month 3 days 00:00:00.5',
	date '2000-02-29' + n, 'so so', to_tsvector('simple', 'a b'), '10.0.0.1/8', int4range(n, n + 5), null, 'ab', B'101'
from generate_series(1, 3000) n;
insert into wide (tenant, at, k, f, i, d, t) values ('odd', 'infinity', 'NaN', 'NaN', '-1 day', '-infinity', ''), ('odd', '-infinity', -1e-20, '-Infinity', null, '4713-01-01 BC', null)`

// Composite keys and columns of any type arrive as they were; a vnode with more rows than a page is copied in pieces, and a driver that takes over goes on
// where the one before was.
func TestAnyColumnsAndLargeVnodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, wideTable)
	r.exec("s1", wideRows)
	for name := range r.dsn {
		r.exec(name, `select ringside.attach('wide', 'tenant')`)
	}
	const digest = `select count(*) || ' ' || coalesce(sum(hashtextextended(w::text, 0)), 0) from wide w`
	want := r.text("s1", digest)
	pages := 0
	for _, holder := range []string{"a", "b"} {
		m := r.mover(holder, func(c *Config) { short(c); c.Page = time.Nanosecond }) // the smallest pages
		m.after = func(step shard.MoveStep) error {
			if step == shard.MoveCopy {
				if pages++; pages == 1 {
					return errCrash // somewhere in the middle
				}
			}
			return nil
		}
		r.start(m)
	}
	rows, err := r.sql["s1"].Query(t.Context(), `select distinct ringside_vnode from wide`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[uint16])
	if err != nil {
		t.Fatal(err)
	}
	for _, ends := range [][2]string{{"s1", "s2"}, {"s2", "s1"}} {
		p := r.await(r.request(ends[0], ends[1], all, 1))[0]
		if p.State != catalog.PartDone {
			t.Fatalf("%s: %+v", p.State, p.Progress)
		}
		if got := r.text(ends[1], digest); got != want {
			t.Errorf("on %s: %s, want %s", ends[1], got, want)
		}
		t.Logf("%d rows copied", p.Copied)
	}
	if pages < 2 {
		t.Errorf("%d looks at copying", pages)
	}
	r.check()
}

// A value that must be unique goes from one row to another while both are copied.
func TestUniqueValuesWander(t *testing.T) {
	t.Parallel()
	const rows = 400
	r := newRig(t, rows)
	m := r.mover("a", func(c *Config) { c.Page = time.Nanosecond })
	n := 0
	m.after = func(step shard.MoveStep) error {
		if step == shard.MoveCapture || step == shard.MoveCopy || step == shard.MoveCompare || step == shard.MoveHold {
			// All notes wander by one row, in vnodes of both kinds, several times.
			for range 3 {
				n++
				r.exec("s1", `begin`)
				r.exec("s1", `update counters set note = 'x' || note`)
				r.exec("s1", `update counters set note = 'note ' || 1 + (id + $1) % $2`, n, rows)
				r.exec("s1", `commit`)
			}
		}
		return nil
	}
	r.start(m)
	if p := r.await(r.request("s1", "s2", half(), 1))[0]; p.State != catalog.PartDone {
		t.Fatalf("%s: %+v", p.State, p.Progress)
	}
	for name := range r.dsn {
		if got := r.text(name, `select count(*)::text from counters where note <> 'note ' || 1 + (id + $1) % $2`, n, rows); got != "0" {
			t.Errorf("%s rows on %s have an old note", got, name)
		}
	}
	r.check()
}

// Triggers of others see nothing of a move, and rows joined by foreign keys go together.
func TestTriggersAndForeignKeys(t *testing.T) {
	t.Parallel()
	const lines = `create table lines (id bigint, line int, primary key (id, line));
create table seen (what text);
create function note_it() returns trigger language plpgsql as $$ begin insert into seen values (tg_op); return null; end $$`
	r := newRig(t, 200, lines)
	for name := range r.dsn {
		r.exec(name, `select ringside.attach('lines', 'id')`)
		r.exec(name, `alter table lines add foreign key (id) references counters on delete cascade`)
		r.exec(name, `create trigger note_it after insert or update or delete on counters for each row execute function note_it()`)
	}
	r.exec("s1", `insert into lines select id, 1 from counters`)
	r.start(r.mover("a", nil))
	if p := r.await(r.request("s1", "s2", half(), 1))[0]; p.State != catalog.PartDone {
		t.Fatalf("%s: %+v", p.State, p.Progress)
	}
	for name := range r.dsn {
		if got := r.text(name, `select count(*)::text from seen`); got != "0" {
			t.Errorf("a trigger on %s fired %s times", name, got)
		}
		if got := r.text(name, `select count(*)::text from counters c full join lines l using (id) where c.id is null or l.id is null`); got != "0" {
			t.Errorf("%s rows on %s are alone", got, name)
		}
	}
	r.check()
}

// BenchmarkMove copies rows of about 100 bytes from one shard to another, with comparison, on one machine.
func BenchmarkMove(b *testing.B) {
	const rows = 200_000
	r := newRig(b, 0)
	r.exec("s1", fmt.Sprintf(`insert into counters (id, note) select i, rpad('note ' || i, 80) from generate_series(1, %d) i`, rows))
	r.exec("s1", `vacuum analyze counters`)
	r.start(r.mover("a", nil))
	vnodes := make([]uint16, ring.Vnodes)
	for v := range vnodes {
		vnodes[v] = uint16(v)
	}
	ends := [2]string{"s1", "s2"}
	var copying time.Duration
	var n int64
	for b.Loop() {
		id := r.request(ends[0], ends[1], vnodes, 1)
		begun := time.Now()
		for {
			if p := r.status(id); p.Copied >= rows {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		copying += time.Since(begun)
		p := r.await(id)[0]
		if p.State != catalog.PartDone {
			b.Fatalf("%s: %+v", p.State, p.Progress)
		}
		n += p.Copied
		b.ReportMetric(float64(p.Blocked.Milliseconds()), "blocked-ms")
		ends[0], ends[1] = ends[1], ends[0]
	}
	b.ReportMetric(float64(n)/copying.Seconds(), "rows/s")
}
