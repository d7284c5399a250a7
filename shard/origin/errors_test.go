package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"ringside/shard"
)

func pgError(code, severity string) error {
	return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, SeverityUnlocalized: severity, Severity: severity, Message: "m", Detail: "8/2/7"})
}

func TestTranslate(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		is   error
		down bool
	}{
		"not owner":     {pgError(codeNotOwner, "ERROR"), shard.ErrNotOwner, false},
		"closed":        {pgError(codeClosed, "ERROR"), shard.ErrNotOwner, false},
		"frozen":        {pgError(codeFrozen, "ERROR"), shard.ErrFrozen, false},
		"too many":      {pgError(codeTooManyConnections, "FATAL"), shard.ErrOverloaded, false},
		"locked":        {pgError(codeLockNotAvailable, "ERROR"), shard.ErrLocked, false},
		"deadlock":      {pgError(codeDeadlock, "ERROR"), shard.ErrLocked, false},
		"serialization": {pgError(codeSerialization, "ERROR"), shard.ErrLocked, false},
		"no schema":     {pgError(codeUndefinedSchema, "ERROR"), errNotSetUp, true},
		"shutting down": {pgError("57P01", "FATAL"), nil, true},
		"cancelled":     {pgError(codeQueryCanceled, "ERROR"), nil, true},
		"broken":        {io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, true},
		"late":          {context.DeadlineExceeded, context.DeadlineExceeded, true},
	} {
		got := translate("s1", c.err)
		down, isDown := errors.AsType[*shard.DownError](got)
		if c.is != nil && !errors.Is(got, c.is) || isDown != c.down || isDown && down.Shard != "s1" {
			t.Errorf("%s: got %v", name, got)
		}
		if again := translate("s1", got); again != got {
			t.Errorf("%s: translated again to %v", name, again)
		}
	}
	stale, ok := errors.AsType[*shard.StaleViewError](translate("s1", pgError(codeStaleView, "ERROR")))
	if want := (shard.View{Epoch: 8, Phase: shard.Active, From: 7}); !ok || stale.View != want {
		t.Errorf("stale view: got %+v", stale)
	}
	if translate("s1", nil) != nil {
		t.Error("no error became one")
	}
}

func TestParseView(t *testing.T) {
	for detail, want := range map[string]shard.View{
		"8/2/7": {Epoch: 8, Phase: shard.Active, From: 7}, "0/0/0": {}, "": {}, "8/2": {}, "8/2/x": {}, "8/999/7": {}, "-1/2/7": {}, "1/2/3/4": {},
	} {
		if got := parseView(detail); got != want {
			t.Errorf("%q: got %+v", detail, got)
		}
	}
}

func TestReact(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want reaction
	}{
		"nothing":        {nil, reaction{}},
		"statement":      {pgError("23505", "ERROR"), reaction{}},
		"fence":          {pgError(codeStaleView, "ERROR"), reaction{}},
		"slow statement": {pgError(codeQueryCanceled, "ERROR"), reaction{}},
		"too many":       {pgError(codeTooManyConnections, "FATAL"), reaction{}},
		"standby now":    {pgError(codeReadOnly, "ERROR"), reaction{reset: true, ask: true}},
		"met a standby":  {&shard.DownError{Shard: "s1", Err: errReadOnly}, reaction{reset: true, ask: true}},
		"shutting down":  {pgError("57P01", "FATAL"), reaction{reset: true, ask: true}},
		"crash":          {pgError("57P02", "FATAL"), reaction{reset: true, ask: true}},
		"starting":       {pgError("57P03", "FATAL"), reaction{reset: true, ask: true}},
		"broken":         {io.ErrUnexpectedEOF, reaction{reset: true, ask: true}},
		"late":           {context.DeadlineExceeded, reaction{ask: true}},
		"closed pool":    {puddle.ErrClosedPool, reaction{}},
		"our own words":  {&shard.DownError{Shard: "s1", Err: errNotSetUp}, reaction{}},
		"bad row":        {&shard.BadRowError{Reason: "r"}, reaction{}},
	} {
		if got := react(c.err); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Guards P4: only what certainly was not committed is called so.
func TestCommitError(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		unknown bool
	}{
		"connection lost":        {io.ErrUnexpectedEOF, true},
		"deadline":               {context.DeadlineExceeded, true},
		"server told to stop":    {pgError("57P01", "FATAL"), true}, // it may have committed and waited for a standby
		"server crashed":         {pgError("57P02", "FATAL"), true},
		"deferred constraint":    {pgError("23505", "ERROR"), false},
		"serialization":          {pgError("40001", "ERROR"), false},
		"idled too long":         {pgError(codeIdleInTransaction, "FATAL"), false},
		"rolled back instead":    {pgx.ErrTxCommitRollback, false},
		"transaction had ended":  {pgx.ErrTxClosed, false},
		"never sent (safe)":      {safeError{}, false},
		"wrapped, never sent":    {fmt.Errorf("x: %w", safeError{}), false},
		"answer made no sense":   {errors.New("unexpected message"), true},
		"warning of a dead link": {pgError("08006", "FATAL"), true},
	} {
		if got := errors.Is(commitError("s1", c.err), shard.ErrOutcomeUnknown); got != c.unknown {
			t.Errorf("%s: unknown is %v, want %v", name, got, c.unknown)
		}
	}
}

type safeError struct{}

func (safeError) Error() string     { return "not sent" }
func (safeError) SafeToRetry() bool { return true }

func TestNextQuestion(t *testing.T) {
	const ttl = time.Second
	for _, c := range []struct {
		failures int
		random   float64
		want     time.Duration
	}{{0, 0, 400 * time.Millisecond}, {0, 1, 460 * time.Millisecond}, {1, 1, firstPause}, {2, 1, 2 * firstPause}, {5, 1, 16 * firstPause},
		{6, 1, maxPause}, {1000, 1, maxPause}, {1000, 0, 3 * maxPause / 4}} {
		got := nextQuestion(ttl, c.failures, c.random)
		if diff := got - c.want; diff < -time.Microsecond || diff > time.Microsecond {
			t.Errorf("after %d failures: got %v, want %v", c.failures, got, c.want)
		}
		if c.failures == 0 && got >= ttl/2 {
			t.Errorf("%v is not more often than every half of %v", got, ttl)
		}
	}
}

func TestWasSuspended(t *testing.T) {
	const tolerance = 250 * time.Millisecond
	for _, c := range []struct {
		wall, monotonic time.Duration
		want            bool
	}{
		{250 * time.Millisecond, 250 * time.Millisecond, false},
		{time.Minute, 250 * time.Millisecond, true},             // slept
		{time.Minute, time.Minute, false},                       // this process was slow, the clock was not
		{-time.Hour, 250 * time.Millisecond, false},             // set back
		{490 * time.Millisecond, 250 * time.Millisecond, false}, // slewed
	} {
		if got := wasSuspended(c.wall, c.monotonic, tolerance); got != c.want {
			t.Errorf("wall %v, monotonic %v: got %v", c.wall, c.monotonic, got)
		}
	}
}
