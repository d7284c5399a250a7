package cdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/internal/failpoint"
)

// LagSQL says in one row how a shard is followed, for whoever has a session there: by whom (text), and how many seconds ago all changes that were
// visible then had been handed out (float8), at most about Config.Beat while all is well. NULL: unknown, or entries must be flushed first.
const LagSQL = `select follower, case when flush_due = '{}' then extract(epoch from clock_timestamp() - beat)::float8 end from ringside.cdc`

// site is a session on the shard, for all that is not the stream. It is not safe for concurrent use.
type site struct {
	conn    *pgx.Conn
	shard   string
	slot    string
	timeout time.Duration
	started string // when the server was started: tells whether the stream comes from the same one
}

// openSite connects and makes sure that this is the shard's primary. It costs one session beside the budget of the pools.
func openSite(ctx context.Context, s Shard, cfg Config) (*site, error) {
	cc, err := s.parse()
	if err != nil {
		return nil, err
	}
	cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // whatever the DSN's target_session_attrs says
	ours := map[string]string{
		"statement_timeout": milliseconds(cfg.CallTimeout), "lock_timeout": milliseconds(cfg.CallTimeout / 2),
		// A standby that is to be waited for and does not answer must not hold up the heartbeat.
		"synchronous_commit": "local",
		// It is idle for as long as the cache servers do not answer.
		"idle_session_timeout": "0",
	}
	for name, value := range ours {
		cc.RuntimeParams[name] = value
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "ringside changes"
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.CallTimeout)
	defer cancel()
	cc.DialFunc = failpoint.Dial(cc.DialFunc)
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, err
	}
	st := &site{conn: conn, shard: s.Name, slot: SlotName(s.Name), timeout: cfg.CallTimeout}
	var version int
	if err := conn.QueryRow(ctx, `select pg_catalog.pg_postmaster_start_time()::text, current_setting('server_version_num')::int`).Scan(&st.started, &version); err != nil {
		st.close()
		return nil, err
	}
	if version < oldestServer {
		st.close()
		return nil, &settingError{"the server is older than PostgreSQL 15", "upgrade it", true}
	}
	return st, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (s *site) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.conn.Close(ctx) // nothing is left to lose
}

// bounded returns the context of one statement. The server's own limit comes a little earlier.
func (s *site) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout+s.timeout/4)
}

// sight is what the shard says about how it is followed.
type sight struct {
	past      history
	follower  string
	keyspaces []string // those that the follower knows, each as describe gives it
	age       time.Duration
	aged      bool // age is known
	due       due
	slot      *slotInfo // nil: there is none
	walLevel  string
	keep      string // max_slot_wal_keep_size
}

// due is what must be flushed before the shard can be said to be followed. It is written down before the reason for it goes away, so that it
// survives whoever was to do it.
type due struct {
	keyspaces []string // by name; allKeyspaces stands for all
	why       string
	seq       int64 // rises whenever something is added
}

const allKeyspaces = "*"

const lookSQL = `
select c.slot, c.system_id, c.timeline, c.follower, c.keyspaces, c.flush_due, c.flush_why, c.flush_seq,
	case when c.flush_due = '{}' then extract(epoch from clock_timestamp() - c.beat)::float8 end,
	s.slot_name is not null, coalesce(s.plugin::text, ''), coalesce(s.database::text, ''), coalesce(s.temporary, false), coalesce(s.active, false),
	coalesce(s.wal_status, ''), coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn), 0)::int8, coalesce(s.safe_wal_size, -1),
	current_setting('wal_level'), current_setting('max_slot_wal_keep_size'), (select v.shard from ringside.view v)
from ringside.cdc c left join pg_catalog.pg_replication_slots s on s.slot_name = $1::text`

// look asks how the shard is followed. The error is a *notReadyError when the shard is not installed, or is another.
func (s *site) look(ctx context.Context) (sight, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var v sight
	var age *float64
	var exists bool
	var slot slotInfo
	var shard *string
	err := s.conn.QueryRow(ctx, lookSQL, s.slot).Scan(&v.past.slot, &v.past.system, &v.past.timeline, &v.follower, &v.keyspaces,
		&v.due.keyspaces, &v.due.why, &v.due.seq, &age, &exists, &slot.plugin, &slot.database, &slot.temporary, &slot.active,
		&slot.walStatus, &slot.retained, &slot.safe, &v.walLevel, &v.keep, &shard)
	switch {
	case errors.Is(err, pgx.ErrNoRows), code(err) == codeUndefinedTable, code(err) == codeUndefinedSchema, err == nil && shard == nil:
		return v, &notReadyError{"the schema ringside is not installed there, or is older than this sidecar"}
	case err != nil:
		return v, err
	case *shard != s.shard:
		return v, &notReadyError{fmt.Sprintf("the database is that of shard %q", *shard)}
	}
	if age != nil {
		v.age, v.aged = max(time.Duration(*age*float64(time.Second)), 0), true
	}
	if exists {
		v.slot = &slot
	}
	return v, nil
}

// oweFlush writes down what must be flushed.
func oweFlush(ctx context.Context, db execer, keyspaces []string, why string) error {
	_, err := db.Exec(ctx, `update ringside.cdc set flush_why = $2, flush_seq = flush_seq + 1,
	flush_due = (select array_agg(distinct x order by x) from unnest(flush_due || $1::text[]) x)`, keyspaces, why)
	return err
}

// execer is a session or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// paid strikes out what was flushed, unless something has been added meanwhile.
func (s *site) paid(ctx context.Context, d due) error {
	return s.exec(ctx, `update ringside.cdc set flush_due = '{}', flush_why = '' where flush_seq = $1`, d.seq)
}

// takeOver writes down who follows which slot of which server. It is called with the slot in hand.
func (s *site) takeOver(ctx context.Context, now server, sidecar string, keyspaces []string) error {
	return s.exec(ctx, `update ringside.cdc set slot = $1, system_id = $2, timeline = $3, follower = $4, keyspaces = $5`,
		s.slot, now.system, now.timeline, sidecar, keyspaces)
}

// mark puts a heartbeat into the log and returns the server's time right before. Whatever was visible at that time stands before it in the log.
func (s *site) mark(ctx context.Context, content string) (time.Time, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var at time.Time
	// The time is taken in a row that is made before the message is.
	err := s.conn.QueryRow(ctx, `select t.at, pg_catalog.pg_logical_emit_message(true, $1, $2)::text
from (select clock_timestamp() as at offset 0) t`, heartbeatPrefix, content).Scan(&at, nil)
	return at, err
}

// passed writes down that all changes which were visible at that time have been handed out.
func (s *site) passed(ctx context.Context, at time.Time, acked LSN) error {
	return s.exec(ctx, `update ringside.cdc set beat = greatest(beat, $1), lsn = $2::text::pg_lsn`, at, acked.String())
}

func (s *site) snapshot(ctx context.Context) (snapshot, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var text string
	if err := s.conn.QueryRow(ctx, `select pg_catalog.pg_current_snapshot()::text`).Scan(&text); err != nil {
		return snapshot{}, err
	}
	return parseSnapshot(text)
}

func (s *site) dropSlot(ctx context.Context) error {
	return s.exec(ctx, `select pg_catalog.pg_drop_replication_slot($1)`, s.slot)
}

func (s *site) exec(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	_, err := s.conn.Exec(ctx, sql, args...)
	return err
}
