package origin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"ringside/shard"
)

// SQLSTATEs raised by ringside.fence (see schema.sql).
const (
	codeStaleView = "RS001"
	codeNotOwner  = "RS002"
	codeFrozen    = "RS003"
	codeClosed    = "RS004"
)

// PostgreSQL's own SQLSTATEs that are treated apart.
const (
	codeReadOnly           = "25006"
	codeIdleInTransaction  = "25P03"
	codeTooManyConnections = "53300"
	codeUndefinedColumn    = "42703"
	codeUndefinedTable     = "42P01"
	codeUndefinedFunction  = "42883"
	codeUndefinedSchema    = "3F000"
	codeMismatch           = "42804"
	codeCannotCoerce       = "42846"
	codeGenerated          = "428C9" // the database computes the column
	codeFeature            = "0A000" // among others: cached plan must not change result type
	codeNoStatement        = "26000" // prepared statement does not exist
	codeLockNotAvailable   = "55P03"
	codeDeadlock           = "40P01"
	codeSerialization      = "40001"
	codeQueryCanceled      = "57014"
	codeOutOfRange         = "22003"
	codeUniqueViolation    = "23505"
	codeCheckViolation     = "23514"
	codeDuplicateSchema    = "42P06"
)

var (
	errNotInTopology = errors.New("is not among the shards that this sidecar knows")
	errNotSetUp      = errors.New("has not been set up for ringside yet (it has no row in ringside.view under this name)")
	errReadOnly      = errors.New("takes no writes (is it a standby now?)")
	errRemoved       = errors.New("was removed or changed its address")
	errShutDown      = errors.New("this sidecar is shutting down")
)

// WrongShardError says that a database belongs to another shard than its DSN claims. Nothing was changed.
type WrongShardError struct {
	Shard string // the name it was addressed by
	Holds string // the name it was installed as
}

func (e *WrongShardError) Error() string {
	return fmt.Sprintf("shard %s: its dsn leads to the database of shard %s (are two dsns swapped?)", e.Shard, e.Holds)
}

// TableError says that a table cannot stand behind a keyspace. The shard was reached: it is the table or the configuration that
// must change.
type TableError struct {
	Shard, Keyspace, Table string
	Column                 string // empty when the fault is not in one column
	Reason                 string
}

func (e *TableError) Error() string {
	at := fmt.Sprintf("keyspace %s: table %s on shard %s", e.Keyspace, e.Table, e.Shard)
	if e.Column != "" {
		at += fmt.Sprintf(", column %s", e.Column)
	}
	return at + ": " + e.Reason
}

// code returns the SQLSTATE of err, "" when err did not come from the server.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// translate turns an error of pgx into the vocabulary of package shard. Errors that are already in it pass. It does not look for
// bad rows: only a write can be the client's fault (see badRow).
func translate(name string, err error) error {
	if err == nil || isTranslated(err) {
		return err
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return &shard.DownError{Shard: name, Err: err}
	}
	switch pg.Code {
	case codeStaleView:
		return &shard.StaleViewError{Shard: name, View: parseView(pg.Detail)}
	case codeNotOwner, codeClosed:
		return &shard.ElsewhereError{Shard: name, To: pg.Detail, CutOver: pg.Code == codeClosed, Err: fmt.Errorf("%s: %w", pg.Message, shard.ErrNotOwner)}
	case codeFrozen:
		return &shard.ElsewhereError{Shard: name, To: pg.Detail, CutOver: true, Err: fmt.Errorf("%s: %w", pg.Message, shard.ErrFrozen)}
	case codeTooManyConnections:
		return fmt.Errorf("shard %s: %s: %w", name, pg.Message, shard.ErrOverloaded)
	case codeLockNotAvailable, codeDeadlock, codeSerialization:
		return fmt.Errorf("shard %s: %s: %w", name, pg.Message, shard.ErrLocked)
	case codeUndefinedSchema:
		return &shard.DownError{Shard: name, Err: errNotSetUp}
	}
	return &shard.DownError{Shard: name, Err: err}
}

func isTranslated(err error) bool {
	for _, sentinel := range []error{shard.ErrNotOwner, shard.ErrFrozen, shard.ErrOverloaded, shard.ErrLocked, ErrOutboxFull} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	if _, ok := errors.AsType[*shard.DownError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*shard.StaleViewError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*WrongShardError](err); ok {
		return true
	}
	_, ok := errors.AsType[*shard.BadRowError](err)
	return ok
}

// parseView reads the DETAIL of a stale view, "epoch/phase/previous". The zero View stands for a shard without a view.
func parseView(detail string) shard.View {
	var numbers [3]uint64
	parts := strings.Split(detail, "/")
	if len(parts) != len(numbers) {
		return shard.View{}
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return shard.View{}
		}
		numbers[i] = n
	}
	if numbers[1] > 255 {
		return shard.View{}
	}
	return shard.View{Epoch: numbers[0], Phase: shard.Phase(numbers[1]), From: numbers[2]}
}

// reaction is what an error asks of the pool it came from.
type reaction struct {
	reset bool // every other connection is as dead or as read-only as this one: drop them
	ask   bool // the shard may be down: let the poller find out now
}

// react decides. An answer of the server that concerns one statement asks for nothing.
func react(err error) reaction {
	switch {
	case err == nil, errors.Is(err, puddle.ErrClosedPool):
		return reaction{}
	case errors.Is(err, errReadOnly):
		return reaction{reset: true, ask: true}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == codeReadOnly, strings.HasPrefix(pg.Code, "57P0"), strings.HasPrefix(pg.Code, "08"):
			return reaction{reset: true, ask: true}
		}
		return reaction{}
	}
	if isTranslated(err) || errors.Is(err, context.Canceled) {
		return reaction{}
	}
	if isTimeout(err) {
		return reaction{ask: true}
	}
	return reaction{reset: true, ask: true}
}

// isConnectFailure reports whether no connection could be opened, by the shard's fault: refused, timed out, not let in. A shard
// that has no session left for us is saturated, not down.
func isConnectFailure(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && !isNoSeat(err)
}

// isLost reports whether the connection broke, other than by our running out of patience.
func isLost(err error) bool {
	switch c := code(err); {
	case strings.HasPrefix(c, "57P0"), strings.HasPrefix(c, "08"):
		return true
	case c != "":
		return false
	}
	return err != nil && !isTranslated(err) && !isTimeout(err) && !errors.Is(err, puddle.ErrClosedPool)
}

func isTimeout(err error) bool {
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded)
}

// tookLonger says in the operator's words that the shard did not answer in time.
func tookLonger(name string, than time.Duration, err error) error {
	if code(err) != codeQueryCanceled && !isTimeout(err) {
		return err
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return err
	}
	return &shard.DownError{Shard: name, Err: fmt.Errorf("no answer within %v: %w", than, err)}
}
