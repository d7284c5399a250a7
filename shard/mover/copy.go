package mover

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/shard"
)

const (
	firstPage = 1000 // rows
	minPage   = 250
	maxPage   = 50_000
	// copyFor is how long copying goes on before the driver looks around.
	copyFor = 500 * time.Millisecond
)

// cursor is how far copying is: everything before it is on the destination. It is kept there.
type cursor struct {
	Table string `json:"table"`           // tables with lesser names are done
	Vnode int    `json:"vnode"`           // of this table, lesser vnodes are done
	After string `json:"after,omitempty"` // and of this vnode, rows up to this key; empty: none
	Done  bool   `json:"done,omitempty"`
}

// copier copies the rows of a part, page by page.
type copier struct {
	cursor
	tables []table
	scope  *scope
	at     int         // index in tables
	left   []vnodeRows // of that table, from the cursor on; nil: not counted yet
	size   int         // rows of the next page
}

type vnodeRows struct {
	vnode int
	rows  int64
}

func newCopier(at cursor, tables []table, s *scope) *copier {
	c := &copier{cursor: at, tables: tables, scope: s, size: firstPage}
	for c.at < len(tables) && tables[c.at].Name < at.Table {
		c.at++
	}
	return c
}

// page is a piece of one table.
type page struct {
	table *table
	where string
	next  cursor
}

// plan finds the next page. ok is false when there is none.
func (c *copier) plan(ctx context.Context, from *side) (p page, ok bool, err error) {
	for ; c.at < len(c.tables); c.at++ {
		t := &c.tables[c.at]
		if c.Table != t.Name {
			c.cursor, c.left = cursor{Table: t.Name}, nil
		}
		if c.left == nil {
			if c.left, err = c.count(ctx, from, t); err != nil {
				return page{}, false, err
			}
		}
		if len(c.left) > 0 {
			p, err = c.piece(ctx, from, t)
			return p, err == nil, err
		}
	}
	return page{}, false, nil
}

func (c *copier) count(ctx context.Context, from *side, t *table) ([]vnodeRows, error) {
	rows, err := from.conn.Query(ctx, fmt.Sprintf(`select ringside_vnode, count(*) from %s where %s and ringside_vnode >= %d group by 1 order by 1`,
		t.Name, c.scope.mine(t, from.part), c.Vnode))
	if err != nil {
		return nil, err
	}
	left := []vnodeRows{}
	var v vnodeRows
	_, err = pgx.ForEachRow(rows, []any{&v.vnode, &v.rows}, func() error {
		left = append(left, v)
		return nil
	})
	return left, err
}

// piece takes whole vnodes as long as they are small, or a part of one that is large.
func (c *copier) piece(ctx context.Context, from *side, t *table) (page, error) {
	first := c.left[0]
	if c.After != "" && first.vnode != c.Vnode {
		c.After = "" // the rest of that vnode is gone
	}
	if c.After == "" && first.rows <= 2*int64(c.size) {
		var vnodes []uint16
		var rows int64
		n := 0
		for n < len(c.left) && (n == 0 || rows+c.left[n].rows <= int64(c.size)) {
			rows += c.left[n].rows
			vnodes = append(vnodes, uint16(c.left[n].vnode))
			n++
		}
		return page{t, fmt.Sprintf("ringside_vnode = any(%s)%s", numbers(vnodes), c.scope.also(t)), cursor{Table: t.Name, Vnode: c.left[n-1].vnode + 1}}, nil
	}
	where := fmt.Sprintf("ringside_vnode = %d%s", first.vnode, c.scope.also(t))
	if c.After != "" {
		where += fmt.Sprintf(" and (%s) > (%s)", t.key(), c.After)
	}
	var upTo string
	err := from.conn.QueryRow(ctx, fmt.Sprintf(`select %s from %s where %s order by ringside_vnode, %s offset %d limit 1`,
		t.keyLiteral(), t.Name, where, t.key(), c.size-1)).Scan(&upTo)
	switch err {
	case nil:
		return page{t, where + fmt.Sprintf(" and (%s) <= (%s)", t.key(), upTo), cursor{Table: t.Name, Vnode: first.vnode, After: upTo}}, nil
	case pgx.ErrNoRows:
		return page{t, where, cursor{Table: t.Name, Vnode: first.vnode + 1}}, nil
	}
	return page{}, err
}

// taken moves the cursor past a page that was copied, and adapts the size of the next one.
func (c *copier) taken(p page, took, want time.Duration) {
	c.cursor = p.next
	for len(c.left) > 0 && (c.left[0].vnode < c.Vnode) {
		c.left = c.left[1:]
	}
	factor := min(max(float64(want)/float64(max(took, time.Millisecond)), 0.5), 2)
	c.size = min(max(int(float64(c.size)*factor), minPage), maxPage)
}

// copyPage brings one page to the destination: it replaces what is there, and notes how far copying is, in one transaction (I2). took is how long the shards
// were busy with its rows.
func copyPage(ctx context.Context, from, to *side, p page) (rows, bytes int64, took time.Duration, err error) {
	note, err := json.Marshal(p.next)
	if err != nil {
		return 0, 0, 0, err
	}
	err = to.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		if err := to.leave(ctx, tx, shard.MoveCopy); err != nil {
			return err
		}
		// What was copied before by a page that was not noted, or has been changed since, goes first.
		prepare := fmt.Sprintf(`update ringside.part set copying = %s where id = %d; delete from %s where %s`, quoteText(string(note)), to.part, p.table.Name, p.where)
		if p.table.muted() {
			prepare = mute + "; " + prepare
		}
		start := time.Now()
		if _, err := tx.Exec(ctx, prepare); err != nil {
			return err
		}
		rows, bytes, err = stream(ctx, from.conn.PgConn(), fmt.Sprintf(`copy (select %s from %s where %s) to stdout`, p.table.columns(), p.table.Name, p.where),
			tx.Conn().PgConn(), fmt.Sprintf(`copy %s (%s) from stdin`, p.table.Name, p.table.columns()))
		took = time.Since(start)
		return err
	})
	return rows, bytes, took, err
}

// mute keeps triggers of others and foreign keys from firing in a transaction.
const mute = `set local session_replication_role = replica`

// stream connects the output of one COPY with the input of another.
func stream(ctx context.Context, from *pgconn.PgConn, out string, to *pgconn.PgConn, in string) (rows, bytes int64, err error) {
	r, w := io.Pipe()
	counted := &counter{w: w}
	read := make(chan error, 1)
	go func() {
		_, err := from.CopyTo(ctx, counted, out)
		w.CloseWithError(err)
		read <- err
	}()
	tag, err := to.CopyFrom(ctx, r, in)
	r.CloseWithError(io.ErrClosedPipe) // if the destination has refused, the source is not to wait for it
	if readErr := <-read; readErr != nil && (err == nil || code(readErr) != "") {
		err = readErr
	}
	return tag.RowsAffected(), counted.n, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
