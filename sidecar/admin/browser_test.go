package admin

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"ringside/internal/realbrowser"
	"ringside/sidecar/topology"
)

// wideFleet is a topology of so many servers of different weights and with long names among them.
func wideFleet(t testing.TB, caches, shards int) *topology.Topology {
	t.Helper()
	name := func(kind string, i, n int) string {
		if n > 100 && i%7 == 0 {
			return fmt.Sprintf("%s-eu-central-1b-production-memory-optimised-node-%03d", kind, i)
		}
		return fmt.Sprintf("%s%0*d", kind[:1], len(fmt.Sprint(n)), i)
	}
	var c []topology.Cache
	for i := 1; i <= caches; i++ {
		c = append(c, topology.Cache{Name: name("cache", i, caches), Addr: fmt.Sprintf("10.0.%d.%d:6379", i/250, i%250), Weight: uint32(1 + i%3/2), RunID: "run", Gen: 1})
	}
	var s []topology.Shard
	for i := 1; i <= shards; i++ {
		s = append(s, topology.Shard{Name: name("shard", i, shards), DSN: fmt.Sprintf("postgres://ringside@pg-%d/app", i), Weight: 1, MaxConnections: 64})
	}
	return bootstrap(t, c, s)
}

// dress gives a server what a page of a busy cluster shows.
func (s *setup) dress(top *topology.Topology, sidecars int) {
	s.deps.Members = func() []Member {
		now := s.deps.Topology.Current()
		all := make([]Member, sidecars)
		for i := range all {
			all[i] = Member{
				Name: fmt.Sprintf("a%d", i+1), Addr: fmt.Sprintf("10.1.0.%d:7946", i+1), Redis: "127.0.0.1:6380", Admin: fmt.Sprintf("10.1.0.%d:6381", i+1), Version: "v1.2.3",
				Epoch: now.Epoch, Digest: now.Digest().String(), State: "alive", Self: i == 0,
			}
		}
		return all
	}
	s.deps.Progress = func() Progress {
		return Progress{
			Summary:   "keys from c1: 12034 carried; rows: 1 of 3 shards done",
			Changing:  true,
			Shards:    []ShardProgress{{Name: "s1", Epoch: 8, Phase: "active", Done: true}, {Name: "s2", Epoch: 7, Phase: "done", Down: 4}, {Name: "s3"}},
			Handovers: []HandoverProgress{{From: "c1", Since: 8, Step: "handed", Seen: 40211, Carried: 12034, Swept: 3, Dropped: 1, Fault: "i/o timeout"}},
			Servers:   []ServerProgress{{Name: "c7", State: topology.Joining, Fault: "dial tcp 10.0.0.7:6379: connection refused", Votes: []string{"a1"}, Needed: 2}},
			Lost:      []Loss{{From: "c2", Since: 3, Epoch: 4}},
		}
	}
	s.deps.HotKeys = func(n int) HotKeys {
		return HotKeys{
			Keys:      []HotKey{{Key: "user:42", Cache: "c2", Rate: 1234.6}, {Key: "session:" + strings.Repeat("0123456789abcdef", 15), Cache: "c1", Rate: 3.21}}[:min(2, n)],
			ShardKeys: []HotShardKey{{ShardKey: "acme", Shard: "s1", Override: true, Rate: 77}},
		}
	}
	s.deps.Shards.Moves = func(context.Context) ([]MovePart, error) {
		return []MovePart{
			{Move: 3, Part: 11, From: "s1", To: "s2", Vnodes: 5000, State: "done", Rows: 100000, Copied: 100000, Blocked: 12},
			{Move: 3, Part: 12, From: "s1", To: "s2", Vnodes: 5000, State: "running", Step: "copy", Rows: 120000, Copied: 50000, Rate: 24000, ETA: 3},
			{Move: 2, Part: 9, From: "s1", To: "s2", Vnodes: 60, State: "failed", Why: "the checksums differ", ETA: -1},
		}, nil
	}
	s.deps.Pools = func() []Pool {
		var all []Pool
		for i, sh := range s.deps.Topology.Current().Shards {
			all = append(all, Pool{Name: sh.Name, Budget: 64, Limit: 32, InUse: i % 9, Idle: 3, Served: 1234567, State: "up"})
		}
		return all
	}
}

