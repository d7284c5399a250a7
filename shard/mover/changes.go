package mover

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

const (
	// changesAtOnce is how many notes of changes are applied together.
	changesAtOnce = 2000
	// maxTouched is how many changed rows are remembered to be compared in the block of writes. With more, all rows are compared again.
	maxTouched = 20_000
)

// touch names a row that was changed.
type touch struct {
	table int    // index in the part's tables
	key   string // JSON array
}

// noted is what was read of the source's log.
type noted struct {
	seqs []int64
	keys map[int]map[string]struct{} // by table
}

// readChanges reads the oldest notes of a part. The error errTables says that there are notes of a table that is not known.
func readChanges(ctx context.Context, from *side, tables []table, limit int) (noted, error) {
	n := noted{keys: map[int]map[string]struct{}{}}
	rows, err := from.conn.Query(ctx, `select c.seq, c.tbl::oid::bigint, c.key::text from ringside.change c where c.part = $1 order by c.seq limit $2`, from.part, limit)
	if err != nil {
		return n, err
	}
	var seq, oid int64
	var key string
	_, err = pgx.ForEachRow(rows, []any{&seq, &oid, &key}, func() error {
		at := -1
		for i := range tables {
			if tables[i].OID == oid {
				at = i
			}
		}
		if at < 0 {
			return errTables
		}
		if n.keys[at] == nil {
			n.keys[at] = map[string]struct{}{}
		}
		n.keys[at][key] = struct{}{}
		n.seqs = append(n.seqs, seq)
		return nil
	})
	return n, err
}

// keyList writes keys as one JSON array.
func keyList(keys map[string]struct{}) string {
	list := make([]string, 0, len(keys))
	for k := range keys {
		list = append(list, k)
	}
	return "[" + strings.Join(list, ",") + "]"
}

// remember adds changed rows to those that are to be compared in the block of writes. Of too many none are remembered, and all rows are compared again.
func (p *part) remember(changed map[int]map[string]struct{}) {
	if p.touched == nil {
		return
	}
	for at, keys := range changed {
		for k := range keys {
			p.touched[touch{at, k}] = struct{}{}
		}
	}
	if len(p.touched) > maxTouched {
		p.touched, p.compared = nil, false
	}
}

// applyChanges applies the oldest notes, at most limit, and strikes them (I2, I3). It returns how many there were.
func (p *part) applyChanges(ctx context.Context, limit int, step shard.MoveStep) (int, error) {
	n, err := readChanges(ctx, p.from, p.tables, limit)
	if err != nil || len(n.seqs) == 0 {
		return 0, err
	}
	if err := p.apply(ctx, n, step); err != nil {
		return 0, err
	}
	err = p.from.transaction(ctx, p.limit(), func(ctx context.Context, tx pgx.Tx) error {
		if err := p.from.leave(ctx, tx, shard.MoveWait); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `delete from ringside.change where part = $1 and seq = any($2)`, p.from.part, n.seqs)
		return err
	})
	return len(n.seqs), err
}

// apply brings the rows that were noted to the destination, as they are now.
func (p *part) apply(ctx context.Context, n noted, step shard.MoveStep) error {
	p.remember(n.keys)
	err := p.to.transaction(ctx, p.limit(), func(ctx context.Context, tx pgx.Tx) error {
		if err := p.to.leave(ctx, tx, step); err != nil {
			return err
		}
		// What is deleted goes first, of all tables: a value that must be unique may have gone from one row to another.
		for at, keys := range n.keys {
			t := &p.tables[at]
			if t.muted() {
				if _, err := tx.Exec(ctx, mute); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, `delete from `+t.Name+` where `+t.among(keyList(keys), p.scope.mine(t, p.to.part))); err != nil {
				return err
			}
		}
		for at, keys := range n.keys {
			t := &p.tables[at]
			_, _, err := stream(ctx, p.from.conn.PgConn(), `copy (select `+t.columns()+` from `+t.Name+` where `+t.among(keyList(keys), p.scope.mine(t, p.from.part))+`) to stdout`,
				tx.Conn().PgConn(), `copy `+t.Name+` (`+t.columns()+`) from stdin`)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		p.count(func(g *gauge) { g.changes += int64(len(n.seqs)) })
	}
	return err
}

// catchUp applies notes until little is left, or it has gone on for a while.
func (p *part) catchUp(ctx context.Context) error {
	limit := changesAtOnce
	for range 20 {
		n, err := p.applyChanges(ctx, limit, shard.MoveCatchUp)
		switch {
		case code(err) == "23505" && limit < 1<<20:
			limit *= 16 // a value that must be unique has wandered on; its next owner is further down
			continue
		case err != nil:
			return err
		case n < changesAtOnce/4:
			return nil
		}
		if err := p.breathe(ctx); err != nil {
			return err
		}
	}
	return nil
}

func decodeCursor(text []byte) (cursor, error) {
	var c cursor
	if len(text) == 0 {
		return c, nil
	}
	err := json.Unmarshal(text, &c)
	return c, err
}
