package mover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
)

// Plan is what a request comes to. Nothing was changed.
type Plan struct {
	Parts []catalog.NewPart
	// Refused says why the move would not be begun; empty: nothing speaks against it.
	Refused []string
	// Notes are what an operator should know besides.
	Notes []string
	Took  time.Duration // expected
}

const (
	// preflightTimeout bounds the look at the shards.
	preflightTimeout = 20 * time.Second
	// oldTransaction is how long a transaction that has written may have been open: the cut-over waits for it.
	oldTransaction = 60 * time.Second
	// expectedRate and expectedPart are by what the time is estimated: rows a second, and the time for one part besides.
	expectedRate = 20_000
	expectedPart = 4 * time.Second
)

// shardFacts is what one shard says before a move.
type shardFacts struct {
	tables []table
	owned  int    // vnodes
	busy   int    // of the vnodes asked about, those that are in another move
	taken  int    // of them, those that the shard owns
	rows   string // a table that holds rows of them
	// held and heldBytes are what the shard has of the shard key asked about; owns whether it is its own.
	held, heldBytes int64
	owns            bool
	old             string // an old transaction
	version         int
	size            int64 // of the database, in bytes
	ringside        bool  // the role may change what belongs to ringside
}

// schemaVersion is the first that knows moves of vnodes and of single keys.
const schemaVersion = 5

// Plan works out what a request comes to, and what speaks against it.
func (m *Mover) Plan(ctx context.Context, want Request) (Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	r := m.deps.Ring()
	list, err := flows(r, want)
	err = cmp.Or(m.keyMoves(ctx, want.Key), err) // what is refused of a key may be so because it is on its way
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	leaving, coming := map[string][]uint16{}, map[string][]uint16{}
	for _, f := range list {
		if f.From == f.To { // nothing is copied
			coming[f.To] = []uint16{}
			continue
		}
		leaving[f.From] = append(leaving[f.From], f.Vnodes...)
		coming[f.To] = append(coming[f.To], f.Vnodes...)
	}
	facts := map[string]shardFacts{}
	holds := map[string]estimate{}
	for _, name := range r.Shards {
		if leaving[name] == nil && coming[name] == nil {
			continue
		}
		f, err := m.facts(ctx, name, leaving[name], coming[name], want.Key)
		if err != nil {
			p.Refused = append(p.Refused, fmt.Sprintf("it cannot be looked at: %v", err))
			continue
		}
		facts[name] = f
		p.Refused = append(p.Refused, f.refusals(name, m.deps.Tables(), leaving[name], coming[name])...)
		var e estimate
		for _, t := range f.tables {
			e.rows += float64(t.Rows)
			e.bytes += float64(t.Bytes)
		}
		if n := float64(f.owned); n > 0 {
			holds[name] = estimate{e.rows / n, e.bytes / n}
		}
	}
	for _, f := range list {
		a, okA := facts[f.From]
		b, okB := facts[f.To]
		if okA && okB {
			if what := sameTables(a.tables, b.tables, f.From, f.To); what != "" {
				p.Refused = append(p.Refused, what)
			}
		}
	}
	if !r.Settled {
		p.Notes = append(p.Notes, "the ring of cache servers is changing: cut-overs wait until that is done")
	}
	if want.Key != "" {
		list[0].Rows, list[0].Bytes = facts[list[0].From].held, facts[list[0].From].heldBytes
		if list[0].From == list[0].To {
			list[0].Rows, list[0].Bytes = 0, 0
		}
	}
	p.Parts = cut(list, holds)
	var rows, bytes int64
	for _, part := range p.Parts {
		rows, bytes = rows+part.Rows, bytes+part.Bytes
	}
	for name, vnodes := range coming {
		var need int64
		for _, part := range p.Parts {
			if part.To == name {
				need += part.Bytes
			}
		}
		if need == 0 {
			continue
		}
		what := fmt.Sprintf("%d vnodes", len(vnodes))
		if want.Key != "" {
			what = "that key"
		}
		var limit int64
		if m.deps.MaxSize != nil {
			limit = m.deps.MaxSize(name)
		}
		note, refusal := room(name, what, need, facts[name].size, limit)
		p.Notes = append(p.Notes, note)
		if refusal != "" {
			p.Refused = append(p.Refused, refusal)
		}
	}
	slices.Sort(p.Notes)
	p.Refused = slices.Compact(p.Refused)
	p.Took = time.Duration(float64(rows)/expectedRate*float64(time.Second)) + time.Duration(len(p.Parts))*expectedPart
	return p, nil
}

