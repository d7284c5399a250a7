package membership

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The tests wait far more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		// A probe of memberlist's that is under way when it is shut down runs to its end, which takes a few seconds.
		var err error
		for range 100 {
			if err = goleak.Find(); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// node is a sidecar's gossip under test and all that it was told.
type node struct {
	*Gossip
	t     *testing.T
	name  string
	stop  context.CancelFunc
	ended chan struct{}
	err   error // once ended is closed
	net   *cuttable

	mu         sync.Mutex
	topology   []byte
	hints      map[string]Hint
	topologies map[string][]byte
	changes    int
	votes      int // how often votes changed
	logs       lockedBuffer
}

type option func(*node, *Config)

func seeds(addrs ...string) option { return func(_ *node, c *Config) { c.Join = addrs } }
func cluster(name string) option   { return func(_ *node, c *Config) { c.Cluster = name } }
func keys(k ...string) option {
	return func(_ *node, c *Config) {
		for _, key := range k {
			c.Keys = append(c.Keys, []byte(key))
		}
	}
}
func rejoinEvery(d time.Duration) option { return func(_ *node, c *Config) { c.RejoinInterval = d } }

// prepare makes a node with memberlist's failure detection sped up sevenfold; the rest is as in production.
func prepare(t *testing.T, name string, opts ...option) *node {
	n := &node{t: t, name: name, hints: map[string]Hint{}, topologies: map[string][]byte{}, ended: make(chan struct{})}
	cfg := Config{Name: name, BindAddr: "127.0.0.1", Meta: Meta{Version: "v1", Redis: "127.0.0.1:1", Admin: "127.0.0.1:2"}, LeaveTimeout: time.Second}
	for _, o := range opts {
		o(n, &cfg)
	}
	n.Gossip = New(cfg, Callbacks{
		Topology: func() []byte {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.topology
		},
		OnHint: func(from string, h Hint) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.hints[from] = h
		},
		OnTopology: func(from string, body []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.topologies[from] = body
		},
		OnChange: func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.changes++
		},
		OnVotes: func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.votes++
		},
	}, nil, slog.New(slog.NewTextHandler(&n.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	n.tune = func(c *memberlist.Config) {
		c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult = 300*time.Millisecond, 250*time.Millisecond, 3
		c.DeadNodeReclaimTime = 500 * time.Millisecond
		c.GossipToTheDeadTime = time.Second
	}
	n.network = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		n.net = &cuttable{NodeAwareTransport: inner}
		return n.net
	}
	return n
}

func (n *node) run() *node {
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() {
		defer close(n.ended)
		n.err = n.Run(ctx)
	}()
	n.t.Cleanup(func() { n.halt() })
	return n
}

// start runs a node and waits until it listens.
func start(t *testing.T, name string, opts ...option) *node {
	t.Helper()
	n := prepare(t, name, opts...).run()
	select {
	case <-n.Ready():
	case <-n.ended:
		t.Fatalf("%s: Run ended: %v", name, n.err)
	case <-time.After(time.Minute):
		t.Fatalf("%s does not listen", name)
	}
	return n
}

// halt leaves gracefully and waits.
func (n *node) halt() {
	n.t.Helper()
	n.stop()
	select {
	case <-n.ended:
	case <-time.After(time.Minute):
		n.t.Errorf("%s: Run did not end", n.name)
	}
}

// crash stops a node as kill -9 would: nobody is told.
func (n *node) crash() {
	n.t.Helper()
	n.net.cut.Store(true)
	n.halt()
}

func (n *node) has(body []byte, h Hint) {
	n.mu.Lock()
	n.topology = body
	n.mu.Unlock()
	n.SetHint(h)
}

func (n *node) hintOf(peer string) Hint {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hints[peer]
}

func (n *node) got(from string) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.topologies[from]
}

func (n *node) gotAny() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, body := range n.topologies {
		return body
	}
	return nil
}

func (n *node) votesChanged() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.votes
}

func (n *node) member(name string) (Member, bool) {
	for _, m := range n.Members() {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

func (n *node) sees(name string, s State) bool {
	m, ok := n.member(name)
	return ok && m.State == s
}

func (n *node) alive() []string {
	var out []string
	for _, m := range n.Members() {
		if m.State == Alive {
			out = append(out, m.Name)
		}
	}
	return out
}

// eventually waits for cond and returns how long that took.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !cond() {
		if time.Since(begun) > within {
			t.Fatalf("after %v: not yet: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(begun)
}

func startCluster(t *testing.T, n int, opts ...option) []*node {
	t.Helper()
	nodes := []*node{start(t, "a1", opts...)}
	var names []string
	for i := 2; i <= n; i++ {
		nodes = append(nodes, start(t, fmt.Sprintf("a%d", i), append(slices.Clone(opts), seeds(nodes[0].Addr()))...))
	}
	stopTogether(t, nodes)
	for _, m := range nodes {
		names = append(names, m.name)
	}
	slices.Sort(names)
	for _, m := range nodes {
		eventually(t, time.Minute, m.name+" sees all", func() bool { return slices.Equal(m.alive(), names) })
	}
	return nodes
}

// stopTogether makes the nodes say goodbye at the same time at the end of the test, not one after another.
func stopTogether(t *testing.T, nodes []*node) {
	t.Cleanup(func() {
		for _, n := range nodes {
			n.stop()
		}
	})
}

// cuttable is a network cable: when cut, or for peers that blocked names, nothing goes out and nothing comes in.
type cuttable struct {
	memberlist.NodeAwareTransport
	cut     atomic.Bool
	blocked atomic.Pointer[map[string]bool] // addresses
}

var errCut = errors.New("cut")

func (c *cuttable) severed(addr string) bool {
	if c.cut.Load() {
		return true
	}
	b := c.blocked.Load()
	return b != nil && (*b)[addr]
}

func (c *cuttable) WriteTo(b []byte, addr string) (time.Time, error) {
	return c.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (c *cuttable) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if c.severed(a.Addr) {
		return time.Now(), nil
	}
	return c.NodeAwareTransport.WriteToAddress(b, a)
}

func (c *cuttable) DialTimeout(addr string, d time.Duration) (net.Conn, error) {
	return c.DialAddressTimeout(memberlist.Address{Addr: addr}, d)
}

func (c *cuttable) DialAddressTimeout(a memberlist.Address, d time.Duration) (net.Conn, error) {
	if c.severed(a.Addr) {
		return nil, errCut
	}
	return c.NodeAwareTransport.DialAddressTimeout(a, d)
}

// split cuts all connections between two groups, in both directions.
func split(a, b []*node) {
	block := func(from, to []*node) {
		m := map[string]bool{}
		for _, n := range to {
			m[n.Addr()] = true
		}
		for _, n := range from {
			n.net.blocked.Store(&m)
		}
	}
	block(a, b)
	block(b, a)
}

func mend(nodes []*node) {
	for _, n := range nodes {
		n.net.blocked.Store(nil)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var _ io.Writer = (*lockedBuffer)(nil)