// remember writes a quarter of an hour into a server's history.
func remember(server *Server, top *topology.Topology) {
	past, sums := &server.recorder.past, Counts{}
	began := time.Now().Add(-historyFor)
	for i := range historySlots + 1 {
		wave := 1 + math.Sin(float64(i)/20)
		sums.Requests += uint64(60000 + 30000*wave)
		sums.Misses += uint64(900 + 40*(i%7))
		sums.Hits += uint64(40000 * wave)
		if i > 120 && i < 126 {
			sums.Errors += 17
		}
		var pools []Pool
		for k, sh := range top.Shards {
			p := Pool{Name: sh.Name}
			if (i+k*31)%90 < 5 {
				p.OldestWaitMS, p.Waiting = int64(40+k*9%300), 3
			}
			pools = append(pools, p)
		}
		past.look(pools)
		past.end(began.Add(time.Duration(i)*historyEvery), historyEvery, uint64(5+i/130), sums)
	}
}

// looking is a page that a test looks at.
type looking struct {
	t   *testing.T
	tab *realbrowser.Tab
}

func (l looking) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l looking) await(expression string) {
	l.t.Helper()
	l.check(l.tab.Await(expression))
}

// quiet says what went wrong on the page.
func (l looking) quiet() {
	l.t.Helper()
	for _, complaint := range l.tab.Complaints() {
		l.t.Errorf("on the page: %s", complaint)
	}
}

// findings evaluates an expression that gives a list of faults.
func (l looking) findings(what, expression string) {
	l.t.Helper()
	got, err := l.tab.Eval(expression)
	l.check(err)
	list, ok := got.([]any)
	if !ok {
		l.t.Fatalf("%s: %v", what, got)
	}
	for _, one := range list {
		l.t.Errorf("%s: %v", what, one)
	}
}

const (
	// drawn is whether there is anything on the ring, and how many colors.
	colors = `(() => { const c = document.querySelector("#ring canvas"); if (!c.width) return 0;
		const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, s = new Set();
		for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
		return s.size; })()`

	// unreadable lists texts whose contrast with their ground is below what WCAG 2.2 (1.4.3) asks for.
	unreadable = `(() => {
		const rgb = (s) => { const m = s.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
		const lum = (c) => c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
		const known = new Map(), ground = (e) => {
			if (!e) return [255, 255, 255, 1];
			if (!known.has(e)) { const c = rgb(getComputedStyle(e).backgroundColor); known.set(e, c[3] > 0.99 ? c : ground(e.parentElement)); }
			return known.get(e);
		};
		const out = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) {
			const e = walk.currentNode.parentElement;
			if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("script, noscript, style, datalist, option")) continue;
			const a = lum(rgb(getComputedStyle(e).color)), b = lum(ground(e)), contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (contrast < 4.5) out.add(contrast.toFixed(2) + ": " + e.tagName + " " + e.className + " " + walk.currentNode.data.trim().slice(0, 30));
		}
		return [...out];
	})()`

	// unnamed lists what a screen reader has no words for, and what the keyboard cannot reach or leave.
	unnamed = `(() => {
		const out = [], text = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join("") || e.textContent || "").trim();
		for (const e of document.querySelectorAll("input:not([type=hidden]), select")) if (!e.labels?.length && !e.getAttribute("aria-label")) out.push("no label: " + e.outerHTML.slice(0, 80));
		for (const e of document.querySelectorAll("button, a, summary, [role=region], section, [role=img], progress, nav")) if (e.checkVisibility() && !text(e)) out.push("no name: " + e.outerHTML.slice(0, 80));
		for (const e of document.querySelectorAll("svg")) if (!e.closest("[aria-hidden=true]") && e.getAttribute("role") !== "img") out.push("neither hidden nor an image: " + e.outerHTML.slice(0, 80));
		for (const e of document.querySelectorAll("th")) if (!e.scope) out.push("a heading of nothing: " + e.outerHTML.slice(0, 80));
		for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) out.push("out of order: " + e.outerHTML.slice(0, 80));
		const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
		for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) out.push("twice: #" + id);
		return out;
	})()`

	// spilling lists what is wider than the window.
	spilling = `document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .skip"))
		.map((e) => e.tagName + "." + e.className + " " + Math.round(e.getBoundingClientRect().right))`
)

