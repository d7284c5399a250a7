package membership

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRelate(t *testing.T) {
	own := Hint{Epoch: 5, Digest: "m"}
	for _, c := range []struct {
		peer Hint
		want relation
	}{
		{own, same}, {Hint{}, lower}, {Hint{4, "z"}, lower}, {Hint{6, "a"}, higher}, {Hint{5, "a"}, differs}, {Hint{5, "z"}, differs},
	} {
		if got := relate(own, record{Seq: 1, Hint: c.peer}); got != c.want {
			t.Errorf("%v: %v, want %v", c.peer, got, c.want)
		}
	}
	if relate(own, record{}) != unheard || relate(Hint{}, record{Seq: 1}) != same {
		t.Error("a peer that was not heard, or nobody has a topology")
	}
}

func TestHintOrder(t *testing.T) {
	ordered := []Hint{{}, {0, "a"}, {1, ""}, {1, "a"}, {1, "b"}, {2, "a"}, {1 << 63, ""}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Compare(b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%v and %v: %d", a, b, got)
			}
		}
	}
}

func TestPlanTopology(t *testing.T) {
	own := Hint{Epoch: 5, Digest: "m"}
	p := defaultPace(0)
	now := after(time.Minute)
	peer := func(name string, h Hint, since time.Duration) *member {
		r := record{Name: name, Seq: 1, Hint: h}
		return &member{name: name, rec: r, rel: relate(own, r), relSince: now.Add(-since)}
	}
	sent := func(m *member, h Hint, ago time.Duration) *member { m.sent, m.sentAt = h, now.Add(-ago); return m }
	old, other, high := Hint{Epoch: 4}, Hint{Epoch: 5, Digest: "z"}, Hint{Epoch: 6, Digest: "h"}

	for name, c := range map[string]struct {
		peers []*member
		open  asking
		delay time.Duration
		push  []string
		ask   []string // any of these; none: nobody
	}{
		"nobody":                      {},
		"agreement":                   {peers: []*member{peer("a", own, time.Hour)}},
		"lower, just now":             {peers: []*member{peer("a", old, 100*time.Millisecond)}},
		"lower for a while":           {peers: []*member{peer("a", old, time.Second)}, push: []string{"a"}},
		"other digest":                {peers: []*member{peer("a", other, time.Second)}, push: []string{"a"}},
		"sent already":                {peers: []*member{sent(peer("a", old, time.Second), own, time.Second)}},
		"sent long ago":               {peers: []*member{sent(peer("a", old, time.Hour), own, 6*time.Second)}, push: []string{"a"}},
		"sent an older one":           {peers: []*member{sent(peer("a", old, time.Hour), old, time.Second)}, push: []string{"a"}},
		"not heard":                   {peers: []*member{{name: "a", relSince: t0}}},
		"higher":                      {peers: []*member{peer("a", high, 0)}, ask: []string{"a"}},
		"higher, but patience":        {peers: []*member{peer("a", high, time.Second)}, delay: 2 * time.Second},
		"the highest of several":      {peers: []*member{peer("a", high, 0), peer("b", Hint{Epoch: 9}, 0), peer("c", Hint{Epoch: 9}, 0)}, ask: []string{"b", "c"}},
		"asked a moment ago":          {peers: []*member{peer("a", high, 0), peer("b", high, 0)}, open: asking{high, "a", now.Add(-time.Second), 1}},
		"no answer: another":          {peers: []*member{peer("a", high, 0), peer("b", high, 0)}, open: asking{high, "a", now.Add(-3 * time.Second), 1}, ask: []string{"b"}},
		"no answer: the only one":     {peers: []*member{peer("a", high, 0)}, open: asking{high, "a", now.Add(-3 * time.Second), 1}, ask: []string{"a"}},
		"the one asked is gone":       {peers: []*member{peer("b", high, 0)}, open: asking{high, "a", now, 1}, ask: []string{"b"}},
		"a higher one than asked for": {peers: []*member{peer("a", high, 0), peer("b", Hint{Epoch: 7}, 0)}, open: asking{high, "a", now, 1}, ask: []string{"b"}},
		"asked in vain often":         {peers: []*member{peer("a", high, 0)}, open: asking{high, "a", now.Add(-10 * time.Second), 4}},
	} {
		p.requestAfter = c.delay
		push, ask, next := planTopology(now, own, c.peers, c.open, p, rand.New(rand.NewPCG(1, 1)))
		if !slices.Equal(push, c.push) {
			t.Errorf("%s: pushed to %v, want %v", name, push, c.push)
		}
		if len(c.ask) == 0 && ask != "" || len(c.ask) > 0 && !slices.Contains(c.ask, ask) {
			t.Errorf("%s: asked %q, want one of %q", name, ask, c.ask)
		}
		if ask != "" && (next.peer != ask || !next.at.Equal(now)) {
			t.Errorf("%s: noted %+v", name, next)
		}
	}
}