// keyMoves says that a shard key is being moved by its override already, or its override is about to end.
func (m *Mover) keyMoves(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	journal, err := m.deps.Journal(ctx)
	if err != nil {
		return err
	}
	open, err := journal.OpenParts(ctx)
	if err != nil {
		return err
	}
	for _, p := range open {
		switch {
		case p.Key != key:
		case p.Clear:
			return fmt.Errorf("the override of shard key %s is being cleared by move %d: wait until that is done, or cancel it", shard.QuoteKey(key), p.Move)
		default:
			return fmt.Errorf("an override of shard key %s to shard %s is being set by move %d: wait until that is done, or cancel it", shard.QuoteKey(key), p.To, p.Move)
		}
	}
	return nil
}

// room says how much disk a move needs at a shard, whose database has a size, and why it is refused if there is a limit (0: none) and that is too little. Copying
// writes about as much to the log as to the tables. Pure.
func room(name, what string, need, has, limit int64) (note, refusal string) {
	note = fmt.Sprintf("shard %s needs about %s of disk for %s, and as much again for its log", name, size(need), what)
	if limit == 0 {
		return note + ": PostgreSQL does not say how much is free, nor max_size how large it may become", ""
	}
	if has+2*need > limit {
		refusal = fmt.Sprintf("shard %s has no room: its database is %s, %s would need about %s, log included, and max_size is %s", name, size(has), what, size(2*need), size(limit))
	}
	return note, refusal
}

