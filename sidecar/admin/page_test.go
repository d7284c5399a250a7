package admin

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"ringside/sidecar/topology"
)

// page returns the page as a browser without scripts shows it.
func pageOfServer(t *testing.T, s *setup, target string) (body string, header http.Header) {
	t.Helper()
	w := get(s.server(t), target, "Accept: text/html")
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d\n%s", target, w.Code, w.Body)
	}
	return w.Body.String(), w.Header()
}

// contains compares without regard to how the template is laid out.
func contains(t *testing.T, page string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// TestPolicyNamesWhatIsOnThePage: a template that altered a byte of the program or the styles would leave a page without either.
func TestPolicyNamesWhatIsOnThePage(t *testing.T) {
	body, header := pageOfServer(t, newSetup(t, small(t)), "/ring")
	policy := header.Get("Content-Security-Policy")
	for _, tag := range []string{"style", "script"} {
		found := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(body, -1)
		if len(found) != 1 || len(found[0][1]) < 1000 {
			t.Fatalf("%d elements %s", len(found), tag)
		}
		if !strings.Contains(policy, tag+"-src "+hashSource([]byte(found[0][1]))) {
			t.Errorf("the policy does not allow the page's own %s: %s", tag, policy)
		}
	}
	for _, forbidden := range []string{" style=", " onclick", "javascript:", "https://", "src="} {
		if strings.Contains(strings.SplitN(body, "<script>", 2)[0], forbidden) {
			t.Errorf("the page has %q, which its policy forbids or which comes from elsewhere", forbidden)
		}
	}
}

func TestPageWithoutScripts(t *testing.T) {
	top := overridden(t)
	s := newSetup(t, top)
	s.deps.Ready = func() error { return errStarting }
	s.deps.Members = func() []Member {
		return []Member{
			{Name: "a2", Addr: "10.0.0.2:7946", Redis: "127.0.0.1:6380", Admin: "10.0.0.2:6381", Version: "v1.2.2", Epoch: 5, Digest: "0011223344556677", State: "suspect"},
			{Name: "a1", Addr: "10.0.0.1:7946", Redis: "127.0.0.1:6380", Admin: "127.0.0.1:6381", Version: "v1.2.3", Epoch: 7, Digest: top.Digest().String(), State: "alive", Self: true},
		}
	}
	s.deps.Pools = func() []Pool {
		return []Pool{{Name: "s1", Budget: 64, Limit: 32, InUse: 9, Waiting: 3, OldestWaitMS: 41, Served: 1234567, State: "down", LastError: "connection refused"}}
	}
	body, _ := pageOfServer(t, s, "/ring")
	contains(t, body,
		"<title>a1 · ring · ringside</title>", "epoch <b>7</b>", "<code>"+top.Digest().String()+"</code>", "version <b>v1.2.3</b>",
		"not ready: shard s1 has not answered yet", "1 of 2 sidecars see another ring",
		`data-pick="cache" data-name="c3">c3</th><td><code>10.0.0.3:6379</code></td>`, `data-pick="shard" data-name="s1">s1</th>`, "16,384</td>", "25.00%",
		"<code>acme</code></th><td>s1</td>",
		`<a href="http://10.0.0.2:6381/ring">a2</a>`, "behind by 2", `<a href="http://127.0.0.1:6381/ring">a1</a> <span class="dim">(this one)</span>`, "the same",
		`<span class="state down">down</span>`, "41 ms", "1,234,567", "connection refused",
		"<code>user:{id:int}</code>, <code>order:{tenant}:{id:int}</code>", "<noscript>")
	if strings.Index(body, ">a1</a>") > strings.Index(body, ">a2</a>") {
		t.Error("sidecars are not in the order of their names")
	}

	contains(t, body, "Nothing has been used lately.", "Nothing is moving, and all cache servers are well.", `<option value="add">add</option>`)

	body, _ = pageOfServer(t, s, "/ring?change=drain&fleet=shard&name=s1&weight=1&key=hello")
	contains(t, body, "<b>25.00% of the ring</b> would move: 16,384 vnodes", "None between other servers.", "<code>ringside shard weight s1 0 &amp;&amp; ringside move start</code>",
		`<option value="drain" selected>`, `<option value="shard" selected>`, `<th scope="row">s1</th><td class="n">1 → 0</td><td class="n">25.00%</td><td class="n">0.00%</td>`, "<dd>plain</dd>")
	body, _ = pageOfServer(t, s, "/ring?change=add&fleet=cache&name=c1&weight=1")
	contains(t, body, `<p class="bad">there is a cache server c1 already (active)</p>`)
	body, _ = pageOfServer(t, s, "/ring?change=weigh&name=c1&weight=")
	contains(t, body, `<p class="bad">weight is missing`)

	body, _ = pageOfServer(t, s, "/ring?key=order:acme:1")
	contains(t, body, `value="order:acme:1"`, `data-cache-vnode="63582" data-cache="c1" data-shard-vnode="42041" data-shard="s1" data-key="order:acme:1"`, "by an override")
	body, _ = pageOfServer(t, s, "/ring?key=hello")
	contains(t, body, `data-cache-vnode="9355" data-cache="c2"`, "<dd>plain</dd>")
	body, _ = pageOfServer(t, s, "/ring?key=user:042")
	contains(t, body, `<p class="bad">key &#34;user:042&#34; of keyspace user: field id is &#34;042&#34;: write 42</p>`)
}

func TestPageOfNothing(t *testing.T) {
	body, _ := pageOfServer(t, newSetup(t, bootstrap(t, nil, nil)), "/ring?key=x")
	contains(t, body, "There are no cache servers.", "this cluster only caches", "No sidecars are known yet.", "nobody")
}

// TestHostileTexts: names, addresses and errors come from configurations, gossip and other programs.
func TestHostileTexts(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	caches := []topology.Cache{{Name: "c" + evil, Addr: "a" + evil, Weight: 1}}
	shards := []topology.Shard{{Name: "s" + evil, DSN: "d", Weight: 1}}
	c := bootstrap(t, caches, shards).Content()
	c.Overrides = []topology.Override{{ShardKey: "k" + evil, Shard: "s" + evil}}
	top, err := topology.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := newSetup(t, top)
	s.deps.Name, s.deps.Version = "n"+evil, "v"+evil
	s.deps.Ready = func() error { return &topologyError{evil} }
	s.deps.Members = func() []Member {
		return []Member{{Name: evil, Addr: evil, Redis: evil, Admin: "javascript:alert(1)", Version: evil, Digest: evil, State: evil}}
	}
	s.deps.Pools = func() []Pool { return []Pool{{Name: evil, State: evil, LastError: evil}} }
	s.deps.Progress = func() Progress {
		return Progress{
			Summary: evil, Changing: true, Shards: []ShardProgress{{Name: evil, Phase: evil}}, Handovers: []HandoverProgress{{From: evil, Step: evil, Fault: evil}},
			Servers: []ServerProgress{{Name: evil, State: evil, Fault: evil}}, Lost: []Loss{{From: evil}},
		}
	}
	s.deps.Shards.Moves = func(context.Context) ([]MovePart, error) {
		return []MovePart{{Move: 1, From: evil, To: evil, State: "running", Step: evil, Why: evil}}, errors.New(evil)
	}
	s.deps.HotKeys = func(int) HotKeys {
		return HotKeys{Keys: []HotKey{{Key: evil + "\x00\xff", Cache: evil}}, ShardKeys: []HotShardKey{{ShardKey: evil, Shard: evil}}}
	}
	body, _ := pageOfServer(t, s, "/ring?add=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
	contains(t, body, `<p class="bad">name is &#34;\&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#34;: a name is 1 to 63`)
	body, _ = pageOfServer(t, s, "/ring?key=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&weight=2&weigh=c%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
	contains(t, body, "would move", "alert(1)&lt;/script&gt;</th><td class=\"n\">1 → 2</td>", `\x00\xff&#34;</code>`)
	if strings.Contains(body, "ringside cache weight") {
		t.Error("a command is offered that a shell would take apart")
	}
	if n := strings.Count(body, "<script>"); n != 1 {
		t.Errorf("%d scripts on the page", n)
	}
	if strings.Contains(body, "javascript:") || strings.Contains(body, `"><script`) {
		t.Error("a hostile text is on the page as it came")
	}
	s.deps.Topology = &topology.Holder{}
	if body := get(s.server(t), "/ring", "Accept: text/html").Body.String(); strings.Contains(body, "<script>") {
		t.Error("a hostile text is on the starting page as it came")
	}
}

type topologyError struct{ text string }

func (e *topologyError) Error() string { return e.text }
