package origin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// Row is a shard's answer for one key.
type Row struct {
	Found bool
	Body  []byte // row_to_json of the row, byte for byte as the shard wrote it; nil unless Found
	Err   error  // wraps shard.ErrNotOwner when this shard may not answer for the key's vnode; then nothing is known of the row
}

// Load reads the rows of keys, all of one keyspace and believed to be on the named shard, in one statement: the shard's view, the
// ownership of each vnode and the rows are of one snapshot of the primary, which is younger than the call. Calls that wait for the shard at the same time share a statement.
// The answer has one Row for each key, in the order of keys.
//
// A cancelled ctx ends the wait only. Errors: shard.ErrOverloaded, shard.ErrLocked, *shard.DownError, ctx's own.
func (f *Fleet) Load(ctx context.Context, name string, ks *keyspace.Keyspace, keys []keyspace.Key) ([]Row, shard.View, error) {
	p, err := f.pool(name)
	if err != nil || len(keys) == 0 {
		return nil, shard.View{}, err
	}
	if err := p.admission.refusing(); err != nil {
		return nil, shard.View{}, err
	}
	return p.batcher(ks).load(ctx, keys)
}

// LoadSpare is Load for work that nobody waits for: it is refused with shard.ErrOverloaded at once while requests wait or have more than half of the sessions.
func (f *Fleet) LoadSpare(ctx context.Context, name string, ks *keyspace.Keyspace, keys []keyspace.Key) ([]Row, shard.View, error) {
	p, err := f.pool(name)
	if err != nil || len(keys) == 0 {
		return nil, shard.View{}, err
	}
	if n, _ := p.queuedLoads(time.Now()); n > 0 {
		return nil, shard.View{}, p.admission.refuseSpare()
	}
	return p.loadNow(ctx, spare, ks, keys, func() {})
}

// loadNow is one statement of one or more calls of Load. ctx bounds the wait for a session; sent is called when there is one.
func (p *pool) loadNow(ctx context.Context, c class, ks *keyspace.Keyspace, keys []keyspace.Key, sent func()) ([]Row, shard.View, error) {
	keyed := p.keyed.Load()
	rows, view, asunder, err := p.loadOnce(ctx, c, ks, keys, keyed, sent)
	if err != nil || keyed || !asunder {
		return rows, view, err
	}
	// The word of some vnodes is not enough. It seldom is not, so the plain statement does not ask for more.
	again, view, asunder, err := p.loadOnce(context.WithoutCancel(ctx), c, ks, keys, true, sent)
	if err == nil && asunder {
		p.keyed.Store(true) // a shard that has to do with overrides will have again
	}
	return again, view, err
}

// loadOnce is one statement: keyed looks at overrides too. asunder says that it makes a difference: of the answer to a plain statement that it
// may, of a keyed one that it does.
func (p *pool) loadOnce(ctx context.Context, c class, ks *keyspace.Keyspace, keys []keyspace.Key, keyed bool, sent func()) (_ []Row, _ shard.View, asunder bool, _ error) {
	sql, args, err := loadStatement(p.name, ks, keys, keyed)
	if err != nil {
		return nil, shard.View{}, false, err
	}
	var rows []Row
	var view shard.View
	var withholds bool
	once := func(ctx context.Context, conn *pgx.Conn) error {
		asked := time.Now()
		var err error
		rows, view, withholds, asunder, err = p.load(ctx, conn, sql, args, keys, keyed)
		since(p.timings.load, asked)
		switch {
		case err != nil:
		case withholds:
			p.word.mentioned(p, view, asked)
		default:
			p.word.said(p, view, asked, outboxRow{})
		}
		return err
	}
	var first error
	err = p.run(ctx, c, p.cfg.LoadTimeout+Grace, func(ctx context.Context, conn *pgx.Conn) error {
		sent()
		if first = once(ctx, conn); code(first) == codeFeature || code(first) == codeNoStatement {
			first = once(ctx, conn) // the statement is prepared anew
		}
		return first
	})
	if lostOnce(first) {
		// The connection had died in the pool, or led to a standby by now; the pool is empty. Reading twice is harmless. The wait for a session was over before.
		err = p.run(context.WithoutCancel(ctx), c, p.cfg.LoadTimeout+Grace, once)
	}
	if err != nil {
		return nil, shard.View{}, false, err
	}
	return rows, view, asunder, nil
}

