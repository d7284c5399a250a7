package systemtest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A configuration that cannot work is one line for each wrong place, file:line first, that says what is wrong, and exit 1.
func TestBadConfigurationIsOneLine(t *testing.T) {
	c := shared(t)
	ports := freePorts(t, 4)
	lines := []string{
		"name: bad",
		fmt.Sprintf("data_dir: %q", t.TempDir()),
		fmt.Sprintf("redis: { listen: %q }", local(ports[0])),
		fmt.Sprintf("admin: { listen: %q }", local(ports[1])),
		fmt.Sprintf("gossip: { listen: %q, cluster: bad }", local(ports[2])),
		fmt.Sprintf("catalog: { dsn: %q }", c.Catalog()),
		"caches:",
		fmt.Sprintf("  - { name: c1, addr: %q }", c.Caches[0].Addr()),
		"shards:",
		fmt.Sprintf("  - { name: s1, dsn: %q }", c.Shards[0].DSN()),
		fmt.Sprintf("  - { name: s2, dsn: %q }", c.Shards[1].DSN()),
		"keyspaces:",
		`  - { name: user, pattern: "user:{id:int}", table: users, ttl: 1m }`,
	}
	for _, x := range []struct {
		name string
		line int    // that is replaced, from 1
		text string // in its place
		at   int    // the line that is named
		want string
	}{
		{"unknown key", 3, fmt.Sprintf("redis: { listen: %q, pasword: x }", local(ports[0])), 3, `pasword`},
		{"unknown section", 1, "nmae: bad", 1, `nmae`},
		{"duplicate name", 11, fmt.Sprintf("  - { name: s1, dsn: %q }", c.Shards[1].DSN()), 11, `s1`},
		{"bad pattern", 13, `  - { name: user, pattern: "user:{id", table: users, ttl: 1m }`, 13, `pattern has a \{ without`},
		{"unreachable catalog", 6, fmt.Sprintf(`catalog: { dsn: "postgres://ringside@%s/app" }`, local(ports[3])), 6, `catalog.*refused`},
		{"table without the key column", 13, `  - { name: user, pattern: "user:{number:int}", table: users, ttl: 1m }`, 13, `number`},
		{"missing table", 13, `  - { name: user, pattern: "user:{id:int}", table: nosuch, ttl: 1m }`, 13, `nosuch`},
		{"no YAML", 7, "caches: [", 7, `not YAML`},
	} {
		t.Run(x.name, func(t *testing.T) {
			text := append([]string(nil), lines...)
			text[x.line-1] = x.text
			file := configFile(t, strings.Join(text, "\n")+"\n")
			p := start(t, "serve", "-c", file)
			if code := exit(t, p, time.Minute); code != 1 {
				t.Errorf("exit %d", code)
			}
			wantLine(t, p.Output(), file, x.at, x.want)
		})
	}
	t.Run("swapped shards", func(t *testing.T) {
		text := append([]string(nil), lines...)
		text[9], text[10] = fmt.Sprintf("  - { name: s1, dsn: %q }", c.Shards[1].DSN()), fmt.Sprintf("  - { name: s2, dsn: %q }", c.Shards[0].DSN())
		file := configFile(t, strings.Join(text, "\n")+"\n")
		p := start(t, "serve", "-c", file)
		if code := exit(t, p, time.Minute); code != 1 {
			t.Errorf("exit %d", code)
		}
		want := file + ":10:22: shard s1: its dsn leads to the database of shard s2 (are two dsns swapped?)\n" +
			file + ":11:22: shard s2: its dsn leads to the database of shard s1 (are two dsns swapped?)\n"
		if got := said(p.Output()); got != want {
			t.Errorf("printed\n%swant\n%s", got, want)
		}
	})
	t.Run("missing file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "nosuch.yaml")
		p := start(t, "serve", "-c", file)
		if code := exit(t, p, time.Minute); code != 1 {
			t.Errorf("exit %d", code)
		}
		if out := p.Output(); strings.Count(out, "\n") != 1 || !strings.Contains(out, file) {
			t.Errorf("printed %q", out)
		}
	})
}

// wantLine fails unless the output, warnings aside, is one line that begins with file and line and says what is wanted. line 0: any.
func wantLine(t *testing.T, output, file string, line int, want string) {
	t.Helper()
	at := fmt.Sprintf("%d:", line)
	if line == 0 {
		at = `\d+:`
	}
	if !regexp.MustCompile("^" + regexp.QuoteMeta(file) + ":" + at + ".*" + want + ".*\n$").MatchString(said(output)) {
		t.Errorf("want one line, %s:%s and %q in it; it printed:\n%s", file, at, want, output)
		return
	}
	t.Log(said(output))
}

// said is what a program printed besides its log.
func said(output string) string {
	var b strings.Builder
	for l := range strings.Lines(output) {
		if !strings.HasPrefix(l, "time=") {
			b.WriteString(l)
		}
	}
	return b.String()
}
