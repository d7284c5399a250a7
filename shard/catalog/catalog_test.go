package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"ringside/internal/realpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(realpg.Main(m)) }

func open(t testing.TB, dsn string) *Catalog {
	t.Helper()
	c, err := Open(t.Context(), dsn, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func rec(epoch uint64, digest string) Record {
	return Record{Epoch: epoch, Digest: digest, Body: []byte("topology " + digest)}
}

func (r Record) equal(o Record) bool {
	return r.Epoch == o.Epoch && r.Digest == o.Digest && bytes.Equal(r.Body, o.Body)
}

func load(t testing.TB, c *Catalog) Record {
	t.Helper()
	r, found, err := c.Load(t.Context())
	if err != nil || !found {
		t.Fatalf("Load: found %v, %v", found, err)
	}
	return r
}

func sql(t testing.TB, dsn string, statements ...string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var last string
	for _, s := range statements {
		var v *string
		err := conn.QueryRow(t.Context(), s).Scan(&v)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatalf("%s: %v", s, err)
		}
		if v != nil {
			last = *v
		}
	}
	return last
}

func TestLife(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	c := open(t, dsn)
	if r, found, err := c.Load(t.Context()); found || err != nil {
		t.Fatalf("of an empty catalog: %+v, %v, %v", r, found, err)
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(2, "b")); !errors.Is(err, ErrConflict) {
		t.Fatalf("changing an empty catalog: %v", err)
	}
	if r, created, err := c.Create(t.Context(), rec(1, "a")); err != nil || !created || !r.equal(rec(1, "a")) {
		t.Fatalf("Create: %+v, %v, %v", r, created, err)
	}
	if r, created, err := c.Create(t.Context(), rec(1, "other")); err != nil || created || !r.equal(rec(1, "a")) {
		t.Fatalf("a second Create: %+v, %v, %v", r, created, err)
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(2, "b")); err != nil {
		t.Fatal(err)
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(2, "late")); !errors.Is(err, ErrConflict) {
		t.Fatalf("from an old epoch: %v", err)
	}
	// Another sidecar, and a big topology.
	other := open(t, dsn)
	big := rec(3, "c")
	big.Body = bytes.Repeat([]byte{0, 1, 255}, 200_000)
	if err := other.CompareAndSwap(t.Context(), 2, big); err != nil {
		t.Fatal(err)
	}
	if r := load(t, c); !r.equal(big) {
		t.Fatalf("loaded epoch %d, %d bytes", r.Epoch, len(r.Body))
	}
	if at := sql(t, dsn, `select (now() - changed_at < interval '1 minute')::text from ringside.catalog`); at != "true" {
		t.Error("changed_at was not set")
	}
	c.Close()
	c.Close()
	if _, _, err := c.Load(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestBadRecordsAreRefused(t *testing.T) {
	c := open(t, realpg.T(t).Database(t))
	for want, r := range map[string]Record{
		"epoch 0":     {Digest: "d", Body: []byte("b")},
		"epoch 9223":  {Epoch: math.MaxInt64 + 1, Digest: "d", Body: []byte("b")},
		"no digest":   {Epoch: 1, Body: []byte("b")},
		"no topology": {Epoch: 1, Digest: "d"},
	} {
		if _, _, err := c.Create(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Create, %s: %v", want, err)
		}
		if err := c.CompareAndSwap(t.Context(), r.Epoch-1, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CompareAndSwap, %s: %v", want, err)
		}
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(3, "d")); err == nil || !strings.Contains(err.Error(), "does not follow") {
		t.Errorf("skipping an epoch: %v", err)
	}
}

// P1: of all who open and create at once exactly one succeeds, and all go on with that one's.
func TestCreateAtOnce(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	const n = 20
	var wg sync.WaitGroup
	got, created := make([]Record, n), make([]bool, n)
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			c, err := Open(t.Context(), dsn, nil)
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			defer c.Close()
			if got[i], created[i], err = c.Create(t.Context(), rec(1, fmt.Sprint(i))); err != nil {
				t.Errorf("Create: %v", err)
			}
		})
	}
	close(begin)
	wg.Wait()
	winners := 0
	for i := range n {
		if created[i] {
			winners++
			if !got[i].equal(rec(1, fmt.Sprint(i))) {
				t.Errorf("the winner got %+v", got[i])
			}
		}
		if !got[i].equal(got[0]) {
			t.Errorf("%d has %q, %d has %q", i, got[i].Digest, 0, got[0].Digest)
		}
	}
	if winners != 1 {
		t.Errorf("%d created it", winners)
	}
	if r := load(t, open(t, dsn)); !r.equal(got[0]) {
		t.Errorf("stored is %q", r.Digest)
	}
}

