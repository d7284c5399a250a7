package origin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/internal/realpg"
	"ringside/ring"
	"ringside/shard"
)

// Guards P1: the shard places a row where every sidecar does.
func TestVnodeInSQLEqualsGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	random := rand.New(rand.NewPCG(1, 2))
	vectors := []string{"", "4", "42", "hello", "0123456789abcdef", "0123456789abcdefg", "-9223372036854775808",
		"é", "日本語", "naïve café", "😀", "a😀b", strings.Repeat("x", 10_000), strings.Repeat("ü", 3333) + "z"}
	for n := 1; n <= 64; n++ {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(1 + random.IntN(127))
		}
		vectors = append(vectors, string(b), strings.Repeat("\u00ff", n))
	}
	rows, err := f.sql.Query(context.Background(), `select ringside.vnode(v) from unnest($1::text[]) with ordinality as x(v, i) order by i`, vectors)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		if want := ring.Vnode([]byte(v)); got[i] != int32(want) {
			t.Errorf("%q: SQL says %d, Go %d", v, got[i], want)
		}
	}
	if got := f.text(`select ringside.vnode(null)::text`); got != "<null>" {
		t.Errorf("vnode(null) is %s", got)
	}
}

func TestSchemaNamesTheLocksOfTheList(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]int{"LockGlobal": LockGlobal, "LockStripe": LockStripe} {
		if literal := fmt.Sprintf("x'%08x'::int", lock); !strings.Contains(schemaSQL, literal) {
			t.Errorf("schema.sql does not use %s as %s", name, literal)
		}
	}
	if m := regexp.MustCompile(`fence\.vnode % (\d+)`).FindStringSubmatch(schemaSQL); m == nil || m[1] != strconv.Itoa(LockStripes) {
		t.Errorf("schema.sql does not use %d stripes: %v", LockStripes, m)
	}
	if !strings.Contains(schemaSQL, fmt.Sprintf("version %d.", schemaVersion)) {
		t.Errorf("schema.sql does not say that it is version %d", schemaVersion)
	}
}

// Guards P4: the fence lets a writer pass in exactly one case.
func TestFenceRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	fence := func(vnode int, v shard.View) error {
		_, err := f.sql.Exec(context.Background(), `select ringside.fence($1, 'k', $2, $3)`, vnode, int64(v.Epoch), int(v.Phase))
		return err
	}
	const vnode = 4711
	for _, c := range []struct {
		state, code string
	}{{"owned", ""}, {"frozen", codeFrozen}, {"closed", codeClosed}, {"incoming", codeNotOwner}, {"moved", codeNotOwner},
		{"cancelled", codeNotOwner}} {
		f.setOwner(vnode, c.state)
		if err := fence(vnode, at); code(err) != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%s: got %v, want SQLSTATE %q", c.state, err, c.code)
		}
	}
	f.exec(`delete from ringside.owner where vnode = $1`, vnode)
	if err := fence(vnode, at); code(err) != codeNotOwner {
		t.Errorf("no owner row: got %v", err)
	}
	f.setOwner(vnode, "owned")
	for _, v := range []shard.View{{Epoch: 6, Phase: shard.Done}, {Epoch: 8, Phase: shard.Preparing}, {Epoch: 7, Phase: shard.Active}} {
		err := fence(vnode, v)
		stale, ok := errors.AsType[*shard.StaleViewError](translate("s1", err))
		if !ok || stale.View != at {
			t.Errorf("view %s: got %v, want to hear of view %s", v, err, at)
		}
	}
	f.exec(`begin isolation level repeatable read`)
	if err := fence(vnode, at); code(err) != "25001" {
		t.Errorf("repeatable read: got %v", err)
	}
	f.exec(`rollback`)
	f.exec(`delete from ringside.view`)
	if stale, ok := errors.AsType[*shard.StaleViewError](translate("s1", fence(vnode, at))); !ok || stale.View != (shard.View{}) {
		t.Errorf("without a view: got %v", stale)
	}
}

