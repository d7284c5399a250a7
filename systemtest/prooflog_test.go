package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/localcluster"
	"ringside/resp"
	"ringside/systemtest/history"
)

// The shards' own word about the order of writes: a trigger notes each change of a row under a number that is drawn while the row is locked, in the same
// transaction. So the notes of one row are in the order of the commits, and there is one for exactly those writes that took effect. What the mover does fires
// no trigger. A row that has moved has notes on several shards; nobody writes it on one before the other is closed, so the time, which all take from one
// clock, orders them.
const proofTriggers = `
create sequence public.proof_order;
create sequence public.proof_base start %d increment %d;
create table public.proof_log (n bigint primary key default nextval('public.proof_order'), at timestamptz not null default clock_timestamp(),
	id bigint not null, name text, visits bigint, mark text not null);
create index on public.proof_log (id, n);

-- A row that is made anew counts from where no row has counted before, on any shard, so that a sum names one state.
create function public.proof_stamp() returns trigger language plpgsql as $$
begin
	new.visits := coalesce(new.visits, 0) + 1000000 * nextval('public.proof_base');
	return new;
end $$;

create function public.proof_note() returns trigger language plpgsql as $$
begin
	if tg_op = 'DELETE' then
		insert into public.proof_log (id, mark) values (old.id, 'deleted');
	elsif new.name is null or tg_op = 'UPDATE' and new.visits is distinct from old.visits then
		insert into public.proof_log (id, name, visits, mark) values (new.id, new.name, new.visits, 'sum ' || new.visits);
	else
		insert into public.proof_log (id, name, visits, mark) values (new.id, new.name, new.visits, new.name);
	end if;
	return null;
end $$;

insert into public.proof_log (id, name, visits, mark) select id, name, visits, '' from public.users;
create trigger proof_stamp before insert on public.users for each row execute function public.proof_stamp();
create trigger proof_note after insert or update or delete on public.users for each row execute function public.proof_note();`

const markDeleted = "deleted"

func markOfSum(sum int64) string { return fmt.Sprintf("sum %d", sum) }

// noteWrites makes the shards note the writes from now on.
func noteWrites(t *testing.T, c *cluster) {
	t.Helper()
	for i, s := range c.Shards {
		conn := sql(t, s.DSN())
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(proofTriggers, 1+i, len(c.Shards))); err != nil {
			t.Fatal(err)
		}
	}
}

// noted is a state, and when it was noted.
type noted struct {
	at time.Time
	history.State
}

// states reads what the shards have noted, by row.
func (p *proof) states() map[int][]history.State {
	p.t.Helper()
	all := map[int][]noted{}
	for _, s := range p.c.Shards {
		if err := p.statesOf(s.DSN(), all); err != nil {
			p.t.Fatalf("%s: %v", s.Name, err)
		}
	}
	states := map[int][]history.State{}
	for id, notes := range all {
		slices.SortStableFunc(notes, func(a, b noted) int { return a.at.Compare(b.at) })
		for _, n := range notes {
			states[id] = append(states[id], n.State)
		}
	}
	return states
}

