package realpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"ringside/internal/childproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Main(m)) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func text(t *testing.T, c *pgx.Conn, query string) (value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.QueryRow(ctx, query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func execute(t *testing.T, c *pgx.Conn, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestTheSharedServerIsAsPromised(t *testing.T) {
	s := T(t)
	if again := T(t); again != s {
		t.Fatal("two shared servers")
	}
	c := connect(t, s.DSN())
	for query, want := range map[string]string{
		"SELECT current_user":       "ringside",
		"SELECT current_database()": "app",
		"SHOW wal_level":            "logical",
		"SHOW max_connections":      "200",
		"SHOW listen_addresses":     "127.0.0.1",
		"SHOW server_encoding":      "UTF8",
		"SELECT rolsuper::text FROM pg_roles WHERE rolname = 'ringside'": "true",
	} {
		if got := text(t, c, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := text(t, connect(t, s.AdminDSN()), "SELECT current_user || '/' || current_database()"); got != "postgres/postgres" {
		t.Errorf("the admin is %s", got)
	}
}

// Guards R4.
func TestDatabasesAreApartAndDropped(t *testing.T) {
	s := T(t)
	var name string
	t.Run("one test", func(t *testing.T) {
		one, two := connect(t, s.Database(t)), connect(t, s.Database(t))
		name = text(t, one, "SELECT current_database()")
		execute(t, one, "CREATE TABLE a (id int)")
		execute(t, two, "CREATE TABLE a (id int)")
		execute(t, one, "SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
	})
	admin := connect(t, s.AdminDSN())
	if left := text(t, admin, "SELECT count(*)::text FROM pg_database WHERE datname = '"+name+"'"); left != "0" {
		t.Error("the database is still there")
	}
	if left := text(t, admin, "SELECT count(*)::text FROM pg_replication_slots"); left != "0" {
		t.Error("its replication slot is still there")
	}
}

func TestKillKeepsWhatWasCommittedAndRestartRecovers(t *testing.T) {
	s := Alone(t, nil)
	c := connect(t, s.DSN())
	execute(t, c, "CREATE TABLE a (id int)")
	execute(t, c, "INSERT INTO a SELECT generate_series(1, 1000)")
	dsn, pid := s.DSN(), s.PID()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := c.Ping(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("a session outlived the crash: %v", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.DSN() != dsn || s.PID() == pid {
		t.Fatalf("%s pid %d, before %s pid %d", s.DSN(), s.PID(), dsn, pid)
	}
	if got := text(t, connect(t, s.DSN()), "SELECT count(*)::text FROM a"); got != "1000" {
		t.Fatalf("%s rows of 1000", got)
	}
	if err := s.Restart(t.Context()); err != nil { // of a running server
		t.Fatal(err)
	}
	if got := text(t, connect(t, s.DSN()), "SELECT count(*)::text FROM a"); got != "1000" {
		t.Fatalf("%s rows of 1000", got)
	}
}

// TestCommandStartsTheServerAgain: with a slot that no server without our settings would accept.
func TestCommandStartsTheServerAgain(t *testing.T) {
	s := Alone(t, map[string]string{"cluster_name": "it's"})
	c := connect(t, s.DSN())
	execute(t, c, "SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	proc, err := childproc.Start(childproc.Options{Path: "/bin/sh", Args: []string{"-c", s.Command()}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := proc.KillTree(); err != nil {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(askEvery) {
		probe, err := pgx.Connect(t.Context(), s.DSN())
		if err == nil {
			_ = probe.Close(t.Context())
			break
		}
		if !proc.Running() || time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, proc.Output())
		}
	}
	if got := text(t, connect(t, s.DSN()), "SELECT current_setting('cluster_name') || ' ' || slot_name FROM pg_replication_slots"); got != "it's kept" {
		t.Error(got)
	}
}

func TestPauseHoldsOpenSessionsAndResumeAnswers(t *testing.T) {
	s := Alone(t, nil)
	c := connect(t, s.DSN())
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		answer <- c.Ping(ctx)
	}()
	select {
	case err := <-answer:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(); err != nil { // and Stop ends a paused one
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= stopGrace {
		t.Errorf("a paused server did not hear the request to end: %v", took)
	}
}

// Guards R1 and R2.
func TestAKeptDirectoryIsUsedAgain(t *testing.T) {
	dir := filepath.Join(openFolder(t), "deep", "s1")
	start := func() *Server {
		s, err := Start(t.Context(), Options{Dir: dir, Settings: testSettings(nil)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop() })
		return s
	}
	first := start()
	execute(t, connect(t, first.DSN()), "CREATE TABLE kept (id int)")
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "postmaster.pid") {
		t.Fatalf("two servers on one directory: %v", err)
	}
	if _, err := Start(t.Context(), Options{Port: first.Port(), Settings: testSettings(nil)}); err == nil {
		t.Fatal("two servers on one port")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start()
	if got := text(t, connect(t, second.DSN()), "SELECT 'kept'::regclass::text"); got != "kept" {
		t.Fatal(got)
	}
	if _, err := os.Stat(dir + ".initdb"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of initdb is left: %v", err)
	}
}

func TestADirectoryWithOtherThingsIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Fatal(err)
	}
}

func TestStopRemovesTemporaryDataAndRestartSaysSo(t *testing.T) {
	s := Alone(t, nil)
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.root); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s: %v", s.root, err)
	}
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Fatalf("got %v", err)
	}
}

func TestABadSettingIsNamed(t *testing.T) {
	_, err := Start(t.Context(), Options{Settings: map[string]string{"fsync": "off", "wal_level": "sideways"}})
	if err == nil || !strings.Contains(err.Error(), "sideways") {
		t.Fatalf("got %v", err)
	}
}

func TestReadyReadsPostmasterPid(t *testing.T) {
	file := "42\n/data\n1700000000\n5432\n\n127.0.0.1\n  12 34\nready   \n"
	for name, c := range map[string]struct {
		file string
		want bool
	}{
		"ready":        {file, true},
		"starting":     {strings.Replace(file, "ready   ", "starting", 1), false},
		"a stranger":   {strings.Replace(file, "42", "43", 1), false},
		"half written": {file[:20], false},
		"empty":        {"", false},
	} {
		if got := ready(c.file, 42); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestVersionOfADirectory(t *testing.T) {
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/15/bin":             15,
		"/opt/homebrew/opt/postgresql@17/bin":    17,
		"/usr/pgsql-9/bin":                       9,
		"/usr/local/bin":                         0,
		"/usr/lib/postgresql/99999999999999/bin": 99999999999999,
	} {
		if got := version(dir); got != want {
			t.Errorf("%s: %d, want %d", dir, got, want)
		}
	}
}

// TestServersOfOneTemplate guards R2: what several make at the same time is each one's own, and complete.
func TestServersOfOneTemplate(t *testing.T) {
	t.Setenv(TemplatesVar, openFolder(t))
	var servers [2]*Server
	var errs [2]error
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() { servers[i], errs[i] = Start(t.Context(), Options{Settings: testSettings(nil)}) })
	}
	group.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(func() { _ = s.Stop() })
		execute(t, connect(t, s.DSN()), "CREATE TABLE mine (id int)")
	}
	if names, err := os.ReadDir(os.Getenv(TemplatesVar)); err != nil || len(names) != 1 || names[0].Name() != "data" {
		t.Errorf("%v, %v", names, err)
	}
}
