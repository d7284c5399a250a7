package cdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"ringside/internal/failpoint"
)

const (
	closeTimeout = 500 * time.Millisecond
	// senderTimeout is how long the server waits for a word of ours before it takes the slot from us: a sidecar that is gone without its
	// machine having said so does not block those that want to take over for longer. We send one every statusEvery.
	senderTimeout = 5 * time.Second
	statusEvery   = time.Second
	writeTimeout  = 5 * time.Second
)

// stream is a replication connection, outside of the pools and of their budget: it takes one of the server's max_wal_senders. One goroutine may
// receive while another one sends.
type stream struct {
	conn    *pgconn.PgConn
	slot    string
	timeout time.Duration
}

func openStream(ctx context.Context, s Shard, cfg Config) (*stream, error) {
	cc, err := s.parse()
	if err != nil {
		return nil, err
	}
	cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // whatever the DSN's target_session_attrs says
	ours := map[string]string{
		"replication": "database", "client_encoding": "UTF8", "application_name": "ringside changes",
		// No statement_timeout: the making of a slot is bounded by lock_timeout alone.
		"lock_timeout": milliseconds(cfg.SlotWait), "statement_timeout": "0", "wal_sender_timeout": milliseconds(senderTimeout),
	}
	for name, value := range ours {
		cc.RuntimeParams[name] = value
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.CallTimeout)
	defer cancel()
	cc.DialFunc = failpoint.Dial(cc.DialFunc)
	conn, err := pgconn.ConnectConfig(ctx, &cc.Config)
	if err != nil {
		return nil, err
	}
	return &stream{conn, SlotName(s.Name), cfg.CallTimeout}, nil
}

func (s *stream) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.conn.Close(ctx) // nothing is left to lose
}

// identify asks the server who it is, and when it was started.
func (s *stream) identify(ctx context.Context) (now server, started string, err error) {
	row, err := s.row(ctx, "IDENTIFY_SYSTEM", 4)
	if err != nil {
		return now, "", err
	}
	now.system, now.database = row[0], row[3]
	if now.timeline, err = strconv.ParseInt(row[1], 10, 64); err != nil {
		return now, "", fmt.Errorf("timeline %q: %w", row[1], err)
	}
	if now.flushed, err = parseLSN(row[2]); err != nil {
		return now, "", err
	}
	row, err = s.row(ctx, "select pg_catalog.pg_postmaster_start_time()::text", 1)
	if err != nil {
		return now, "", err
	}
	return now, row[0], nil
}

// row runs a command that answers with one row.
func (s *stream) row(ctx context.Context, command string, columns int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	results, err := s.conn.Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < columns {
		return nil, fmt.Errorf("%s did not answer with a row of %d columns", command, columns)
	}
	var row []string
	for _, v := range results[0].Rows[0] {
		row = append(row, string(v))
	}
	return row, nil
}

func parseLSN(text string) (LSN, error) {
	var high, low uint32
	if n, err := fmt.Sscanf(text, "%X/%X", &high, &low); n != 2 || err != nil {
		return 0, fmt.Errorf("%.40q is no position in a log", text)
	}
	return LSN(high)<<32 | LSN(low), nil
}

// createSlot makes the slot. It waits until all transactions that are under way have ended, so that whatever commits after it is in the slot.
func (s *stream) createSlot(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait+s.timeout) // several waits for locks make it up
	defer cancel()
	_, err := s.conn.Exec(ctx, "CREATE_REPLICATION_SLOT "+s.slot+" LOGICAL "+outputPlugin+" (SNAPSHOT 'nothing')").ReadAll()
	if code(err) == codeLockNotAvailable || isTimeout(err) {
		return fmt.Errorf("a slot can be made only when the transactions that are under way have ended, and one has not within %v: %w", wait, err)
	}
	return err
}

// start begins to read where the slot was acknowledged last. The server refuses (codeInUse) while another reads: this is the election.
func (s *stream) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer s.interruptible(ctx)()
	// All origins are asked for: another subscription may write these tables too, and only the mover's transactions may be left out.
	s.conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT " + s.slot + " LOGICAL 0/0 " +
		"(proto_version '1', publication_names '" + Publication + "', messages 'true')"})
	if err := s.conn.Frontend().Flush(); err != nil {
		return err
	}
	for {
		m, err := s.conn.ReceiveMessage(context.Background())
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		switch m := m.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		}
	}
}

// interruptible makes receive fail when ctx ends, until the returned function is called. A context given to each receive would cost more than
// the receiving.
func (s *stream) interruptible(ctx context.Context) (end func()) {
	conn := s.conn.Conn()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // a closed connection fails anyway
	return func() { stop() }
}

// errEnded says that the server has ended the stream, as it does when it is shut down.
var errEnded = errors.New("the server has ended the stream")

// receive waits for the next frame. What it returns is valid until the next call.
func (s *stream) receive() (any, error) {
	for {
		m, err := s.conn.ReceiveMessage(context.Background())
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *pgproto3.CopyData:
			return decodeFrame(m.Data)
		case *pgproto3.ErrorResponse:
			return nil, pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyDone, *pgproto3.CommandComplete:
			return nil, errEnded
		}
	}
}

// acknowledge lets the server forget everything before lsn, and shows that we are alive.
func (s *stream) acknowledge(lsn LSN, now time.Time) error {
	conn := s.conn.Conn()
	if err := conn.SetWriteDeadline(now.Add(writeTimeout)); err != nil {
		return err
	}
	const since2000 = 946684800 * 1e6
	_, err := conn.Write(appendStatus(nil, lsn, now.UnixMicro()-since2000))
	if errors.Is(err, net.ErrClosed) {
		return errEnded
	}
	return err
}