// TestPageInABrowser looks at the page as people do.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	top := overridden(t)
	s := newSetup(t, top)
	s.dress(top, 2)
	server := s.server(t)
	remember(server, top)
	start(t, server)
	tab, err := realbrowser.T(t).NewTab(realbrowser.Look{Width: 1400, Height: 1000})
	if err != nil {
		t.Fatal(err)
	}
	look := func(t *testing.T) looking { return looking{t, tab} }
	look(t).check(tab.Open("http://" + server.Addr() + "/ring"))

	t.Run("renders", func(t *testing.T) {
		l := look(t)
		l.await(`!document.querySelector("#ring").hidden && ` + colors + ` >= 4`) // two cache servers and two shards
		l.await(`document.querySelector("[data-chart=requests] path").getAttribute("d").length > 1000`)
		l.await(`document.querySelectorAll(".epoch").length >= 3 && document.querySelectorAll(".queues li").length === 2`)
		l.await(`document.querySelector("[data-chart=ratio] svg").getAttribute("aria-label").startsWith("Hit ratio of rows, last 15 minutes: now ")`)
		l.await(`document.querySelector("[aria-label='Move 3']").value === 69 && document.querySelector("[aria-label='Shards done']").max === 3`)
		l.findings("light", unreadable)
		l.findings("for screen readers", unnamed)
		l.quiet()
	})
	t.Run("by keyboard", func(t *testing.T) {
		l := look(t)
		l.check(tab.Press("Tab"))
		l.await(`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
		_, err := tab.Eval(`document.querySelector("[data-pick=cache][data-name=c2] button").focus()`)
		l.check(err)
		l.check(tab.Press(" "))
		l.await(`document.activeElement.getAttribute("aria-pressed") === "true" && !document.querySelector("#release").hidden`)
		l.check(tab.Press("Escape"))
		l.await(`document.activeElement.getAttribute("aria-pressed") === "false" && document.querySelector("#release").hidden`)
		l.quiet()
	})
	t.Run("looks a key up", func(t *testing.T) {
		l := look(t)
		_, err := tab.Eval(`document.querySelector("#key").focus()`)
		l.check(err)
		l.check(tab.Type("order:acme:1"))
		l.check(tab.Press("Enter"))
		l.await(`document.querySelector("#lookup dl")?.dataset.shardVnode === "42041" && document.querySelector("#lookup dl").dataset.cache === "c1"`)
		l.await(`document.querySelectorAll(".spot").length === 2 && document.querySelector(".centre").textContent.includes("shard s1")`)
		l.await(`location.search === "?key=order%3Aacme%3A1"`)
		l.quiet()
	})
	t.Run("previews", func(t *testing.T) {
		l := look(t)
		_, err := tab.Eval(`document.querySelector("#preview-form [name=name]").focus()`)
		l.check(err)
		l.check(tab.Type("c9"))
		l.check(tab.Press("Enter"))
		l.await(`document.querySelector("#preview").textContent.includes("ringside cache add c9 HOST:PORT --weight 1")`)
		l.await(`document.querySelector("#preview .proposed th").textContent === "c9 (new)" && Number(document.querySelector("#preview b").textContent.slice(0, 2)) === 25`)
		l.await(`document.querySelector("#lookup dl") !== null`) // the key stays
		l.await(colors + ` >= 7`)                                // what stays is paler than what moves
		_, err = tab.Eval(`document.querySelector("#preview-form [name=change]").value = "drain"; document.querySelector("#preview-form [name=name]").value = "c7"; document.querySelector("#preview-form").requestSubmit()`)
		l.check(err)
		l.await(`document.querySelector("#preview .bad").textContent === "there is no cache server c7"`)
		l.findings("to clear", `document.querySelector("#preview-form [type=reset]").checkVisibility() ? [] : ["it cannot be cleared"]`)
		_, err = tab.Eval(`document.querySelector("#preview-form [type=reset]").click()`)
		l.check(err)
		l.await(`document.querySelector("#preview").textContent.trim() === "" && location.search === "?key=order%3Aacme%3A1"`)
		l.quiet()
	})
	t.Run("follows a change", func(t *testing.T) {
		l := look(t)
		_, err := tab.Eval(`window.loadedOnce = true`)
		l.check(err)
		next, err := topology.DrainCache(top, "c1")
		l.check(err)
		s.deps.Topology.Publish(next)
		l.await(`document.querySelector("#status").textContent.startsWith("The ring has changed: epoch 8 has replaced epoch 7")`)
		l.await(`document.querySelector("[data-live=caches] .state.draining") !== null && window.loadedOnce`)
		l.await(`document.querySelector("#lookup dl").dataset.cache === "c2"`)
		l.quiet()
	})
	t.Run("in the dark", func(t *testing.T) {
		l := look(t)
		l.check(tab.Look(realbrowser.Look{Width: 1400, Height: 1000, Dark: true, Still: true}))
		l.await(`matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(document.body).backgroundColor === "rgb(18, 22, 28)"`)
		l.await(`getComputedStyle(document.querySelector("main")).transitionDuration === "0s"`)
		l.findings("dark", unreadable)
		l.quiet()
	})
	t.Run("of 200 servers, on a telephone", func(t *testing.T) {
		l := look(t)
		l.check(tab.Look(realbrowser.Look{Width: 390, Height: 800}))
		c := wideFleet(t, 200, 120).Content()
		c.Epoch = 9
		wide, err := topology.New(c)
		l.check(err)
		s.deps.Topology.Publish(wide)
		l.await(`document.querySelectorAll("[data-pick=cache] button").length === 200 && document.querySelectorAll("[data-pick=shard] button").length === 120`)
		l.await(colors + ` >= 150`)
		// One of so many is drawn larger: at least one section is full.
		l.await(`[...document.querySelectorAll("[data-name=s012] button")].map((b) => b.click()).length === 1 && document.querySelector("#release").textContent === "Only s012 is shown, enlarged: show all"`)
		l.await(colors + ` === 2`)
		l.check(tab.Press("Escape"))
		l.findings("wider than the window", spilling)
		l.findings("of 200", unreadable)
		l.quiet()
	})
}

// TestPageThatLostItsSidecar: what is shown is old, and says so; the sidecar is asked again, and found.
func TestPageThatLostItsSidecar(t *testing.T) {
	t.Parallel()
	s := newSetup(t, small(t))
	first := s.server(t)
	stop := start(t, first)
	tab, err := realbrowser.T(t).NewTab(realbrowser.Look{Width: 800, Height: 600})
	if err != nil {
		t.Fatal(err)
	}
	l := looking{t, tab}
	l.check(tab.Open("http://" + first.Addr() + "/ring"))
	l.await(`!document.querySelector("#ring").hidden`)
	l.quiet()
	l.check(stop())
	l.await(`document.body.classList.contains("lost") && document.title.startsWith("not reached") && document.querySelector("#status").textContent.includes("what is shown is old")`)
	s.cfg.Listen = first.Addr()
	start(t, s.server(t))
	l.await(`!document.body.classList.contains("lost") && document.title === "a1 · ring · ringside" && document.querySelector("#status").textContent.startsWith("The sidecar answers again")`)
	for _, complaint := range tab.Complaints() {
		if !strings.HasPrefix(complaint, "network: ") { // which is what this is about
			t.Errorf("on the page: %s", complaint)
		}
	}
}