// Of all who change one epoch exactly one succeeds; no change is lost or made twice.
func TestChangeAtOnce(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	first := open(t, dsn)
	if _, _, err := first.Create(t.Context(), Record{Epoch: 1, Digest: "-", Body: []byte(".")}); err != nil {
		t.Fatal(err)
	}
	const writers, changes = 10, 5
	var wg sync.WaitGroup
	for i := range writers {
		c := open(t, dsn)
		wg.Go(func() {
			for n := 0; n < changes; {
				r, _, err := c.Load(t.Context())
				if err != nil {
					t.Errorf("Load: %v", err)
					return
				}
				next := Record{Epoch: r.Epoch + 1, Digest: fmt.Sprintf("%d/%d", i, n), Body: fmt.Appendf(r.Body, " %d/%d", i, n)}
				switch err := c.CompareAndSwap(t.Context(), r.Epoch, next); {
				case err == nil:
					n++
				case !errors.Is(err, ErrConflict):
					t.Errorf("CompareAndSwap: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	r := load(t, first)
	if r.Epoch != 1+writers*changes {
		t.Errorf("epoch %d after %d changes", r.Epoch, writers*changes)
	}
	for i := range writers {
		for n := range changes {
			if strings.Count(string(r.Body), fmt.Sprintf(" %d/%d", i, n)) != 1 {
				t.Errorf("change %d/%d is not there once: %s", i, n, r.Body)
			}
		}
	}
}

// The catalog may live in a shard's database; whoever installs first, both find what they need.
func TestInstallBesideShards(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c, err := Open(t.Context(), dsn, nil)
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			c.Close()
		})
		wg.Go(func() {
			// As a shard's installation does, under the same lock.
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Errorf("connect: %v", err)
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(1381171203, 0)`) // 0x52530003
				if err == nil {
					_, err = tx.Exec(t.Context(), `create schema if not exists ringside`)
				}
				if err == nil {
					_, err = tx.Exec(t.Context(), `create table if not exists ringside.view (epoch bigint)`)
				}
				return err
			})
			if err != nil {
				t.Errorf("the shard's installation: %v", err)
			}
		})
	}
	wg.Wait()
	if n := sql(t, dsn, `select count(*)::text from pg_class where relnamespace = 'ringside'::regnamespace and relname in ('view', 'catalog')`); n != "2" {
		t.Errorf("%s of 2 tables are there", n)
	}
}

// A role that may not create anything can use a catalog that is installed.
func TestModestRole(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	open(t, dsn).Close()
	role := "modest_" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	sql(t, dsn, `create role `+role+` login`, `grant usage on schema ringside to `+role, `grant select, insert, update on ringside.catalog to `+role)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err := conn.Exec(context.Background(), `drop owned by `+role); err != nil {
			t.Error(err)
		}
		if _, err := conn.Exec(context.Background(), `drop role `+role); err != nil {
			t.Error(err)
		}
	})
	c := open(t, strings.Replace(dsn, "ringside@", role+"@", 1))
	defer c.Close()
	if _, created, err := c.Create(t.Context(), rec(1, "a")); err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(2, "b")); err != nil {
		t.Fatal(err)
	}
}

func TestServerKilledAndBack(t *testing.T) {
	server := realpg.Alone(t, nil)
	c := open(t, server.DSN())
	if _, _, err := c.Create(t.Context(), rec(1, "a")); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, _, err := c.Load(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("Load without a server: %v", err)
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(2, "b")); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("CompareAndSwap without a server: %v", err)
	}
	if took := time.Since(begun); took > 4*Timeout {
		t.Errorf("two refusals took %v", took)
	}
	if _, err := Open(t.Context(), server.DSN(), nil); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Open without a server: %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := load(t, c); !r.equal(rec(1, "a")) {
		t.Fatalf("after the restart: %+v", r)
	}
	// Once more, with both pooled connections alive before and nothing called in between: the first call finds them dead.
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := load(t, c); r.Epoch != 1 {
		t.Fatalf("over a dead connection: %+v", r)
	}
	if err := c.CompareAndSwap(t.Context(), 1, rec(2, "b")); err != nil {
		t.Fatal(err)
	}
}

func TestCallsEndInTime(t *testing.T) {
	server := realpg.Alone(t, nil)
	c := open(t, server.DSN())
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, _, err := c.Load(ctx)
	if took := time.Since(begun); !errors.Is(err, ErrUnavailable) || took > Timeout {
		t.Errorf("Load of a paused server: %v after %v", err, took)
	}
	closed := make(chan error, 1)
	go func() {
		_, _, err := c.Load(context.Background())
		closed <- err
	}()
	time.Sleep(50 * time.Millisecond)
	begun = time.Now()
	c.Close()
	if took := time.Since(begun); took > closeTimeout+4*Timeout {
		t.Errorf("Close took %v", took)
	}
	select {
	case err := <-closed:
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("a call that Close ended: %v", err)
		}
	case <-time.After(4 * Timeout):
		t.Error("Close does not end a call")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
}

// I3.
func TestErrorsShowNoPassword(t *testing.T) {
	const secret = "hunter2"
	for _, dsn := range []string{
		"", "postgres://u:" + secret + "@[bad", "postgres://u:" + secret + "%zz@h/db", "host=127.0.0.1 port=x password=" + secret,
		"postgres://u:" + secret + "/x@127.0.0.1:1/db", "postgres://u:" + secret + "@127.0.0.1:1/db?sslmode=disable",
		"postgres://u:" + secret + "@name.invalid:1/db",
	} {
		c, err := Open(t.Context(), dsn, nil)
		if err == nil {
			c.Close()
			t.Errorf("%s was opened", dsn)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	// Wrong for good, as opposed to unavailable.
	dsn := strings.Replace(realpg.T(t).DSN(), "/app", "/nonexistent", 1)
	if _, err := Open(t.Context(), dsn, nil); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("a database that does not exist: %v", err)
	}
}