// load returns also whether the shard withholds any rows, and what loadOnce does.
func (p *pool) load(ctx context.Context, conn *pgx.Conn, sql string, args []any, keys []keyspace.Key, keyed bool) (_ []Row, _ shard.View, withholds, asunder bool, _ error) {
	result, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, shard.View{}, false, false, err
	}
	answers := make([]Row, len(keys))
	var view shard.View
	var epoch, previous *int64
	var phase *int16
	var standby bool
	var place int64
	var state *string
	var overrides *bool
	var to *string
	var body []byte
	n := 0
	_, err = pgx.ForEachRow(result, []any{&epoch, &phase, &previous, &standby, &withholds, &place, &state, &overrides, &to, &body}, func() error {
		if standby {
			return &shard.DownError{Shard: p.name, Err: errReadOnly}
		}
		if epoch == nil || phase == nil || previous == nil {
			return &shard.DownError{Shard: p.name, Err: errNotSetUp}
		}
		view = viewRow{*epoch, *phase, *previous}.view()
		if place < 1 || place > int64(len(keys)) {
			return fmt.Errorf("the shard answered for key %d of %d", place, len(keys))
		}
		n++
		asunder = asunder || overrides != nil && *overrides || !keyed && (state == nil || *state != "owned")
		answers[place-1] = answer(p.name, keys[place-1].ShardVnode, state, to, body)
		return nil
	})
	if err != nil {
		return nil, shard.View{}, false, false, err
	}
	if n < len(keys) {
		return nil, shard.View{}, false, false, fmt.Errorf("the shard answered for %d of %d keys", n, len(keys))
	}
	return answers, view, withholds, asunder, nil
}

// answer decides what a shard may say of one row. An owned vnode is read, and a frozen one, which takes no writes until it is closed; in
// every other state the row here is older or newer than the truth, or nothing.
func answer(name string, vnode uint16, state, to *string, body []byte) Row {
	if state == nil {
		return Row{Err: fmt.Errorf("shard %s: vnode %d was never its own: %w", name, vnode, shard.ErrNotOwner)}
	}
	switch *state {
	case "owned", "frozen":
		return Row{Found: body != nil, Body: body}
	}
	e := &shard.ElsewhereError{Shard: name, CutOver: *state == "closed", Err: fmt.Errorf("vnode %d is %s: %w", vnode, *state, shard.ErrNotOwner)}
	if to != nil {
		e.To = *to
	}
	return Row{Err: e}
}

// loadStatement builds the statement for one key, or for many: the same for every batch of that keyspace, since the keys
// travel as arrays. What an override says of a key counts before what is said of its vnode: keyed asks for both. row_to_json of the whole row, and not a list of columns, so that a prepared statement survives a changed table and
// shows its new columns at once; t.*, since t alone would be a column of that name if there is one.
func loadStatement(name string, ks *keyspace.Keyspace, keys []keyspace.Key, keyed bool) (string, []any, error) {
	if len(keys) == 1 {
		return loadOne(name, ks, keys[0], keyed)
	}
	return loadMany(name, ks, keys, keyed)
}

// ownedBy are the columns that say who owns, and where to it has moved.
const (
	ownedByVnode = `o.state, o.overrides, o.moved_to`
	ownedByKey   = `coalesce(h.state, o.state), h.shard_key is not null or coalesce(o.overrides, false), case when h.shard_key is null then o.moved_to else h.moved_to end`
)

func loadOne(name string, ks *keyspace.Keyspace, key keyspace.Key, keyed bool) (string, []any, error) {
	args := []any{name, int32(key.ShardVnode)}
	owned, home := ownedByVnode, ""
	if keyed {
		args = append(args, string(key.ShardKey))
		owned, home = ownedByKey, "\nleft join ringside.key_ownership h on h.shard_key = $3"
	}
	match, args, err := matchKey(args, "t", ks, key)
	if err != nil {
		return "", nil, err
	}
	return `select v.epoch, v.phase, v.previous, pg_is_in_recovery(), exists (select from ringside.outbox), 1::bigint, ` + owned + `, row_to_json(t.*)::text from (values (1)) as one
left join ringside.view v on v.shard = $1
left join ringside.ownership o on o.vnode = $2` + home + `
left join ` + quoteTable(ks.Table) + ` t on ` + match, args, nil
}

