package proxy

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/internal/realredis"
	"ringside/resp"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// bench is a proxy in front of real cache servers, with rows that come from a map instead of shards.
type bench struct {
	t       testing.TB
	server  *Server
	addr    string
	caches  []*realredis.Server
	holder  *topology.Holder
	rows    *fakeRows
	shards  *fakeShards
	reg     *prometheus.Registry
	metRuns chan [2]string
}

// fakeShards confirms whatever it is told to.
type fakeShards struct{ confirmation shard.Confirmation }

func (f *fakeShards) Confirmation(string) *shard.Confirmation { return &f.confirmation }

type onlySelf struct{}

func (onlySelf) Sidecars() int { return 1 }

// fakeRows is a table in memory. Its functions, when set, come first.
type fakeRows struct {
	mu     sync.Mutex
	rows   map[string]string
	reads  int
	writes int
	read   func(key string) *Row
	write  func(op keyspace.Op) (keyspace.Outcome, error)
}

func (f *fakeRows) Read(_ context.Context, keys []keyspace.Key) []Row {
	out := make([]Row, len(keys))
	for i, k := range keys {
		f.mu.Lock()
		f.reads++
		body, ok := f.rows[string(k.Text)]
		read := f.read
		f.mu.Unlock()
		out[i] = Row{Found: ok, Body: []byte(body)}
		if read != nil {
			if r := read(string(k.Text)); r != nil {
				out[i] = *r
			}
		}
	}
	return out
}

// set stores a row.
func (f *fakeRows) set(key, row string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[key] = row
}

// asked is how many rows were read.
func (f *fakeRows) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fakeRows) Write(_ context.Context, op keyspace.Op) (keyspace.Outcome, error) {
	f.mu.Lock()
	write := f.write
	f.writes++
	f.mu.Unlock()
	if write != nil {
		return write(op)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := string(op.Key.Text)
	_, existed := f.rows[key]
	switch op.Kind {
	case keyspace.Delete:
		delete(f.rows, key)
		return keyspace.Outcome{Applied: existed}, nil
	case keyspace.Increment:
		return keyspace.Outcome{Applied: true, Value: op.Delta}, nil
	case keyspace.Insert:
		if existed {
			return keyspace.Outcome{}, nil
		}
	case keyspace.Update:
		if !existed {
			return keyspace.Outcome{}, nil
		}
	}
	var doc strings.Builder
	for i, c := range op.Columns {
		if i > 0 {
			doc.WriteByte(',')
		}
		fmt.Fprintf(&doc, "%q:%s", c.Name, c.Value)
	}
	f.rows[key] = "{" + doc.String() + "}"
	return keyspace.Outcome{Applied: true, Inserted: !existed}, nil
}

// start starts a proxy before n cache servers. change may alter the configuration.
func start(t testing.TB, n int, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, holder: &topology.Holder{}, rows: &fakeRows{rows: map[string]string{}}, shards: &fakeShards{}, reg: prometheus.NewRegistry(), metRuns: make(chan [2]string, 1000)}
	var caches []topology.Cache
	for i := range n {
		s := realredis.T(t)
		b.caches = append(b.caches, s)
		caches = append(caches, topology.Cache{Name: fmt.Sprintf("c%d", i+1), Addr: s.Addr(), Weight: 1, RunID: runIDAt(t, s.Addr())})
	}
	topo, err := topology.Bootstrap(caches, []topology.Shard{{Name: "s1", Weight: 1, MaxConnections: 4}})
	if err != nil {
		t.Fatal(err)
	}
	b.holder.Publish(topo)
	b.shards.confirmation.Confirm(shard.View{Epoch: topo.Epoch, Phase: shard.Done}, time.Now().Add(time.Hour))
	cfg := DefaultConfig()
	cfg.Name, cfg.Version, cfg.Listen, cfg.Loops = "test", "v0", "127.0.0.1:0", 2
	if change != nil {
		change(&cfg)
	}
	b.server, err = New(cfg, Deps{
		Topology: b.holder, Keyspaces: testKeyspaces(t), Rows: b.rows, Shards: b.shards, Cluster: onlySelf{},
		Credentials: func(string) Credentials { return Credentials{} },
		OnIncarnation: func(server, runID string) {
			select {
			case b.metRuns <- [2]string{server, runID}:
			default:
			}
		},
		Registerer: b.reg, Log: slog.New(slog.DiscardHandler),
	}, "0123456789")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-b.server.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("Run: %v", err)
	}
	b.addr = b.server.Addr().String()
	return b
}

func testKeyspaces(t testing.TB) *keyspace.Set {
	t.Helper()
	var all []*keyspace.Keyspace
	for _, s := range []keyspace.Spec{
		{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute, NegativeTTL: time.Second},
		{Name: "title", Pattern: "title:{id:int}", Table: "users", Value: "name", TTL: time.Minute},
	} {
		k, err := keyspace.Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	set, err := keyspace.NewSet(all)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// wire is a client that sees every byte.
type wire struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
	in   []byte
	scan resp.Scanner
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return &wire{t: t, conn: c}
}

func (b *bench) dial() *wire { b.t.Helper(); return dial(b.t, b.addr) }

func (w *wire) write(raw string) {
	w.t.Helper()
	if err := w.conn.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.conn.Write([]byte(raw)); err != nil {
		w.t.Fatal(err)
	}
}

// send sends commands, each a line of words; words may be quoted with double quotes.
func (w *wire) send(commands ...string) {
	w.t.Helper()
	var out []byte
	for _, c := range commands {
		out = resp.AppendCommandString(out, words(c)...)
	}
	w.write(string(out))
}

// words splits at spaces outside of single quotes.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quoted, some := false, false
	for _, c := range []byte(line) {
		switch {
		case c == '\'':
			quoted, some = !quoted, true
		case c == ' ' && !quoted:
			if some {
				out = append(out, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteByte(c)
			some = true
		}
	}
	if some {
		out = append(out, word.String())
	}
	return out
}

// reply reads one reply, as received.
func (w *wire) reply() string {
	w.t.Helper()
	frame, err := w.tryReply()
	if err != nil {
		w.t.Fatalf("reading a reply: %v (so far %q)", err, w.in)
	}
	return frame
}

func (w *wire) tryReply() (string, error) {
	for {
		n, err := w.scan.Next(w.in)
		if err != nil {
			return "", err
		}
		if n > 0 {
			frame := string(w.in[:n])
			w.in = w.in[n:]
			return frame, nil
		}
		if err := w.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return "", err
		}
		buf := make([]byte, 64<<10)
		n, err = w.conn.Read(buf)
		w.in = append(w.in, buf[:n]...)
		if err != nil && n == 0 {
			return "", err
		}
	}
}

// do sends one command and returns its reply.
func (w *wire) do(command string) string {
	w.t.Helper()
	w.send(command)
	return w.reply()
}

// want fails unless the command's reply is exactly that.
func (w *wire) want(command, reply string) {
	w.t.Helper()
	if got := w.do(command); got != reply {
		w.t.Errorf("%s: %q, want %q", command, got, reply)
	}
}

// closed fails unless the connection ends now.
func (w *wire) closed() {
	w.t.Helper()
	if frame, err := w.tryReply(); err == nil {
		w.t.Errorf("the connection should have been closed, got %q", frame)
	}
}

func runIDAt(t testing.TB, addr string) string {
	t.Helper()
	w := dial(t, addr)
	id := runIDOf([]byte(w.do("INFO server")))
	if id == "" {
		t.Fatal("no run_id")
	}
	return id
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
