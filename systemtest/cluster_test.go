package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/localcluster"
)

// askLimit bounds one question to a shard or an admin address.
const askLimit = 30 * time.Second

// rows is how many users a cluster of these tests has; a fifth as many orders.
const rows = 5000

// cluster is a running cluster with all that its processes print.
type cluster struct {
	*localcluster.Cluster
	dir     string // of output
	output  string // file with all that was printed
	stopped bool
	logs    map[string]*statements // of the shards, as far as they were read
}

// statements is what was read of a shard's log.
type statements struct {
	offset int64
	loads  int
}

// unhurried has limits that hold on a busy machine.
const unhurried = "limits: { " + hold + " }\n"

const hold = "connect_timeout: 5s, shard_queue_wait: 2s, shard_connect_timeout: 10s, shard_read_timeout: 3s"

// patient is for tests in which no server falls silent besides: one that only waits for its share of a busy machine must not look dead.
const patient = "limits: { cache_down_after: 20s, " + hold + " }\n"

// startCluster starts a cluster on ports that are free.
func startCluster(program string, change func(*localcluster.Options)) (_ *cluster, err error) {
	c := &cluster{}
	if c.dir, err = os.MkdirTemp("", "ringside-output-"); err != nil {
		return nil, err
	}
	c.output = filepath.Join(c.dir, "output")
	out, err := os.Create(c.output)
	if err != nil {
		return nil, err
	}
	o := localcluster.DefaultOptions()
	o.Binary, o.Rows, o.Log, o.Config = program, rows, out, unhurried
	o.Settings = map[string]string{
		"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB",
		// Into a file of its own in each data directory, so that the other output is that of the sidecars and of Redis.
		"logging_collector": "on", "log_directory": "log", "log_filename": shardLog, "log_rotation_size": "0", "log_rotation_age": "0",
	}
	if change != nil {
		change(&o)
	}
	// Between the look for free ports and their use somebody else may take one.
	for range 3 {
		if o.BasePort, err = localcluster.FreeBase(o); err != nil {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		c.Cluster, err = localcluster.Start(ctx, o)
		cancel()
		if err == nil {
			return c, nil
		}
	}
	printed, _ := os.ReadFile(c.output) // for the message only
	return nil, errors.Join(fmt.Errorf("%w\n%s", err, lastOf(printed)), os.RemoveAll(c.dir))
}

// stop stops the cluster. The error also says what the sidecars printed that they never may.
func (c *cluster) stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	err := c.Stop()
	printed, readErr := os.ReadFile(c.output)
	err = errors.Join(err, readErr)
	for _, never := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if i := bytes.Index(printed, []byte(never)); i >= 0 {
			err = errors.Join(err, fmt.Errorf("a process printed %q:\n%s", never, printed[max(0, i-500):min(len(printed), i+6000)]))
		}
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// printed is the end of what the processes printed.
func (c *cluster) printed() string {
	b, err := os.ReadFile(c.output)
	if err != nil {
		return err.Error()
	}
	return lastOf(b)
}

func lastOf(b []byte) string {
	return "... " + string(b[max(0, len(b)-8000):])
}

// shared is the cluster of the tests that leave it as it was: three cache servers, two shards, two sidecars. Its shards log every statement.
func shared(t *testing.T) *cluster {
	t.Helper()
	path := program(t)
	suite.Lock()
	defer suite.Unlock()
	if suite.shared == nil && suite.err == nil {
		suite.shared, suite.err = startCluster(path, func(o *localcluster.Options) {
			o.Settings["log_statement"] = "all"
			o.Config = patient + "verify_rate: 0\n" // its tests count statements
		})
	}
	if suite.err != nil {
		t.Fatal(suite.err)
	}
	c := suite.shared
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the processes printed:\n%s", c.printed())
		}
	})
	return c
}

