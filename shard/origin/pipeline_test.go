package origin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringside/internal/realpg"
	"ringside/shard"
)

// A session keeps a bounded number of statements prepared, however many sets of columns are written, and those that it has are those it says it has.
func TestPreparedStatementsAreBounded(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), realpg.T(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for n := range 2*mostPrepared + 10 {
		sd, err := prepare(t.Context(), conn, fmt.Sprintf("select %d", n))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := prepare(t.Context(), conn, fmt.Sprintf("select %d", n)); again != sd || err != nil {
			t.Fatalf("statement %d is prepared twice: %v", n, err)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "select count(*) from pg_prepared_statements where statement ~ '^select [0-9]+$'").Scan(&n); err != nil || n != 10 {
		t.Errorf("%d statements are prepared, %v; want the 10 since there were too many", n, err)
	}
}

// COMMIT is on its way before anybody knows how what comes before it went. Wherever a transaction fails nothing is written, the error is the one of what failed, and the
// session goes on.
func TestACommitBehindAFailureWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable,
		`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no %', new.name using errcode = '23514', column = 'name'; end $$`,
		`create constraint trigger late after insert or update on users deferrable initially deferred for each row when (new.name = 'late') execute function refuse()`,
		`create trigger now before insert or update on users for each row when (new.name = 'now') execute function refuse()`)
	k := key(t, users(t), "user:1")
	stale := shard.View{Epoch: at.Epoch - 1, Phase: shard.Done}
	for _, test := range []struct {
		view  shard.View
		value string
		want  error
	}{
		{stale, "x", &shard.StaleViewError{Shard: "s1", View: at}},
		{at, "now", &shard.BadRowError{Column: "name", Reason: "no now"}},
		{at, "late", &shard.BadRowError{Column: "name", Reason: "no late"}},
	} {
		_, err := f.Write(t.Context(), "s1", test.view, upsert(t, k, `{"name":"`+test.value+`"}`), func() (bool, error) { return false, nil })
		if err == nil || err.Error() != test.want.Error() || errors.Is(err, shard.ErrOutcomeUnknown) {
			t.Errorf("%s: got %v, want %v", test.value, err, test.want)
		}
		if got := f.text(`select count(*)::text from users`); got != "0" {
			t.Errorf("%s: %s rows", test.value, got)
		}
	}
	if out, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), nil); err != nil || !out.Inserted {
		t.Errorf("the next write: %+v %v", out, err)
	}
	if got := f.text(`select count(*)::text from pg_stat_activity where application_name = 'ringside' and datname = current_database()`); got != "1" {
		t.Errorf("%s sessions", got)
	}
}
