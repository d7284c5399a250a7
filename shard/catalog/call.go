package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// call runs one operation within its time. An operation that failed because its connection had died meanwhile is repeated once on a
// new one: always when that is harmless (repeatable), otherwise only if nothing had been sent.
func (c *Catalog) call(ctx context.Context, what string, repeatable bool, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	err := f(ctx)
	if err != nil && ctx.Err() == nil && c.connectionLost(err) && (repeatable || pgconn.SafeToRetry(err)) {
		c.log.Debug("repeating on a new connection", "call", what, "err", err)
		err = f(ctx)
	}
	if err == nil || errors.Is(err, ErrConflict) {
		return err
	}
	if unavailable(err) {
		return fmt.Errorf("catalog: %s: %w: %w", what, ErrUnavailable, err)
	}
	return fmt.Errorf("catalog: %s: %w", what, err)
}

// connectionLost reports whether the error is about an established connection. The server may have restarted or become a standby, so the
// other idle connection is not to be trusted either.
func (c *Catalog) connectionLost(err error) bool {
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) || !unavailable(err) {
		return false
	}
	c.db.Reset()
	return true
}

// unavailable reports whether an error may go away by itself.
func unavailable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true // the network, a time limit, or Close
	}
	switch pg.Code {
	case "25006", // the server is a standby now
		"57P01", "57P02", "57P03", // it is stopping, crashed, starting
		"53300", // it has no connection to spare
		"55P03", "57014", "40001", "40P01":
		return true
	}
	return strings.HasPrefix(pg.Code, "08")
}
