package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// crashing is a shard on a server of its own.
func crashing(t *testing.T, cfg Config, tables ...string) (*realpg.Server, *fixture) {
	t.Helper()
	server := realpg.Alone(t, nil)
	return server, fixtureAt(t, server.DSN(), cfg, tables...)
}

func isDown(err error) bool {
	_, ok := errors.AsType[*shard.DownError](err)
	return ok
}

// Guards P7: down is an error that comes at once, others go on, and the shard is back without a restart of ours.
func TestAShardGoesDownAndComesBack(t *testing.T) {
	t.Parallel()
	server, f := crashing(t, Config{}, usersTable, `insert into users values (1, 'a')`)
	f.run()
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1")}
	load := func() error {
		_, _, err := f.Load(t.Context(), "s1", ks, keys)
		return err
	}
	if err := load(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard is known to be down", func() bool { return !f.Pools()[0].DownSince.IsZero() })
	for range 100 {
		start := time.Now()
		if err := load(); !isDown(err) || errors.Is(err, shard.ErrOutcomeUnknown) || time.Since(start) > plenty/4 {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		_, err := f.Write(t.Context(), "s1", at, upsert(t, keys[0], `{}`), nil)
		if !isDown(err) || errors.Is(err, shard.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	}
	eventually(t, "the view expires", func() bool {
		v, standing := f.Confirmation("s1").Trust(time.Now(), time.Second, 0)
		return v.Epoch == at.Epoch && standing == shard.Expired
	})
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard is back", func() bool { return load() == nil })
	if _, err := f.Write(t.Context(), "s1", at, upsert(t, keys[0], `{"name":"b"}`), nil); err != nil {
		t.Error(err)
	}
	if s := f.Pools()[0]; !s.DownSince.IsZero() || s.LastError != "" || s.InUse != 0 {
		t.Errorf("%+v", s)
	}
}

// A restart that nobody noticed costs a caller nothing.
func TestCallsSurviveConnectionsThatDiedInThePool(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable, `insert into users values (1, 'a')`)
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1")}
	die := func() {
		f.exec(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'ringside' and datname = current_database()`)
	}
	called := 0
	write := func(before func() error) error {
		op := keyspace.Op{Kind: keyspace.Increment, Key: keys[0], Column: "visits", Delta: 1}
		_, err := f.Write(t.Context(), "s1", at, op, func() (bool, error) { called++; return false, before() })
		return err
	}
	for i := range 5 {
		if _, _, err := f.Load(t.Context(), "s1", ks, keys); err != nil {
			t.Fatal(err)
		}
		die()
		if _, _, err := f.Load(t.Context(), "s1", ks, keys); err != nil {
			t.Errorf("after its session was ended: %v", err)
		}
		die()
		if err := write(func() error { return nil }); err != nil || called != i+1 {
			t.Errorf("a write after its session was ended: %v, beforeCommit called %d times", err, called)
		}
	}
	// Guards P4: once its statement was carried out, a write is never made again.
	called = 0
	carriedOut := func() bool {
		return f.text(`select count(*)::text from pg_stat_activity where application_name = 'ringside' and datname = current_database() and state = 'idle in transaction'`) == "1"
	}
	if err := write(func() error { eventually(t, "the statement is carried out", carriedOut); die(); return nil }); !isDown(err) || called != 1 {
		t.Errorf("its session ended before COMMIT: %v, beforeCommit called %d times", err, called)
	}
	f.exec(`create sequence once`)
	f.exec(`create function once() returns trigger language plpgsql as $$ begin if nextval('once') = 1 then raise 'no' using errcode = '0A000'; end if; return null; end $$`)
	f.exec(`create constraint trigger once after update on users deferrable initially deferred for each row execute function once()`)
	if err := write(func() error { return nil }); err == nil || called != 2 {
		t.Errorf("refused by COMMIT: %v, beforeCommit called %d times", err, called)
	}
	if got := f.text(`select visits::text from users`); got != "5" {
		t.Errorf("%s writes were made", got)
	}
}

// A server that hangs is found out, and costs its callers no more than their time limit.
func TestAShardThatHangs(t *testing.T) {
	t.Parallel()
	server, f := crashing(t, Config{LoadTimeout: 2 * time.Second, ConnectTimeout: 2 * time.Second},
		usersTable, `insert into users values (1, 'a')`)
	f.run()
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1")}
	eventually(t, "the shard is heard", func() bool { _, _, err := f.Load(t.Context(), "s1", ks, keys); return err == nil })
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, _, err := f.Load(t.Context(), "s1", ks, keys); !isDown(err) || time.Since(start) > plenty/4 {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	eventually(t, "the shard is known to be down", func() bool { return !f.Pools()[0].DownSince.IsZero() })
	start = time.Now()
	if _, _, err := f.Load(t.Context(), "s1", ks, keys); !isDown(err) || time.Since(start) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard is back", func() bool { _, _, err := f.Load(t.Context(), "s1", ks, keys); return err == nil })
}

// Guards P4: when the server dies during COMMIT nobody is told that the write failed, and every write that was acknowledged is there.
func TestCrashDuringWrites(t *testing.T) {
	t.Parallel()
	server, f := crashing(t, Config{}, usersTable)
	ks := users(t)
	var mu sync.Mutex
	outcomes := map[int]error{}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 7 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := w*1_000_000 + i
				_, err := f.Write(context.Background(), "s1", at, upsert(t, key(t, ks, fmt.Sprintf("user:%d", id)), `{"name":"x"}`), nil)
				mu.Lock()
				outcomes[id] = err
				mu.Unlock()
				if err != nil && !isDown(err) {
					t.Errorf("write %d: %v", id, err)
				}
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	close(stop)
	wg.Wait()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.sql = connect(t, server.DSN())
	var ok, lost, failed, unknown int
	for id, err := range outcomes {
		there := f.text(`select 'yes' from users where id = $1`, id) == "yes"
		switch {
		case err == nil && there:
			ok++
		case err == nil:
			lost++
		case errors.Is(err, shard.ErrOutcomeUnknown):
			unknown++
		case there:
			failed++
		}
	}
	if ok == 0 || lost > 0 || failed > 0 {
		t.Errorf("%d acknowledged and there, %d acknowledged and lost, %d said to have failed but there, %d unknown", ok, lost, failed, unknown)
	}
}

// Guards P4 with a link that loses the answers to a write, or is cut when the server has committed: the client cannot know. That it commits at all shows that COMMIT is
// sent without waiting for the answers to what comes before it.
func TestOutcomeIsUnknownWhenTheLinkBreaksAtCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	link := newLink(t, realpg.T(t).Port())
	dsn := replacePort(t, f.dsn, link.port)
	over := newFleet(t, Config{WriteTimeout: 3 * time.Second}, ShardConfig{"s1", dsn, 9})
	k := key(t, users(t), "user:1")
	for name, cut := range map[string]bool{"cut": true, "silent": false} {
		f.exec(`delete from users`)
		written := func() bool { return f.text(`select name from users where id = 1`) == "x" }
		var ended sync.WaitGroup
		_, err := over.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), func() (bool, error) {
			link.dropAnswers()
			if cut {
				ended.Go(func() {
					eventually(t, "the write is there", written)
					link.sever()
				})
			}
			return false, nil
		})
		ended.Wait()
		if !isDown(err) || !errors.Is(err, shard.ErrOutcomeUnknown) {
			t.Errorf("%s: got %v", name, err)
		}
		eventually(t, "the write is there", written)
		link.restore()
		eventually(t, "writes pass again", func() bool {
			_, err := over.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"y"}`), nil)
			return err == nil
		})
	}
	// Cut before COMMIT is sent, the outcome is known: nothing was written.
	f.exec(`delete from users`)
	_, err := over.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), func() (bool, error) {
		f.exec(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'ringside' and datname = current_database()`)
		return false, errors.New("gone")
	})
	if err == nil || f.text(`select count(*)::text from users`) != "0" {
		t.Errorf("got %v", err)
	}
}

// Guards P3: a sidecar that is stopped between the statement and its COMMIT cannot commit after the poison has expired.
func TestAPausedWriterCannotCommitLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{WriteTimeout: time.Second}, usersTable)
	k := key(t, users(t), "user:1")
	_, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), func() (bool, error) { time.Sleep(1500 * time.Millisecond); return false, nil })
	if !isDown(err) || errors.Is(err, shard.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	if got := f.text(`select count(*)::text from users`); got != "0" {
		t.Errorf("%s rows", got)
	}
	eventually(t, "the next write passes", func() bool {
		_, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), nil)
		return err == nil
	})
}

// A slow statement ends by the server's own limit, and the connection lives.
func TestASlowStatementKeepsItsConnection(t *testing.T) {
	t.Parallel()
	// Long enough for the tables to be attached within it on a busy machine.
	f := newFixture(t, Config{LoadTimeout: 700 * time.Millisecond, WriteTimeout: 700 * time.Millisecond}, usersTable, `insert into users values (1, 'a')`)
	ks := users(t)
	k := key(t, ks, "user:1")
	// A machine that is too busy for the server to answer within Grace is given another chance.
	for chance := 1; ; chance++ {
		f.exec(`begin`)
		f.exec(`lock table users in access exclusive mode`)
		for range 2 {
			if _, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{k}); !isDown(err) {
				t.Errorf("load: %v", err)
			}
			if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{}`), nil); !isDown(err) || errors.Is(err, shard.ErrOutcomeUnknown) {
				t.Errorf("write: %v", err)
			}
		}
		f.exec(`rollback`)
		if s := f.Pools()[0]; s.Idle == 1 && s.InUse == 0 && s.DownSince.IsZero() && s.Locked == 0 {
			break
		} else if chance == 8 {
			t.Fatalf("%+v", s)
		}
	}

	// A wait for a lock has a limit of its own, which says what it was.
	brief := newFleet(t, Config{LockTimeout: 50 * time.Millisecond}, ShardConfig{"s1", f.dsn, 9})
	f.exec(`begin`)
	f.exec(`select from users where id = 1 for update`)
	if _, err := brief.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"b"}`), nil); !errors.Is(err, shard.ErrLocked) {
		t.Errorf("the row is locked: %v", err)
	}
	if rows, _, err := brief.Load(t.Context(), "s1", ks, []keyspace.Key{k}); err != nil || !rows[0].Found {
		t.Errorf("a locked row can be read: %+v, %v", rows, err)
	}
	f.exec(`lock table users in access exclusive mode`)
	f.exec(`select pg_advisory_xact_lock($1, 0)`, int32(LockSchema))
	if _, _, err := brief.Load(t.Context(), "s1", ks, []keyspace.Key{k}); !errors.Is(err, shard.ErrLocked) {
		t.Errorf("the table is locked: %v", err)
	}
	if s := brief.Pools()[0]; s.Idle != 1 || s.InUse != 0 || s.Locked != 2 {
		t.Errorf("%+v", s)
	}
	// It is for requests only.
	installed := make(chan error, 1)
	go func() { installed <- brief.Install(context.Background(), "s1", at, nil, nil) }()
	eventually(t, "the installation waits", func() bool {
		return f.text(`select count(*)::text from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and clock_timestamp() > query_start + interval '200 ms'`) == "1"
	})
	f.exec(`rollback`)
	if err := <-installed; err != nil {
		t.Errorf("installing: %v", err)
	}
}

func TestAStandbyOrReadOnlyShardIsDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	f.run()
	k := key(t, users(t), "user:1")
	write := func() error {
		_, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), nil)
		return err
	}
	eventually(t, "a write passes", func() bool { return write() == nil })
	database := f.text(`select current_database()::text`)
	f.exec(`alter database ` + database + ` set default_transaction_read_only = on`)
	f.exec(`select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'ringside' and datname = current_database()`)
	eventually(t, "the shard is down", func() bool { return !f.Pools()[0].DownSince.IsZero() })
	if err := write(); !isDown(err) {
		t.Errorf("got %v", err)
	}
	f.exec(`set default_transaction_read_only = off`)
	f.exec(`alter database ` + database + ` reset default_transaction_read_only`)
	eventually(t, "a write passes again", func() bool { return write() == nil })
}

func TestViewsAreHeardAndAnnounced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	watch := func(ttl time.Duration) (watcher *Fleet, expect func(shard.View), heard chan shard.View) {
		watcher, heard = New(patient(Config{ViewTTL: ttl}), nil, nil), make(chan shard.View, 10)
		t.Cleanup(watcher.Close)
		watcher.OnView(func(name string, v shard.View) { heard <- v })
		if err := watcher.Apply([]ShardConfig{{"s1", f.dsn, 9}}); err != nil {
			t.Fatal(err)
		}
		runFleet(t, watcher)
		return watcher, func(want shard.View) {
			t.Helper()
			select {
			case got := <-heard:
				if got != want {
					t.Errorf("heard %+v, want %+v", got, want)
				}
			case <-time.After(plenty):
				t.Fatalf("did not hear of %s within %v", want, plenty)
			}
		}, heard
	}
	asking, hears, heard := watch(time.Second)
	told, isTold, _ := watch(10 * time.Minute) // it would ask by itself much too late
	hears(at)
	isTold(at)
	for phase := shard.Preparing; phase <= shard.Done; phase++ {
		next := shard.View{Epoch: 8, Phase: phase, From: 7}
		if _, err := f.Advance(t.Context(), "s1", next, nil); err != nil {
			t.Fatal(err)
		}
		hears(next)
		told.Poke("s1")
		isTold(next)
	}
	select {
	case v := <-heard:
		t.Errorf("%s was announced twice", v)
	case <-time.After(time.Second):
	}
	eventually(t, "the view counts", func() bool {
		v, standing := asking.Confirmation("s1").Trust(time.Now(), time.Second, 0)
		return v.Epoch == 8 && standing == shard.Current
	})
}

func TestNothingPassesAfterClose(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	k := key(t, users(t), "user:1")
	if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), nil); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, _, err := f.Load(t.Context(), "s1", users(t), []keyspace.Key{k}); !errors.Is(err, errShutDown) {
		t.Errorf("got %v", err)
	}
	if err := f.Apply(nil); !errors.Is(err, errShutDown) {
		t.Errorf("got %v", err)
	}
	eventually(t, "no session is left", func() bool { return f.sessions() == 0 })
	f.Close() // twice is once
}

// link forwards connections to a server, and can stop forwarding its answers.
type link struct {
	port  int
	mu    sync.Mutex
	mode  string // "", "drop": swallow answers
	conns []net.Conn
}

func newLink(t *testing.T, to int) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{port: listener.Addr().(*net.TCPAddr).Port}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(to))
			if err != nil {
				client.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, client, server)
			l.mu.Unlock()
			wg.Go(func() { l.pipe(server, client, false) })
			wg.Go(func() { l.pipe(client, server, true) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.sever()
		wg.Wait()
	})
	return l
}

func (l *link) pipe(to, from net.Conn, answers bool) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		mode := l.mode
		l.mu.Unlock()
		if answers && mode == "drop" {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) set(mode string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = mode
}

func (l *link) dropAnswers() { l.set("drop") }
func (l *link) restore()     { l.set("") }

// sever closes what is connected now.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

func replacePort(t *testing.T, dsn string, port int) string {
	t.Helper()
	conf, err := (ShardConfig{Name: "x", DSN: dsn, MaxConnections: 1}).parse()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", conf.ConnConfig.User, port, conf.ConnConfig.Database)
}
