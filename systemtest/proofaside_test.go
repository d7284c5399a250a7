package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringside/internal/childproc"
	"ringside/internal/localcluster"
	"ringside/internal/realredis"
	"ringside/systemtest/history"
)

// What is compared with: an application that keeps its rows in a cache by itself, as is usual, through twemproxy with auto_eject_hosts. It reads the cache,
// on a miss the database, and puts the row into the cache; it writes the database, then deletes the cached row, and takes its write for done only when that
// was answered.
type aside struct {
	*proof
	addr string
	db   *pgxpool.Pool
}

// newAside starts cache servers of its own and twemproxy before them. Its rows are those of the proof that the cluster's first shard owns.
func newAside(t *testing.T, p *proof) (*aside, []*localcluster.Cache) {
	t.Helper()
	var caches []*localcluster.Cache
	servers := ""
	for i := range 3 {
		s := realredis.T(t)
		caches = append(caches, &localcluster.Cache{Name: fmt.Sprintf("c%d", i+1), Server: s})
		servers += fmt.Sprintf("   - %s:1 c%d\n", s.Addr(), i+1)
	}
	ports := freePorts(t, 2)
	addr := local(ports[0])
	file := filepath.Join(t.TempDir(), "nutcracker.yml")
	text := "all:\n  listen: " + addr + "\n  hash: murmur\n  distribution: ketama\n  redis: true\n  timeout: 400\n" +
		"  auto_eject_hosts: true\n  server_failure_limit: 1\n  server_retry_timeout: 1000\n  servers:\n" + servers
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("nutcracker")
	if err != nil {
		path = "/usr/sbin/nutcracker"
	}
	proxy, err := childproc.Start(childproc.Options{Path: path, Args: []string{"-c", file, "-a", "127.0.0.1", "-s", strconv.Itoa(ports[1])}})
	if err != nil {
		t.Fatalf("twemproxy is not installed (run scripts/setup bench): %v", err)
	}
	t.Cleanup(func() {
		if err := proxy.Kill(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, time.Minute, "twemproxy answers", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close() // only looked whether it can be had
		}
		return err == nil
	})

	first := p.c.Shards[0]
	db, err := pgxpool.New(t.Context(), first.DSN()+"&pool_max_conns=16")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	mine := p.rows[:0]
	for _, r := range p.rows {
		if r.others = false; lookup(t, p.c.Sidecars[0], r.key).Shard == first.Name {
			mine = append(mine, r)
		}
	}
	p.rows = mine
	return &aside{p, addr, db}, caches
}

func (a *aside) run() {
	for range proofReaders {
		a.group.Go(a.reader)
	}
	for range proofWriters {
		a.group.Go(a.writer)
	}
}

// ask asks twemproxy. A connection that failed is opened anew by the next question.
func (a *aside) ask(w **wire, command ...string) (string, error) {
	var err error
	if *w == nil {
		if *w, err = open(a.addr); err != nil {
			return "", err
		}
	}
	if err = (*w).send(a.patience, command); err == nil {
		v, e := (*w).reply()
		if e == nil && strings.HasPrefix(show(v), "-") {
			return "", fmt.Errorf("%s", v.Text)
		}
		if err = e; err == nil {
			return show(v), nil
		}
	}
	(*w).close()
	*w = nil
	return "", err
}

func (a *aside) reader() {
	z := a.zipf()
	var w *wire
	for a.pause(readThink / 4) {
		r := a.row(z)
		o := history.Op{Begin: a.elapsed(), Outcome: history.Acknowledged}
		text, err := a.ask(&w, "GET", r.key)
		if err != nil || text == "(nil)" {
			a.count("miss")
			ctx, cancel := context.WithTimeout(context.Background(), a.patience)
			e := a.db.QueryRow(ctx, "select coalesce((select row_to_json(u)::text from users u where id = $1), '')", r.id).Scan(&text)
			cancel()
			if e != nil {
				continue
			}
			if err == nil {
				_, _ = a.ask(&w, "SET", r.key, text, "EX", "600") // else it is read from the database again
			}
		}
		o.End = a.elapsed()
		if text == "" {
			a.noteRead(r, o, nothing)
			continue
		}
		var got struct {
			Name   *string
			Visits *int64
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			a.fault("GET %s gave %q", r.key, text)
			continue
		}
		a.noteRead(r, o, seen{valueText(got.Name, got.Visits), true})
	}
	if w != nil {
		w.close()
	}
}

func (a *aside) writer() {
	z := a.zipf()
	var w *wire
	for a.pause(writeThink) {
		r := a.row(z)
		mark := fmt.Sprintf("w%d", a.writes.Add(1))
		o := history.Op{Begin: a.elapsed(), Write: true, Outcome: history.Unknown, Mark: mark}
		ctx, cancel := context.WithTimeout(context.Background(), a.patience)
		_, err := a.db.Exec(ctx, "insert into users (id, name) values ($1, $2) on conflict (id) do update set name = excluded.name", r.id, mark)
		cancel()
		for range 5 {
			if err != nil {
				break
			}
			var e error
			if _, e = a.ask(&w, "DEL", r.key); e == nil {
				o.Outcome = history.Acknowledged
				a.counted.acknowledged.Add(1)
				break
			}
			time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
		}
		o.End = a.elapsed()
		r.note(o)
	}
	if w != nil {
		w.close()
	}
}

// findsCacheAside: under the failures of Redis alone the same checks find stale reads of such an application.
func findsCacheAside(t *testing.T, p *proof) {
	a, caches := newAside(t, p)
	s := &schedule{p: p, caches: caches}
	a.run()
	s.start(1, []lane{{"redis", second / 2, (*schedule).hurtRedis}})
	stale := 0
	for begun := time.Now(); stale == 0 && time.Since(begun) < time.Minute; {
		time.Sleep(second)
		for _, v := range p.check() {
			if v.Kind == history.Stale {
				if stale++; stale == 1 {
					t.Logf("found after %v: %v", p.elapsed().Round(time.Millisecond), v)
				}
			}
		}
	}
	s.end()
	p.end()
	p.tell()
	for _, line := range s.happened() {
		t.Log(line)
	}
	t.Logf("%d stale reads", stale)
	if stale == 0 {
		t.Error("no stale read was found within a minute")
	}
}