// own starts a cluster for one test.
func own(t *testing.T, change func(*localcluster.Options)) *cluster {
	t.Helper()
	c, err := startCluster(program(t), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the processes printed:\n%s", c.printed())
		}
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// get asks a sidecar's admin address for JSON.
func get(t *testing.T, s *localcluster.Sidecar, path string) []byte {
	t.Helper()
	body, err := tryGet(s, path)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func tryGet(s *localcluster.Sidecar, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	req.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	err = errors.Join(err, res.Body.Close())
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s%s: %s: %s", s.Name, path, res.Status, body)
	}
	return body, err
}

// location is what /ring/lookup says.
type location struct {
	Key        string `json:"key"`
	Keyspace   string `json:"keyspace"`
	Cache      string `json:"cache"`
	CacheVnode int    `json:"cache_vnode"`
	Shard      string `json:"shard"`
	ShardKey   string `json:"shard_key"`
	ShardVnode int    `json:"shard_vnode"`
	Epoch      uint64 `json:"epoch"`
}

func lookup(t *testing.T, s *localcluster.Sidecar, key string) location {
	t.Helper()
	var l location
	if err := json.Unmarshal(get(t, s, "/ring/lookup?key="+url.QueryEscape(key)), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// ringState is /ring as far as these tests look at it.
type ringState struct {
	Epoch  uint64
	Caches []cacheOf
}

type cacheOf struct {
	Name, State string
	Vnodes      int
}

func ringOf(s *localcluster.Sidecar) (ringState, error) {
	var r ringState
	body, err := tryGet(s, "/ring")
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	return r, err
}

// member is one line of /members.
type member struct {
	Name, State, Digest string
	Epoch               uint64
	Self                bool
}

// members is what a sidecar says of the others.
func members(s *localcluster.Sidecar) (map[string]member, error) {
	body, err := tryGet(s, "/members")
	if err != nil {
		return nil, err
	}
	var list struct{ Members []member }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	all := map[string]member{}
	for _, m := range list.Members {
		all[m.Name] = m
	}
	return all, nil
}

// state is what s says of the member with that name: "" when it does not know it, or cannot be asked.
func state(s *localcluster.Sidecar, name string) string {
	all, err := members(s)
	if err != nil {
		return ""
	}
	return all[name].State
}

// shard returns the shard with that name.
func (c *cluster) shard(t *testing.T, name string) *localcluster.Shard {
	t.Helper()
	for _, s := range c.Shards {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no shard %q", name)
	return nil
}

// sql opens a session of a shard.
func sql(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), askLimit)
		defer cancel()
		_ = conn.Close(ctx) // the server may be gone
	})
	return conn
}

// query returns the single value of a query as text; "<none>" when there is no row.
func query(t *testing.T, conn *pgx.Conn, text string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	var out *string
	err := conn.QueryRow(ctx, text, args...).Scan(&out)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "<none>"
	case err != nil:
		t.Fatalf("%s: %v", text, err)
	case out == nil:
		return "<null>"
	}
	return *out
}

// execute runs a statement.
func execute(t *testing.T, conn *pgx.Conn, text string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	if _, err := conn.Exec(ctx, text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// eventually fails unless f holds within the limit. It returns how long that took.
func eventually(t *testing.T, limit time.Duration, what string, f func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// shardLog is the file, in the folder log of each data directory, to which a shard logs.
const shardLog = "shard.log"

// loads counts the statements by which sidecars have read rows, on all shards of the shared cluster, up to now. A statement is logged before it is
// carried out, and a marker that is logged later shows that everything before it is in the file.
func (c *cluster) loads(t *testing.T) int {
	t.Helper()
	if c.logs == nil {
		c.logs = map[string]*statements{}
	}
	n := 0
	for _, s := range c.Shards {
		if c.logs[s.Name] == nil {
			c.logs[s.Name] = &statements{}
		}
		n += c.logs[s.Name].read(t, s.DSN(), filepath.Join(c.Dir, s.Name, "log", shardLog))
	}
	return n
}

// rowsRead is how many rows of tables the sidecars have asked the shards for.
func (c *cluster) rowsRead(t *testing.T) int { return c.counted(t, "ringside_shard_load_keys_sum") }

// counted is the sum of a counter over all sidecars.
func (c *cluster) counted(t *testing.T, name string) (n int) {
	t.Helper()
	for _, s := range c.Sidecars {
		n += counterOf(t, s, name)
	}
	return n
}

// counterOf is the sum of a sidecar's counter over all labels.
func counterOf(t *testing.T, s *localcluster.Sidecar, name string) (n int) {
	t.Helper()
	for line := range strings.Lines(string(get(t, s, "/metrics"))) {
		if rest, ok := strings.CutPrefix(line, name); !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		part, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		n += int(part)
	}
	return n
}

// read reads on up to a marker and returns the number of loads in the whole log.
func (l *statements) read(t *testing.T, dsn, path string) int {
	t.Helper()
	marker := fmt.Sprintf("marker-%d", rand.Int64())
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "select '"+marker+"'")
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var more []byte
	eventually(t, time.Minute, "the marker in "+path, func() bool {
		if more, err = io.ReadAll(io.NewSectionReader(file, l.offset, 1<<30)); err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(more, []byte(marker))
	})
	more = more[:bytes.Index(more, []byte(marker))]
	l.offset += int64(len(more))
	for line := range strings.Lines(string(more)) {
		if strings.Contains(line, "execute ") && strings.Contains(line, "row_to_json(t.*)") {
			l.loads++
		}
	}
	return l.loads
}
