package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// mostPrepared is how many statements of writes a session keeps prepared. There are as many as there are sets of columns that are written.
const mostPrepared = 256

// preparedKey is where a session notes how many it has.
const preparedKey = "ringside.prepared"

// prepare returns a statement as the session has it, and prepares it when it has not. It takes a round trip then, outside of any transaction.
func prepare(ctx context.Context, conn *pgx.Conn, sql string) (*pgconn.StatementDescription, error) {
	noted := conn.PgConn().CustomData()
	known, _ := noted[preparedKey].(map[string]*pgconn.StatementDescription)
	if sd := known[sql]; sd != nil {
		return sd, nil
	}
	if known == nil || len(known) == mostPrepared {
		if known != nil {
			if err := unprepare(ctx, conn); err != nil {
				return nil, err
			}
		}
		known = map[string]*pgconn.StatementDescription{}
		noted[preparedKey] = known
	}
	sd, err := conn.Prepare(ctx, sql, sql)
	if err != nil {
		return nil, err
	}
	known[sql] = sd
	return sd, nil
}

// unprepare makes a session forget all its statements, those that pgx has prepared too: there are too many, or the shard has lost them.
func unprepare(ctx context.Context, conn *pgx.Conn) error {
	delete(conn.PgConn().CustomData(), preparedKey)
	return conn.DeallocateAll(ctx)
}

var (
	// errOutOfStep says that what the shard answers does not belong to what it was asked.
	errOutOfStep = errors.New("the shard's answers do not belong to what it was asked")
	// errSevered says that the connection was found dead before COMMIT was sent.
	errSevered = errors.New("the shard has closed the connection")
)

// severed reports whether the connection is known to be dead: its server has ended, or the session, and there is nothing to read. It costs one system call.
func severed(conn *pgx.Conn) bool {
	socket, ok := innermost(conn.PgConn().Conn()).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true // it is closed on our side
	}
	dead := false
	err = raw.Control(func(fd uintptr) {
		var next [1]byte
		n, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		dead = n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return dead || err != nil
}

// innermost is the connection under TLS and under what counts sessions.
func innermost(conn net.Conn) net.Conn {
	for {
		switch c := conn.(type) {
		case *tls.Conn:
			conn = c.NetConn()
		case *entrance:
			conn = c.Conn
		default:
			return conn
		}
	}
}

// pipeline sends statements of one session without waiting for the answers to the ones before. Everything that is queued must be followed by Sync, and
// Close must be called, which reads what has not been read. Not for concurrent use.
type pipeline struct {
	*pgconn.Pipeline
	conn   *pgx.Conn
	values pgx.ExtendedQueryBuilder // of one statement
}

func newPipeline(ctx context.Context, conn *pgx.Conn) *pipeline {
	return &pipeline{Pipeline: conn.PgConn().StartPipeline(ctx), conn: conn}
}

// queue adds a statement. Nothing of it is sent when its arguments do not fit. The shard is asked for the columns of the answer each time: pgx loses step (v5.13) when
// it is told of them and a statement is left out because one before it has failed.
func (p *pipeline) queue(sd *pgconn.StatementDescription, args ...any) error {
	if err := p.values.Build(p.conn.TypeMap(), sd, args); err != nil {
		return err
	}
	p.SendQueryPrepared(sd.Name, p.values.ParamValues, p.values.ParamFormats, p.values.ResultFormats)
	return nil
}

// row reads the one row that a statement answers with.
func (p *pipeline) row(into ...any) error {
	results, err := p.results()
	if err != nil {
		return err
	}
	rows := pgx.RowsFromResultReader(p.conn.TypeMap(), results)
	defer rows.Close()
	if !rows.Next() {
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// done reads the answer of a statement that has no rows.
func (p *pipeline) done() (pgconn.CommandTag, error) {
	results, err := p.results()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return results.Close()
}

// synced reads up to where Sync was called.
func (p *pipeline) synced() error {
	for {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		if _, ok := results.(*pgconn.PipelineSync); ok {
			return nil
		}
		if results == nil {
			return errOutOfStep
		}
	}
}

func (p *pipeline) results() (*pgconn.ResultReader, error) {
	results, err := p.GetResults()
	if err != nil {
		return nil, err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return nil, errOutOfStep
	}
	return reader, nil
}