func TestPlanTopologyIsBounded(t *testing.T) {
	own := Hint{Epoch: 5}
	var peers []*member
	for i := range 1000 {
		r := record{Seq: 1, Hint: Hint{Epoch: 1}}
		peers = append(peers, &member{name: fmt.Sprint(i), rec: r, rel: lower, relSince: t0})
	}
	push, _, _ := planTopology(after(time.Hour), own, peers, asking{}, defaultPace(0), rand.New(rand.NewPCG(1, 1)))
	if len(push) != defaultPace(0).pushFan {
		t.Errorf("pushed to %d at once", len(push))
	}
	if push, _, _ := planTopology(after(time.Hour), Hint{}, peers, asking{}, defaultPace(0), rand.New(rand.NewPCG(1, 1))); len(push) != 0 {
		t.Errorf("pushed nothing to %d", len(push))
	}
	p := defaultPace(0)
	for count, want := range map[int]time.Duration{1: p.askAgain, 2: 2 * p.askAgain, 3: 4 * p.askAgain, 50: p.askAtMost} {
		if got := (asking{count: count}).wait(p); got != want {
			t.Errorf("question %d stays open %v, want %v", count, got, want)
		}
	}
}

func TestMayAnswer(t *testing.T) {
	own, p, now := Hint{Epoch: 5}, defaultPace(0), after(time.Minute)
	for name, c := range map[string]struct {
		own  Hint
		m    member
		want bool
	}{
		"never sent":       {own, member{}, true},
		"just sent":        {own, member{sent: own, sentAt: now.Add(-time.Millisecond)}, false},
		"sent before":      {own, member{sent: own, sentAt: now.Add(-2 * time.Second)}, true},
		"sent another one": {own, member{sent: Hint{Epoch: 4}, sentAt: now}, true},
		"nothing to send":  {Hint{}, member{}, false},
	} {
		if got := mayAnswer(now, c.own, &c.m, p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestJoiningDue(t *testing.T) {
	const interval = 30 * time.Second
	for name, c := range map[string]struct {
		j    joining
		ago  time.Duration
		want bool
	}{
		"at the start":             {joining{}, 0, true},
		"not yet":                  {joining{}, 29 * time.Second, false},
		"at the interval":          {joining{}, 30 * time.Second, true},
		"early by jitter":          {joining{jitter: -0.2}, 25 * time.Second, true},
		"late by jitter":           {joining{jitter: 0.2}, 35 * time.Second, false},
		"alone":                    {joining{alone: true}, 500 * time.Millisecond, true},
		"alone, after failures":    {joining{alone: true, failures: 3}, 3 * time.Second, false},
		"alone, after 3 failures":  {joining{alone: true, failures: 3}, 4 * time.Second, true},
		"alone, after many":        {joining{alone: true, failures: 1000}, 29 * time.Second, false},
		"alone, never beyond it":   {joining{alone: true, failures: 1000}, 30 * time.Second, true},
		"soon after joining":       {joining{reached: true}, time.Second, true},
		"and again":                {joining{reached: true, follows: 1}, 3 * time.Second, false},
		"and again, later":         {joining{reached: true, follows: 1}, 4 * time.Second, true},
		"then no more":             {joining{reached: true, follows: 2}, 20 * time.Second, false},
		"name held by a dead one":  {joining{disputed: true}, 2 * time.Second, true},
		"name held, tried just so": {joining{disputed: true}, time.Second, false},
	} {
		if c.ago > 0 {
			c.j.last = t0
		}
		if got := c.j.due(after(c.ago), interval); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPickSeeds(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	self, alive := at("10.0.0.1:1"), map[netip.AddrPort]bool{at("10.0.0.2:1"): true}
	rnd := rand.New(rand.NewPCG(1, 1))
	candidates := []netip.AddrPort{self, at("10.0.0.2:1"), at("10.0.0.3:1"), at("10.0.0.3:1")}
	if got := pickSeeds(candidates, self, alive, false, maxSeeds, rnd); !slices.Equal(got, []netip.AddrPort{at("10.0.0.3:1")}) {
		t.Errorf("got %v", got)
	}
	if got := pickSeeds(candidates, self, alive, true, maxSeeds, rnd); len(got) != 2 {
		t.Errorf("all: got %v", got)
	}
	// Of two hundred stale addresses a few are tried at a time, and every one in the end.
	var many []netip.AddrPort
	for i := range 200 {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 1))
	}
	tried := map[netip.AddrPort]bool{}
	for range 1000 {
		got := pickSeeds(many, self, alive, false, maxSeeds, rnd)
		if len(got) != maxSeeds {
			t.Fatalf("%d at once", len(got))
		}
		for _, a := range got {
			tried[a] = true
		}
	}
	if len(tried) != 200 {
		t.Errorf("only %d of 200 were ever tried", len(tried))
	}
}

func TestJudge(t *testing.T) {
	early, late := Meta{Started: t0, Boot: "b"}, Meta{Started: after(time.Second), Boot: "a"}
	const confirm = 3 * time.Second
	for name, c := range map[string]struct {
		claim
		want verdict
	}{
		"it may be leaving":              {claim{0, time.Second, late, early}, watch},
		"newcomer":                       {claim{0, confirm, late, early}, yield},
		"it says nothing of itself":      {claim{0, confirm, late, Meta{}}, yield},
		"the other is the newcomer":      {claim{0, confirm, early, late}, watch},
		"it does not go, clocks are off": {claim{0, confirm + patience, early, late}, yield},
		"established":                    {claim{settled, confirm, late, early}, stay},
		"started together, other first":  {claim{0, confirm, Meta{Started: t0, Boot: "b"}, Meta{Started: t0, Boot: "a"}}, yield},
		"started together, we first":     {claim{0, confirm, Meta{Started: t0, Boot: "a"}, Meta{Started: t0, Boot: "b"}}, watch},
	} {
		if got := c.judge(confirm); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	good := Config{Name: "a", BindAddr: "0.0.0.0", BindPort: 7946, Join: []string{"ringside.default.svc:7946", "[::1]:7"}, Keys: [][]byte{make([]byte, 32)}, Advertise: "[fd00::3]:7946"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	if c := DefaultConfig(); c.Validate() == nil || c.RejoinInterval != 30*time.Second || c.BindPort != 7946 {
		t.Errorf("defaults: %+v", c)
	}
	for want, change := range map[string]func(*Config){
		"name must have":            func(c *Config) { c.Name = "" },
		"128 bytes, not 129":        func(c *Config) { c.Name = strings.Repeat("x", 129) },
		`"localhost" must be an IP`: func(c *Config) { c.BindAddr = "localhost" },
		`"app.svc:7946" must be IP`: func(c *Config) { c.Advertise = "app.svc:7946" },
		`"10.1.2.3" must be IP:p`:   func(c *Config) { c.Advertise = "10.1.2.3" },
		`"10.1.2.3:0" must be IP`:   func(c *Config) { c.Advertise = "10.1.2.3:0" },
		`"10.1.2.3:70000" must be`:  func(c *Config) { c.Advertise = "10.1.2.3:70000" },
		`"0.0.0.0:7946" must be IP`: func(c *Config) { c.Advertise = "0.0.0.0:7946" },
		`"[ff02::1]:7946" must be`:  func(c *Config) { c.Advertise = "[ff02::1]:7946" },
		`"[fe80::1%eth0]:7" must`:   func(c *Config) { c.Advertise = "[fe80::1%eth0]:7" },
		"listen port 70000":         func(c *Config) { c.BindPort = 70000 },
		`"seed" must be host:port`:  func(c *Config) { c.Join = []string{"seed"} },
		`"seed:0" must be`:          func(c *Config) { c.Join = []string{"seed:0"} },
		`":7" must be`:              func(c *Config) { c.Join = []string{":7"} },
		"key 1 has 5 bytes":         func(c *Config) { c.Keys = [][]byte{[]byte("short")} },
		"key 2 is the same":         func(c *Config) { c.Keys = [][]byte{make([]byte, 16), make([]byte, 16)} },
		"is longer than 200":        func(c *Config) { c.Cluster = strings.Repeat("c", 201) },
		"rejoin interval":           func(c *Config) { c.RejoinInterval = time.Millisecond },
		"request delay":             func(c *Config) { c.RequestAfter = -1 },
		"leave timeout":             func(c *Config) { c.LeaveTimeout = -1 },
		"stream timeout":            func(c *Config) { c.StreamTimeout = -1 },
		"boot id":                   func(c *Config) { c.Meta.Boot = strings.Repeat("b", 40) },
	} {
		c := good
		change(&c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), "short") && want == "key 1 has 5 bytes" {
			t.Error("the error shows a key")
		}
	}
}

func TestAdvertiseIP(t *testing.T) {
	ips := func(s ...string) (out []netip.Addr) {
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for _, c := range []struct {
		bind string
		has  []netip.Addr
		want string
	}{
		{"127.0.0.1", nil, "127.0.0.1"},
		{"0.0.0.0", ips("127.0.0.1", "203.0.113.5", "10.1.2.3"), "10.1.2.3"},
		{"0.0.0.0", ips("127.0.0.1", "203.0.113.5"), "203.0.113.5"},
		{"0.0.0.0", ips("127.0.0.1", "fd00::1"), ""},
		{"::", ips("::1", "fe80::1", "fd00::1", "2001:db8::1"), "fd00::1"},
		{"::", ips("fd00::1", "192.168.0.9"), "192.168.0.9"},
		{"0.0.0.0", ips("127.0.0.1"), ""},
	} {
		got, err := advertiseIP(netip.MustParseAddr(c.bind), c.has)
		if (err != nil) != (c.want == "") || err == nil && got.String() != c.want {
			t.Errorf("%s with %v: %v, %v; want %q", c.bind, c.has, got, err, c.want)
		}
	}
}

func TestLogWriter(t *testing.T) {
	var out bytes.Buffer
	w := newLogWriter(slog.New(slog.NewTextHandler(&out, nil)))
	now := t0
	w.now = func() time.Time { return now }
	for i := range 100 {
		fmt.Fprintf(w, "[ERR] memberlist: discarding packet with unacceptable label %q: from=10.0.0.%d:7946\n", "x", i)
	}
	fmt.Fprint(w, "[DEBUG] memberlist: Stream connection from=1\n", "")
	fmt.Fprint(w, "\n")
	fmt.Fprint(w, "[WARN] memberlist: Binding to public address without encryption!\n")
	if n := strings.Count(out.String(), "unacceptable label"); n != logBurst {
		t.Errorf("%d of 100 equal lines written", n)
	}
	if !strings.Contains(out.String(), `level=WARN msg="Binding to public`) || strings.Contains(out.String(), "Stream") {
		t.Errorf("got %s", out.String())
	}
	now = now.Add(logEvery)
	fmt.Fprintf(w, "[ERR] memberlist: discarding packet with unacceptable label %q: from=10.0.0.1:7946\n", "x")
	if !strings.Contains(out.String(), "omitted=95") {
		t.Errorf("what was left out is not told: %s", out.String())
	}
	for i := range 500 {
		fmt.Fprintf(w, "[WARN] memberlist: kind %c%c of line\n", 'a'+i%26, 'a'+i/26)
	}
	if len(w.kinds) > logKinds+1 {
		t.Errorf("%d kinds kept", len(w.kinds))
	}
	for line, want := range map[string]slog.Level{"[ERR] memberlist: x": slog.LevelWarn, "[INFO] memberlist: x": slog.LevelInfo, "[DEBUG] x": slog.LevelDebug, "x": slog.LevelInfo} {
		if level, msg := parseLog(line); level != want || msg != "x" {
			t.Errorf("%q: %v %q", line, level, msg)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := New(Config{Name: "a", BindAddr: "127.0.0.1"}, Callbacks{}, reg, nil)
	g.SetHint(Hint{Epoch: 1, Digest: strings.Repeat("d", 100)})
	if m := g.Members(); len(m) != 1 || !m[0].Self || len(m[0].Hint.Digest) != maxDigest || m[0].Meta.Boot == "" || !reflect.DeepEqual(m, g.Members()) {
		t.Errorf("before Run: %+v", m)
	}
	if g.Addr() != "" || g.HealthScore() != 0 {
		t.Error("before Run there is no address and no score")
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	want := `
# HELP ringside_gossip_members Sidecars known, this one included, by state.
# TYPE ringside_gossip_members gauge
ringside_gossip_members{state="alive"} 1
ringside_gossip_members{state="dead"} 0
ringside_gossip_members{state="left"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ringside_gossip_members"); err != nil {
		t.Error(err)
	}
}