// statesOf waits for a shard that is down or paused.
func (p *proof) statesOf(dsn string, into map[int][]noted) error {
	var err error
	for range 20 {
		var got map[int][]noted
		if got, err = readStates(dsn); err == nil {
			for id, notes := range got {
				into[id] = append(into[id], notes...)
			}
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

func readStates(dsn string) (map[int][]noted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to lose
	result, err := conn.Query(ctx, "select id, name, visits, mark, at from public.proof_log order by n")
	if err != nil {
		return nil, err
	}
	got := map[int][]noted{}
	var id int
	var name *string
	var visits *int64
	var mark string
	var at time.Time
	_, err = pgx.ForEachRow(result, []any{&id, &name, &visits, &mark, &at}, func() error {
		s := history.State{Value: history.Absent, Mark: mark}
		if mark != markDeleted {
			s.Value = valueText(name, visits)
		}
		got[id] = append(got[id], noted{at, s})
		return nil
	})
	return got, err
}

// check compares all that was recorded up to now with what the shards say.
func (p *proof) check() []history.Violation {
	p.t.Helper()
	ops := make([][]history.Op, len(p.rows))
	for i, r := range p.rows { // first: what they saw has been noted by now
		r.mu.Lock()
		ops[i] = r.ops[:len(r.ops):len(r.ops)]
		r.mu.Unlock()
	}
	states := p.states()
	var found []history.Violation
	for i, r := range p.rows {
		register := history.Register{Name: r.key, States: states[r.id]}
		if r.id > rows { // it was not there at first
			register.States = append([]history.State{{Value: history.Absent}}, register.States...)
		}
		found = append(found, history.Check(register, ops[i])...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, wrong := range p.wrong {
		p.t.Error(wrong)
	}
	p.wrong = nil
	return found
}

// othersSeen is how long what was written past ringside may stay unseen while everything fails: until somebody follows the shard's log again.
const othersSeen = time.Minute

// other writes rows past ringside, as a migration or another service would.
func (p *proof) other() {
	var mine []*row
	for _, r := range p.rows {
		if r.others {
			mine = append(mine, r)
		}
	}
	conns := map[string]*pgx.Conn{}
	for p.pause(4 * writeThink) {
		r := mine[rand.IntN(len(mine))]
		ctx, cancel := context.WithTimeout(context.Background(), proofPatience)
		mark := fmt.Sprintf("w%d", p.writes.Add(1))
		o := history.Op{Begin: p.elapsed(), Write: true, Outcome: history.Acknowledged, Mark: mark}
		written, err := p.writePast(ctx, conns, r, mark)
		cancel()
		if err != nil {
			o.Outcome = history.Unknown
			delete(conns, r.shard)
			r.shard = p.another(r.shard) // it may have moved
		}
		o.End = p.elapsed() + othersSeen
		if written || err != nil {
			r.note(o)
		}
	}
	for _, conn := range conns {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = conn.Close(ctx) // the server may be gone
		cancel()
	}
}

// another is the shard after one.
func (p *proof) another(shard string) string {
	all := p.c.Shards
	i := slices.IndexFunc(all, func(s *localcluster.Shard) bool { return s.Name == shard })
	return all[(i+1)%len(all)].Name
}

// writePast writes one row on a shard, and reports whether there was one to write.
func (p *proof) writePast(ctx context.Context, conns map[string]*pgx.Conn, r *row, mark string) (written bool, err error) {
	conn := conns[r.shard]
	if conn == nil {
		if conn, err = pgx.Connect(ctx, p.c.shard(p.t, r.shard).DSN()); err != nil {
			return false, err
		}
		conns[r.shard] = conn
	}
	text := "insert into public.users (id, name) values ($1, $2) on conflict (id) do update set name = excluded.name"
	if rand.IntN(8) == 0 {
		text = "update public.users set name = $2 where id = $1"
	}
	tag, err := conn.Exec(ctx, text, r.id, mark)
	if err != nil {
		_ = conn.Close(ctx) // it failed already
	}
	return tag.RowsAffected() > 0, err
}

// finalReads reads every row through every sidecar once all is quiet.
func (p *proof) finalReads() {
	p.t.Helper()
	for at, addr := range p.addrs {
		w := dial(p.t, addr)
		for _, r := range p.rows {
			var begin time.Duration
			var v []resp.Value
			eventually(p.t, 30*time.Second, fmt.Sprintf("%s is read through sidecar %d", r.key, at+1), func() bool {
				begin = p.elapsed()
				var err error
				if v, err = w.ask([]string{"GET", r.key}); err != nil {
					p.t.Fatal(err)
				}
				return !p.failed("last read", v[0])
			})
			p.noteRead(r, history.Op{Begin: begin, End: p.elapsed(), Outcome: history.Acknowledged, By: int16(at + 1)}, p.valueOf(r, v[0]))
		}
	}
}