func size(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 10<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// ErrNothing: the shards have what the weights ask for.
var ErrNothing = errors.New("there is nothing to move")

// RefusedError lists why a move is not begun.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string { return strings.Join(e.Reasons, "; ") }

// Start writes a move down, to be carried out by whoever drives. The error is ErrNothing, a *RefusedError, or catalog.ErrConflict when some of the
// vnodes are being moved already.
func (m *Mover) Start(ctx context.Context, want Request) (id int64, p Plan, err error) {
	p, err = m.Plan(ctx, want)
	switch {
	case err != nil:
		return 0, p, err
	case len(p.Refused) > 0:
		return 0, p, &RefusedError{p.Refused}
	case len(p.Parts) == 0:
		return 0, p, ErrNothing
	}
	journal, err := m.deps.Journal(ctx)
	if err != nil {
		return 0, p, err
	}
	if id, err = journal.CreateMove(ctx, p.Parts); err == nil {
		m.Wake()
	}
	return id, p, err
}

func (m *Mover) facts(ctx context.Context, name string, leaving, coming []uint16, key string) (f shardFacts, err error) {
	err = onShard(ctx, name, m.deps.DSN, func(ctx context.Context, conn *pgx.Conn) error {
		f, err = look(ctx, conn, name, leaving, coming)
		if err == nil && key != "" && f.version >= schemaVersion {
			err = f.lookAtKey(ctx, conn, key)
		}
		return err
	})
	return f, err
}

func look(ctx context.Context, conn *pgx.Conn, name string, leaving, coming []uint16) (f shardFacts, err error) {
	var holds string
	err = conn.QueryRow(ctx, `select v.shard, (select coalesce(max(version), 0) from ringside.schema_version), pg_database_size(current_database()) from ringside.view v`).
		Scan(&holds, &f.version, &f.size)
	switch {
	case code(err) == "42P01", code(err) == "3F000", errors.Is(err, pgx.ErrNoRows):
		return f, errors.New("it has not been set up for ringside yet")
	case err != nil:
		return f, err
	case holds != name:
		return f, fmt.Errorf("its dsn leads to the database of shard %s", holds)
	case f.version < schemaVersion:
		return f, nil
	}
	if f.tables, err = describe(ctx, conn); err != nil {
		return f, err
	}
	err = conn.QueryRow(ctx, `select count(*) filter (where o.state = 'owned'), count(*) filter (where o.move_id is not null and (o.vnode = any($1) or o.vnode = any($2))),
	count(*) filter (where o.state = 'owned' and o.vnode = any($2)),
	coalesce((select format('process %s, for %s', a.pid, date_trunc('second', now() - a.xact_start)) from pg_stat_activity a
		where a.datname = current_database() and a.backend_xid is not null and a.xact_start < now() - $3 * interval '1 second' order by a.xact_start limit 1), ''),
	pg_has_role(c.relowner, 'usage')
from ringside.ownership o, pg_class c where c.oid = 'ringside.part'::regclass group by c.relowner`, numbersOf(leaving), numbersOf(coming), int(oldTransaction.Seconds())).
		Scan(&f.owned, &f.busy, &f.taken, &f.old, &f.ringside)
	if errors.Is(err, pgx.ErrNoRows) { // it never had a vnode
		err = conn.QueryRow(ctx, `select pg_has_role(c.relowner, 'usage') from pg_class c where c.oid = 'ringside.part'::regclass`).Scan(&f.ringside)
	}
	for i := 0; i < len(f.tables) && err == nil && len(coming) > 0; i++ {
		var there bool
		err = conn.QueryRow(ctx, fmt.Sprintf(`select exists (select from %s where ringside_vnode = any($1)
	and (%s::text collate "C") not in (select shard_key from ringside.override where vnode = any($1)))`, f.tables[i].Name, f.tables[i].ShardBy), numbersOf(coming)).Scan(&there)
		if there && f.rows == "" {
			f.rows = f.tables[i].Name
		}
	}
	return f, err
}

// lookAtKey looks at one shard key instead of at its vnode.
func (f *shardFacts) lookAtKey(ctx context.Context, conn *pgx.Conn, key string) error {
	vnode := ring.NewHasher().Vnode([]byte(key))
	f.rows, f.taken = "", 0
	s := scope{key: key}
	for i := range f.tables {
		var n, all int64
		t := &f.tables[i]
		err := conn.QueryRow(ctx, fmt.Sprintf(`select count(*), greatest(%d, count(*)) from %s where ringside_vnode = %d%s`, t.Rows, t.Name, vnode, s.also(t))).Scan(&n, &all)
		if err != nil {
			return err
		}
		if f.held += n; n > 0 {
			f.heldBytes += t.Bytes / max(all, 1) * n
			f.rows = t.Name
		}
	}
	return conn.QueryRow(ctx, `select coalesce((select state from ringside.override where shard_key = $1), (select state from ringside.owner where vnode = $2)) is not distinct from 'owned'`,
		key, int32(vnode)).Scan(&f.owns)
}

// refusals says what on one shard speaks against the move. Pure.
func (f *shardFacts) refusals(name string, keyspaces []string, leaving, coming []uint16) (out []string) {
	refuse := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("shard %s: ", name)+fmt.Sprintf(format, args...))
	}
	if f.version < schemaVersion {
		refuse("its schema is of version %d: restart a sidecar of this version, or let its role change the schema", f.version)
		return out
	}
	if !f.ringside {
		refuse("the role that this sidecar is there may not change what belongs to ringside: it must be the one that installed it, or a member of that")
	}
	for _, ks := range keyspaces {
		attached := slices.ContainsFunc(f.tables, func(t table) bool { return isTable(t.Name, ks) })
		if !attached {
			refuse("table %s of a keyspace is not attached: ringside shard attach %s", ks, ks)
		}
	}
	for _, t := range f.tables {
		switch {
		case len(t.Key) == 0:
			refuse("table %s has no primary key", t.Name)
		case t.Kind != "r":
			refuse("table %s is not an ordinary table: partitioned and foreign tables cannot be moved", t.Name)
		case t.Secured:
			refuse("row security hides rows of table %s from the role that this sidecar is there", t.Name)
		case !t.May:
			refuse("the role that this sidecar is there may not read, insert and delete in table %s", t.Name)
		case t.muted() && !t.Mute:
			refuse("table %s has triggers or foreign keys, which the mover must keep from firing: grant set on parameter session_replication_role to its role", t.Name)
		}
		for _, k := range t.Foreign {
			if !k.Together {
				refuse("foreign key %s joins table %s and %s across shard keys: it cannot hold once rows are on different shards", k.Name, t.Name, k.Other)
			}
		}
	}
	if f.busy > 0 {
		refuse("%d of the vnodes are in another move that has not been cleaned up", f.busy)
	}
	if len(coming) > 0 && f.taken > 0 {
		refuse("it owns %d of the vnodes already, although the shard map gives them to others", f.taken)
	}
	if f.owns && len(coming) > 0 {
		refuse("it owns the shard key already, although the map places it elsewhere")
	}
	if f.rows != "" && len(coming) > 0 {
		refuse("table %s holds rows of what is to come already: they would be lost; look at them, then delete them", f.rows)
	}
	if f.old != "" && len(leaving) > 0 {
		refuse("a transaction that has written is open for long (%s): the cut-over would wait for it", f.old)
	}
	return out
}

// isTable reports whether a quoted name with its schema is the table that a keyspace names.
func isTable(quoted, keyspace string) bool {
	parts := strings.Split(keyspace, ".")
	if len(parts) == 1 {
		return strings.HasSuffix(quoted, "."+quoteName(parts[0]))
	}
	return quoted == quoteName(parts[0])+"."+quoteName(parts[1])
}

// quoteName quotes as quote_ident does, but for reserved words.
func quoteName(s string) string {
	plain := s != "" && (s[0] < '0' || s[0] > '9')
	for _, c := range []byte(s) {
		plain = plain && (c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9')
	}
	if plain {
		return s
	}
	return pgx.Identifier{s}.Sanitize()
}

// Vnodes lists those from a to b.
func Vnodes(a, b int) ([]uint16, error) {
	if a < 0 || b < a || b >= ring.Vnodes {
		return nil, fmt.Errorf("vnodes %d-%d: they are numbered 0 to %d", a, b, ring.Vnodes-1)
	}
	out := make([]uint16, 0, b-a+1)
	for v := a; v <= b; v++ {
		out = append(out, uint16(v))
	}
	return out, nil
}