// Guards P4 against the verified hazard: a lock and the read of ownership in one statement would see the owner of before the wait.
func TestAWriterThatWaitedBehindAMoverIsRefusedAfterIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{LockTimeout: 15 * time.Second, LoadTimeout: 15 * time.Second}, usersTable, `insert into users values (1, 'before')`)
	k := key(t, users(t), "user:1")
	for name, lock := range map[string]struct{ class, key int }{
		"global lock": {LockGlobal, 0},
		"stripe lock": {LockStripe, int(k.ShardVnode) % LockStripes},
	} {
		f.setOwner(k.ShardVnode, "owned")
		f.exec(`begin`)
		f.exec(`select pg_advisory_xact_lock($1, $2)`, lock.class, lock.key)
		written := make(chan error, 1)
		go func() {
			_, err := f.Write(context.Background(), "s1", at, upsert(t, k, `{"name":"after"}`), nil)
			written <- err
		}()
		probe := connect(t, f.dsn)
		eventually(t, "the writer waits for the lock", func() bool {
			var waiting bool
			err := probe.QueryRow(context.Background(),
				`select exists (select from pg_locks where locktype = 'advisory' and not granted and database =
				(select oid from pg_database where datname = current_database()))`).Scan(&waiting)
			return err == nil && waiting
		})
		f.setOwner(k.ShardVnode, "moved")
		f.exec(`commit`)
		if err := <-written; !errors.Is(err, shard.ErrNotOwner) {
			t.Errorf("%s: got %v, want %v", name, err, shard.ErrNotOwner)
		}
		if got := f.text(`select name from users where id = 1`); got != "before" {
			t.Errorf("%s: the row is %q", name, got)
		}
	}
}

func TestInstallTwiceAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	dsn := realpg.T(t).Database(t)
	var fleets []*Fleet
	for range 4 {
		fleets = append(fleets, newFleet(t, Config{}, ShardConfig{Name: "s1", DSN: dsn, MaxConnections: 8}))
	}
	var wg sync.WaitGroup
	for i, f := range fleets {
		wg.Go(func() {
			v := shard.View{Epoch: uint64(i + 1), Phase: shard.Done}
			if err := f.Install(context.Background(), "s1", v, fmt.Appendf(nil, "t%d", i+1), allVnodes()[:100*(i+1)]); err != nil {
				t.Errorf("installer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	f := &fixture{Fleet: fleets[0], t: t, dsn: dsn, sql: connect(t, dsn)}
	got := f.text(`select epoch || ' ' || convert_from(topology, 'UTF8') || ' ' || (select count(*) from ringside.owner) from ringside.view`)
	if !regexp.MustCompile(`^(\d) t(\d) (\d)00$`).MatchString(got) || got[0] != got[3] || got[0] != got[5] {
		t.Errorf("the installations were mixed: %s", got)
	}
	if err := f.Install(t.Context(), "s1", shard.View{Epoch: 99, Phase: shard.Done}, nil, allVnodes()); err != nil {
		t.Fatal(err)
	}
	if again := f.text(`select epoch || ' ' || convert_from(topology, 'UTF8') || ' ' || (select count(*) from ringside.owner) from ringside.view`); again != got {
		t.Errorf("a later installation changed %s to %s", got, again)
	}
	if v, topology, err := f.Topology(t.Context(), "s1"); err != nil || v.Epoch == 0 || len(topology) != 2 {
		t.Errorf("Topology: %v %q %v", v, topology, err)
	}
}

func TestInstallRefusesTheDatabaseOfAnotherShard(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	swapped := newFleet(t, Config{}, ShardConfig{Name: "s2", DSN: f.dsn, MaxConnections: 9})
	err := swapped.Install(t.Context(), "s2", at, nil, allVnodes())
	wrong, ok := errors.AsType[*WrongShardError](err)
	if !ok || wrong.Shard != "s2" || wrong.Holds != "s1" {
		t.Fatalf("got %v", err)
	}
	if _, err := swapped.Advance(t.Context(), "s2", shard.View{Epoch: 8, Phase: shard.Done}, nil); err == nil {
		t.Error("Advance went through")
	}
	if _, _, err := swapped.Topology(t.Context(), "s2"); err == nil {
		t.Error("Topology went through")
	}
	// The poller finds it out too, and then nothing is read there.
	runFleet(t, swapped)
	eventually(t, "the shard is down", func() bool { return !swapped.Pools()[0].DownSince.IsZero() })
	if _, when := swapped.Confirmation("s2").View(); !when.IsZero() {
		t.Error("the other shard's view was taken for its own")
	}
}

// The schema's owner need not be a superuser.
func TestInstallAsAnOrdinaryRole(t *testing.T) {
	t.Parallel()
	server := realpg.T(t)
	dsn := server.Database(t)
	super := &fixture{t: t, dsn: dsn, sql: connect(t, dsn)}
	role := fmt.Sprintf("plain_%d", rand.Uint32())
	super.exec(`create role ` + role + ` login`)
	t.Cleanup(func() { super.exec(`drop owned by ` + role + `; drop role ` + role) })
	database := super.text(`select current_database()::text`)
	super.exec(`grant create on database ` + database + ` to ` + role)
	super.exec(usersTable + `; grant all on users to ` + role)
	own := strings.Replace(dsn, "ringside@", role+"@", 1)
	f := newFleet(t, Config{}, ShardConfig{Name: "s1", DSN: own, MaxConnections: 2})
	if err := f.Install(t.Context(), "s1", at, nil, allVnodes()); err != nil {
		t.Fatal(err)
	}
	super.exec(`revoke create on database ` + database + ` from ` + role)
	if err := f.Install(t.Context(), "s1", at, nil, allVnodes()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(t.Context(), "s1", at, upsert(t, key(t, users(t), "user:1"), `{"name":"a"}`), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Advance(t.Context(), "s1", shard.View{Epoch: 8, Phase: shard.Done}, nil); err != nil {
		t.Fatal(err)
	}
	f.Close() // before its role is dropped
}

// Guards P4: a view only rises, and no writer that acted by the former one ends after Advance has returned.
func TestAdvanceUnderWriters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	ks := users(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var writers sync.WaitGroup
	var committed [16]struct {
		sync.Mutex
		view shard.View
		at   time.Time
	}
	for i := range committed {
		op := upsert(t, key(t, ks, fmt.Sprintf("user:%d", i)), `{"name":"x"}`)
		writers.Go(func() {
			v := at
			for ctx.Err() == nil {
				_, err := f.Write(ctx, "s1", v, op, func() (bool, error) { time.Sleep(3 * time.Millisecond); return false, nil })
				if stale, ok := errors.AsType[*shard.StaleViewError](err); ok {
					v = stale.View
				} else if err != nil && ctx.Err() == nil {
					t.Errorf("writer %d: %v", i, err)
				} else if err == nil {
					c := &committed[i]
					c.Lock()
					if v.Less(c.view) {
						t.Errorf("writer %d went back from view %s to %s", i, c.view, v)
					}
					c.view = v
					c.Unlock()
				}
			}
		})
	}
	last := at
	for step := range 6 {
		want := shard.View{Epoch: 8 + uint64(step)/3, Phase: shard.Phase(1 + step%3)}
		got, err := f.Advance(t.Context(), "s1", want, fmt.Appendf(nil, "t%d", step))
		if err != nil {
			t.Fatalf("to %s: %v", want, err)
		}
		if !got.Same(want) {
			t.Errorf("asked for %s, got %s", want, got)
		}
		// From here on nobody commits by an older view.
		_, err = f.Write(t.Context(), "s1", last, upsert(t, key(t, ks, "user:1"), `{"name":"late"}`), nil)
		if stale, ok := errors.AsType[*shard.StaleViewError](err); !ok || !stale.View.Same(want) {
			t.Errorf("a writer by view %s: %v", last, err)
		}
		last = want
	}
	cancel()
	writers.Wait()

	// Lower and equal views change nothing, and are no error.
	for _, v := range []shard.View{at, last} {
		if got, err := f.Advance(t.Context(), "s1", v, []byte("old")); err != nil || !got.Same(last) {
			t.Errorf("Advance to %s: %v, %v", v, got, err)
		}
	}
	if v, topology, err := f.Topology(t.Context(), "s1"); err != nil || !v.Same(last) || string(topology) != "t5" {
		t.Errorf("%v %q %v", v, topology, err)
	}
}

func TestAdvanceRemembersTheLastFinishedEpoch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	for _, step := range []struct{ to, want shard.View }{
		{shard.View{Epoch: 8, Phase: shard.Preparing}, shard.View{Epoch: 8, Phase: shard.Preparing, From: 7}},
		{shard.View{Epoch: 8, Phase: shard.Active}, shard.View{Epoch: 8, Phase: shard.Active, From: 7}},
		{shard.View{Epoch: 10, Phase: shard.Preparing}, shard.View{Epoch: 10, Phase: shard.Preparing, From: 7}}, // 8 never was done here
		{shard.View{Epoch: 10, Phase: shard.Done}, shard.View{Epoch: 10, Phase: shard.Done, From: 7}},
		{shard.View{Epoch: 11, Phase: shard.Active}, shard.View{Epoch: 11, Phase: shard.Active, From: 10}},
	} {
		got, err := f.Advance(t.Context(), "s1", step.to, nil)
		if err != nil || got != step.want {
			t.Errorf("to %s: got %+v, %v, want %+v", step.to, got, err, step.want)
		}
		if known, _ := f.Confirmation("s1").View(); known != step.want {
			t.Errorf("confirmed %+v, want %+v", known, step.want)
		}
	}
	// A copy of the topology that is not given is kept.
	if _, topology, _ := f.Topology(t.Context(), "s1"); string(topology) != "topology 7" {
		t.Errorf("topology is %q", topology)
	}
}

func TestAdvanceIsBoundedAndStopsWithItsCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	brief := newFleet(t, Config{AdminTimeout: time.Second}, ShardConfig{"s1", f.dsn, 9})
	next := shard.View{Epoch: 8, Phase: shard.Preparing}
	// While a cut-over holds the view no writer is held up for nothing.
	f.exec(`update ringside.view set cutover = 5`)
	f.exec(`begin`)
	f.exec(`select pg_advisory_xact_lock_shared($1, 0)`, LockGlobal)
	if got, err := f.Advance(t.Context(), "s1", next, nil); err != nil || got.Epoch != 7 {
		t.Errorf("while a cut-over holds the view: %v, %v", got, err)
	}
	f.exec(`rollback`)
	f.exec(`update ringside.view set cutover = null`)
	f.exec(`begin`)
	f.exec(`select pg_advisory_xact_lock_shared($1, 0)`, LockGlobal)
	start := time.Now()
	if _, err := brief.Advance(t.Context(), "s1", next, nil); err == nil || time.Since(start) > plenty/2 {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Advance(ctx, "s1", next, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	f.exec(`rollback`)
	if got, err := f.Advance(t.Context(), "s1", next, nil); err != nil || !got.Same(next) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{},
		`create table orders (tenant text, id int, item text, primary key (tenant, id))`,
		`insert into orders select 't' || n % 7, n, 'x' from generate_series(1, 100) n`,
		`create table nokey (a int)`)
	for range 2 { // may be repeated
		f.exec(`select ringside.attach('orders', 'tenant')`)
	}
	if got := f.text(`select count(*)::text from orders where ringside_vnode = ringside.vnode(tenant)`); got != "100" {
		t.Errorf("%s rows carry their vnode", got)
	}
	if got := f.text(`select string_agg(pg_get_indexdef(indexrelid), ';') from pg_index where indrelid = 'orders'::regclass and not indisprimary`); !strings.HasSuffix(got, "(ringside_vnode, tenant, id)") || strings.Contains(got, ";") {
		t.Errorf("index: %s", got)
	}
	for statement, want := range map[string]string{
		`select ringside.attach('orders', 'id')`:   "42P16",
		`select ringside.attach('orders', 'nope')`: "42703",
		`select ringside.attach('nokey', 'a')`:     "42704",
	} {
		_, err := f.sql.Exec(context.Background(), statement)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != want {
			t.Errorf("%s: got %v, want SQLSTATE %s", statement, err, want)
		}
	}
}