func loadMany(name string, ks *keyspace.Keyspace, keys []keyspace.Key, keyed bool) (string, []any, error) {
	vnodes := make([]int32, len(keys))
	for i, k := range keys {
		vnodes[i] = int32(k.ShardVnode)
	}
	args := []any{name, vnodes}
	var arrays, names, match strings.Builder
	owned, home := ownedByVnode, ""
	if keyed {
		shardKeys := make([]string, len(keys))
		for i, k := range keys {
			shardKeys[i] = string(k.ShardKey)
		}
		args = append(args, shardKeys)
		arrays.WriteString(", $3::text[]")
		names.WriteString(", shard_key")
		owned, home = ownedByKey, "\nleft join ringside.key_ownership h on h.shard_key = k.shard_key"
	}
	for i, field := range ks.Fields {
		array, typ, cast, err := keyArray(ks, keys, i)
		if err != nil {
			return "", nil, err
		}
		args = append(args, array)
		fmt.Fprintf(&arrays, ", $%d::%s", len(args), typ)
		fmt.Fprintf(&names, ", f%d", i)
		if i > 0 {
			match.WriteString(" and ")
		}
		fmt.Fprintf(&match, "t.%s = k.f%d%s", quote(field.Name), i, cast)
	}
	return `select v.epoch, v.phase, v.previous, pg_is_in_recovery(), exists (select from ringside.outbox), k.place, ` + owned + `, row_to_json(t.*)::text
from unnest($2::int[]` + arrays.String() + `) with ordinality as k(vnode` + names.String() + `, place)
left join ringside.view v on v.shard = $1
left join ringside.ownership o on o.vnode = k.vnode` + home + `
left join ` + quoteTable(ks.Table) + ` t on ` + match.String(), args, nil
}

// keyArray gathers one field of all keys, with the type of the array and the cast of its elements.
func keyArray(ks *keyspace.Keyspace, keys []keyspace.Key, field int) (array any, typ, cast string, err error) {
	if ks.Fields[field].Type == keyspace.Int {
		ints := make([]int64, len(keys))
		for i, k := range keys {
			if ints[i], err = keyInt(ks, k, field); err != nil {
				return nil, "", "", err
			}
		}
		return ints, "bigint[]", "", nil
	}
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = string(k.Values[field])
	}
	if ks.Fields[field].Type == keyspace.UUID {
		cast = "::uuid"
	}
	return texts, "text[]", cast, nil
}

// matchKey returns the condition that finds a key's row, appending its values to args.
func matchKey(args []any, alias string, ks *keyspace.Keyspace, key keyspace.Key) (string, []any, error) {
	var b strings.Builder
	for i, field := range ks.Fields {
		value, cast, err := keyValue(ks, key, i)
		if err != nil {
			return "", nil, err
		}
		args = append(args, value)
		if i > 0 {
			b.WriteString(" and ")
		}
		fmt.Fprintf(&b, "%s.%s = $%d%s", alias, quote(field.Name), len(args), cast)
	}
	return b.String(), args, nil
}

// keyValue returns one field of a key as a parameter, with its cast.
func keyValue(ks *keyspace.Keyspace, key keyspace.Key, field int) (value any, cast string, err error) {
	switch ks.Fields[field].Type {
	case keyspace.Int:
		n, err := keyInt(ks, key, field)
		return n, "::bigint", err
	case keyspace.UUID:
		return string(key.Values[field]), "::text::uuid", nil
	}
	return string(key.Values[field]), "::text", nil
}

func keyInt(ks *keyspace.Keyspace, key keyspace.Key, field int) (int64, error) {
	n, err := strconv.ParseInt(string(key.Values[field]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %q of keyspace %s: field %s is not an integer", key.Text, ks.Name, ks.Fields[field].Name)
	}
	return n, nil
}
