package proxy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/realredis"
	"ringside/resp"
)

// clientLine is what programs take apart; the last two fields came with Redis 7.2.
var clientLine = regexp.MustCompile(`^id=\d+ addr=\S+ laddr=\S+ fd=-?\d+ name=\S* age=\d+ idle=\d+ flags=[A-Za-z]+ db=0 sub=\d+ psub=\d+ ssub=\d+ multi=-?\d+ qbuf=\d+ ` +
	`qbuf-free=\d+ argv-mem=\d+ multi-mem=\d+ rbs=\d+ rbp=\d+ obl=\d+ oll=\d+ omem=\d+ tot-mem=\d+ events=\S+ cmd=\S+ user=default redir=-1 resp=[23] lib-name=\S* lib-ver=\S*$`)

// textOf returns a reply's text.
func textOf(t testing.TB, frame string) string {
	t.Helper()
	v, _, err := resp.Decode([]byte(frame))
	if err != nil || v.Kind == resp.KindError {
		t.Fatalf("%q: %v", frame, err)
	}
	return v.Text
}

func idOf(t testing.TB, w *wire) string {
	t.Helper()
	return strings.Trim(w.do("CLIENT ID"), ":\r\n")
}

func TestClientList(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.do("HELLO 3 SETNAME asker")
	w.do("CLIENT SETINFO LIB-NAME lib")
	var ids []string
	var others []*wire
	for range 5 { // on both loops
		o := b.dial()
		others = append(others, o)
		ids = append(ids, idOf(t, o))
	}
	others[0].do("SUBSCRIBE news")
	others[1].do("MULTI")
	others[1].do("SET a 1")
	lines := strings.Split(strings.TrimSuffix(textOf(t, w.do("CLIENT LIST")), "\n"), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines, want 6: %q", len(lines), lines)
	}
	for _, l := range lines {
		if !clientLine.MatchString(l) {
			t.Errorf("a line that programs cannot read: %q", l)
		}
	}
	for i, want := range []string{"name=asker .* flags=N .* cmd=client.list .* resp=3 lib-name=lib ", "flags=P .* sub=1 ", "flags=x .* multi=1 ", "flags=N "} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d is %q, want %s", i, lines[i], want)
		}
	}
	if info := strings.TrimSuffix(textOf(t, w.do("CLIENT INFO")), "\n"); !clientLine.MatchString(info) || !strings.Contains(info, "cmd=client|info") {
		t.Errorf("CLIENT INFO: %q", info)
	}
	for command, want := range map[string]int{
		"CLIENT LIST TYPE normal": 5, "CLIENT LIST TYPE pubsub": 1, "client list type MASTER": 0, "CLIENT LIST TYPE slave": 0, "CLIENT LIST ID " + ids[2] + " " + ids[3] + " 999": 2,
	} {
		if got := strings.Count(textOf(t, w.do(command)), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d", command, got, want)
		}
	}
	w.want("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'\r\n")
	w.want("CLIENT LIST ID x", "-ERR Invalid client ID\r\n")
	w.want("CLIENT LIST foo", "-ERR syntax error\r\n")
}

func TestClientKill(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	victim := func() (*wire, string) { v := b.dial(); return v, idOf(t, v) }
	one, id := victim()
	w.want("CLIENT KILL ID "+id, ":1\r\n")
	one.closed()
	two, _ := victim()
	w.want("CLIENT KILL "+two.conn.LocalAddr().String(), "+OK\r\n")
	two.closed()
	w.want("CLIENT KILL "+two.conn.LocalAddr().String(), "-ERR No such client\r\n")
	var all []*wire
	for range 4 {
		v, _ := victim()
		all = append(all, v)
	}
	all[3].do("SUBSCRIBE x")
	w.want("CLIENT KILL TYPE pubsub", ":1\r\n")
	all[3].closed()
	w.want("CLIENT KILL TYPE normal USER default LADDR "+b.addr, ":3\r\n")
	for _, v := range all[:3] {
		v.closed()
	}
	w.want("CLIENT KILL ID "+idOf(t, w), ":0\r\n") // oneself is spared
	for command, want := range map[string]string{
		"CLIENT KILL TYPE foo": "-ERR Unknown client type 'foo'\r\n", "CLIENT KILL SKIPME maybe": "-ERR syntax error\r\n", "CLIENT KILL foo bar": "-ERR syntax error\r\n",
		"CLIENT KILL ID abc": "-ERR client-id should be greater than 0\r\n", "CLIENT KILL USER foo": "-ERR No such user 'foo'\r\n", "CLIENT KILL ID 1 ADDR": "-ERR syntax error\r\n",
	} {
		w.want(command, want)
	}
	w.send("CLIENT KILL ID "+idOf(t, w)+" SKIPME no", "PING")
	if got := w.reply(); got != ":1\r\n" {
		t.Errorf("killing oneself: %q", got)
	}
	w = b.dial()
	w.want("CLIENT KILL "+w.conn.LocalAddr().String(), "+OK\r\n")
	w.closed()
}

func TestClientReply(t *testing.T) {
	b := start(t, 3, nil)
	direct := realredis.T(t)
	for i := range 4 {
		apart, ringside := i%2 == 0, i < 2
		w := dial(t, direct.Addr()) // Redis does the same
		if ringside {
			w = b.dial()
		}
		send := func(commands ...string) {
			if !apart {
				w.send(commands...)
				return
			}
			for _, c := range commands { // each comes alone, perhaps
				w.send(c)
				time.Sleep(2 * time.Millisecond)
			}
		}
		expect := func(want ...string) {
			t.Helper()
			for i, x := range want {
				if got := w.reply(); got != x {
					t.Fatalf("ringside %v, apart %v: reply %d: %q, want %q", ringside, apart, i, got, x)
				}
			}
		}
		send("SET a 1", "CLIENT REPLY OFF", "SET a 2", "GET a", "PING", "NOSUCH", "MGET a b c", "FLUSHALL", "SET a 3", "SET user:1 '{\"name\":\"x\"}'", "SET user:1 '{\"name\":\"y\"}'", "CLIENT REPLY ON", "GET a")
		expect("+OK\r\n", "+OK\r\n", bulk("3"))
		if ringside {
			w.want("GET user:1", bulk(`{"name":"y"}`))
		}
		send("CLIENT REPLY SKIP", "GET a", "PING", "CLIENT REPLY SKIP", "PING", "GET a")
		expect("+PONG\r\n", bulk("3"))
		send("CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "GET a", "ECHO 1", "CLIENT REPLY SKIP", "MGET a b c", "ECHO 2", "CLIENT REPLY SKIP", "NOSUCH", "ECHO 3", "CLIENT REPLY SKIP", "KEYS *", "ECHO 4")
		expect(bulk("1"), bulk("2"), bulk("3"), bulk("4"))
		send("CLIENT REPLY SKIP", "CLIENT REPLY ON", "ECHO 5", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "GET a", "ECHO 6", "RESET")
		expect("+OK\r\n", bulk("5"), "+RESET\r\n")
		send("CLIENT REPLY MAYBE", "CLIENT REPLY SKIP", "CLIENT REPLY NO", "ECHO 7")
		expect("-ERR syntax error\r\n", bulk("7"))
		if ringside { // Redis never ends such a connection
			began := time.Now()
			send("CLIENT REPLY OFF", "PING", "QUIT")
			if w.closed(); time.Since(began) > 30*time.Second {
				t.Error("the connection was not closed")
			}
		}
	}
}

func TestClientPause(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	var others []*wire
	for range 4 {
		others = append(others, b.dial())
	}
	w.want("CLIENT PAUSE 60000 WRITE", "+OK\r\n")
	for _, o := range others {
		o.want("GET a", "$-1\r\n") // reads go on
		o.send("SET a 1", "GET a")
	}
	late := b.dial()
	late.send("EVAL 'return 1' 1 a")
	time.Sleep(50 * time.Millisecond)
	for _, o := range append(others, late) {
		if err := o.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := o.conn.Read(make([]byte, 10)); n > 0 || err == nil {
			t.Fatalf("a write went on during the pause: %d, %v", n, err)
		}
	}
	w.want("GET a", "$-1\r\n")
	w.want("CLIENT UNPAUSE", "+OK\r\n")
	for _, o := range others {
		if got := o.reply() + o.reply(); got != "+OK\r\n"+bulk("1") {
			t.Errorf("after the pause: %q", got)
		}
	}
	if got := late.reply(); got != ":1\r\n" {
		t.Errorf("after the pause: %q", got)
	}
	began := time.Now()
	w.want("CLIENT PAUSE 200", "+OK\r\n")
	w.send("PING")
	late = b.dial()
	late.send("PING")
	for _, x := range []*wire{w, late} {
		if got := x.reply(); got != "+PONG\r\n" || time.Since(began) < 190*time.Millisecond {
			t.Errorf("%q after %v, want +PONG after 200 ms", got, time.Since(began))
		}
	}
	w.want("CLIENT UNPAUSE", "+OK\r\n")
	for command, want := range map[string]string{
		"CLIENT PAUSE x": "-ERR timeout is not an integer or out of range\r\n", "CLIENT PAUSE -1": "-ERR timeout is negative\r\n",
		"CLIENT PAUSE 1 foo": "-ERR CLIENT PAUSE mode must be WRITE or ALL\r\n",
	} {
		w.want(command, want)
	}
}

func TestClientUnblock(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	for mode, want := range map[string]string{"": "*-1\r\n", " TIMEOUT": "*-1\r\n", " error": "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"} {
		for range 2 { // on both loops
			waiting := b.dial()
			id := idOf(t, waiting)
			waiting.send("BLPOP nothing 0")
			for try := 0; ; try++ {
				if got := w.do("CLIENT UNBLOCK " + id + mode); got == ":1\r\n" {
					break
				} else if got != ":0\r\n" || try > 500 {
					t.Fatalf("CLIENT UNBLOCK%s: %q", mode, got)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if got := waiting.reply(); got != want {
				t.Errorf("unblocked%s: %q, want %q", mode, got, want)
			}
			waiting.want("PING", "+PONG\r\n")
			w.want("CLIENT UNBLOCK "+id, ":0\r\n")
		}
	}
	w.want("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range\r\n")
	w.want("CLIENT UNBLOCK 1 now", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n")
}

func TestSlowlogAndLatency(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.SlowFrom = 30 * time.Millisecond })
	w := b.dial()
	w.do("HELLO 2 SETNAME slow")
	slow := func(n int) {
		for range n {
			w.do("EVAL 'local t=redis.call(\"TIME\") local from=t[1]*1000000+t[2] repeat t=redis.call(\"TIME\") until t[1]*1000000+t[2]-from>40000 return 1' 1 a")
		}
	}
	w.do("GET a")
	w.want("SLOWLOG RESET", "+OK\r\n")
	w.want("LATENCY RESET", w.do("LATENCY RESET"))
	slow(3)
	w.want("SLOWLOG LEN", ":3\r\n")
	v, _, err := resp.Decode([]byte(w.do("SLOWLOG GET 2")))
	if err != nil || len(v.Elems) != 2 || len(v.Elems[0].Elems) != 6 {
		t.Fatalf("SLOWLOG GET 2: %+v, %v", v, err)
	}
	e := v.Elems[0].Elems
	if e[0].Int != v.Elems[1].Elems[0].Int+1 || time.Since(time.Unix(e[1].Int, 0)) > time.Minute || e[2].Int < 40000 || e[2].Int > 60e6 || e[3].Elems[0].Text != "EVAL" ||
		e[4].Text != w.conn.LocalAddr().String() || e[5].Text != "slow" {
		t.Errorf("entry: %+v", e)
	}
	v, _, err = resp.Decode([]byte(w.do("LATENCY LATEST")))
	if err != nil || len(v.Elems) != 1 || v.Elems[0].Elems[0].Text != "command" || v.Elems[0].Elems[2].Int < 40 || v.Elems[0].Elems[3].Int < v.Elems[0].Elems[2].Int {
		t.Errorf("LATENCY LATEST: %+v, %v", v, err)
	}
	if v, _, _ = resp.Decode([]byte(w.do("LATENCY HISTORY command"))); len(v.Elems) != 3 || len(v.Elems[0].Elems) != 2 {
		t.Errorf("LATENCY HISTORY: %+v", v)
	}
	w.want("LATENCY HISTORY fork", "*0\r\n")
	if got := w.do("LATENCY DOCTOR"); !strings.Contains(got, "3 took 30ms or longer") {
		t.Errorf("LATENCY DOCTOR: %q", got)
	}
	w.want("LATENCY RESET fork", ":0\r\n")
	w.want("LATENCY RESET", ":1\r\n")
	w.want("LATENCY LATEST", "*0\r\n")
	w.want("SLOWLOG LEN", ":3\r\n")
	b.rows.mu.Lock()
	b.rows.read = func(string) *Row { time.Sleep(50 * time.Millisecond); return nil }
	b.rows.mu.Unlock()
	w.do("GET user:77")
	if got := w.do("SLOWLOG GET 1"); !strings.Contains(got, bulk("GET")+bulk("user:77")) {
		t.Errorf("a slow row: %q", got)
	}
	w.send("BLPOP nothing 0.1")
	w.reply()
	w.want("SLOWLOG LEN", ":4\r\n") // waiting for data is not slow
	w.want("SLOWLOG RESET", "+OK\r\n")
	w.want("SLOWLOG GET", "*0\r\n")
	w.want("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1\r\n")
	w.want("SLOWLOG GET x", "-ERR count should be greater than or equal to -1\r\n")
}

func TestWhatIsNotOffered(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	for _, c := range []string{
		"MONITOR", "DEBUG SLEEP 0", "REPLICAOF NO ONE", "SLAVEOF a 1", "SYNC", "PSYNC ? -1", "FAILOVER", "WAIT 0 0", "SHUTDOWN", "SAVE", "BGSAVE", "BGREWRITEAOF", "SWAPDB 0 1",
		"MOVE a 1", "MIGRATE 127.0.0.1 1 a 0 1", "MODULE LIST", "ACL LIST", "ACL SETUSER x", "CONFIG SET save x", "CONFIG REWRITE", "CONFIG RESETSTAT", "MEMORY STATS", "MEMORY DOCTOR",
		"MEMORY PURGE", "LATENCY HISTOGRAM", "LATENCY GRAPH command", "CLIENT TRACKING ON", "SCRIPT DEBUG YES", "PFSELFTEST", "PFDEBUG ENCODING a",
	} {
		got := w.do(c)
		if name, _, _ := strings.Cut(c, " "); !strings.HasPrefix(got, "-ERR "+name) || !strings.Contains(got, " is not offered by ringside: ") {
			t.Errorf("%s: %q, want a reason", c, got)
		}
	}
	w.want("SET {c}a 1", "+OK\r\n")
	for command, want := range map[string]string{
		"COPY {c}a {c}b DB 1": "-ERR DB index is out of range\r\n", "COPY {c}a {c}b DB x": "-ERR value is not an integer or out of range\r\n",
		"COPY {c}a {c}b REPLACE DB 0": ":1\r\n", "COPY {c}a {c}d REPLACE": ":1\r\n", "CLIENT TRACKING OFF": "+OK\r\n", "CLIENT TRACKING x": "-ERR syntax error\r\n",
		"CLIENT GETREDIR": ":-1\r\n", "CLIENT NO-EVICT ON": "+OK\r\n", "ACL WHOAMI": bulk("default"), "ACL USERS": "*1\r\n" + bulk("default"),
		"CLIENT TRACKINGINFO":  "*6\r\n" + bulk("flags") + "*1\r\n" + bulk("off") + bulk("redirect") + ":-1\r\n" + bulk("prefixes") + "*0\r\n",
		"OBJECT ENCODING {c}a": bulk("int"),
	} {
		w.want(command, want)
	}
	w.want("MULTI", "+OK\r\n")
	w.want("COPY {c}a {c}z DB 1", "-ERR DB index is out of range\r\n")
	w.want("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
	if got := w.do("MEMORY USAGE {c}a"); got[0] != ':' {
		t.Errorf("MEMORY USAGE: %q", got)
	}
	for _, c := range []string{"LASTSAVE", "LOLWUT", "ACL CAT", "CLIENT HELP", "SLOWLOG HELP", "OBJECT HELP", "MEMORY HELP", "SCRIPT HELP", "FUNCTION HELP"} {
		if got := w.do(c); strings.HasPrefix(got, "-") {
			t.Errorf("%s: %q", c, got)
		}
	}
}

// COMMAND's subcommands answer as those of one Redis 7.0.
func TestCommandAsksAnswerAsRedis(t *testing.T) {
	b := start(t, 1, nil)
	direct := realredis.T(t)
	if !strings.Contains(textOf(t, dial(t, direct.Addr()).do("INFO server")), "redis_version:7.0.") {
		t.Log("the texts are of Redis 7.0, the server is not: nothing to compare")
		return
	}
	for proto := 2; proto <= 3; proto++ {
		ours, theirs := b.dial(), dial(t, direct.Addr())
		for _, w := range []*wire{ours, theirs} {
			w.do("HELLO " + string(rune('0'+proto)))
		}
		for _, c := range []string{
			"COMMAND GETKEYSANDFLAGS SET a b", "COMMAND GETKEYSANDFLAGS SET a b GET", "COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 0",
			"COMMAND GETKEYSANDFLAGS BITFIELD a SET u8 0 1", "COMMAND GETKEYSANDFLAGS SORT a STORE b", "COMMAND GETKEYSANDFLAGS SORT a", "COMMAND GETKEYSANDFLAGS LMPOP 2 a b LEFT",
			"COMMAND GETKEYSANDFLAGS EVAL x 1 a", "COMMAND GETKEYSANDFLAGS MSET a 1 b 2", "COMMAND GETKEYSANDFLAGS ZUNIONSTORE d 2 a b", "COMMAND GETKEYSANDFLAGS GEORADIUS a 1 1 1 m STORE b",
			"COMMAND GETKEYSANDFLAGS XREAD STREAMS a b 0 0", "COMMAND GETKEYSANDFLAGS PING x", "COMMAND GETKEYSANDFLAGS NOSUCH x", "COMMAND GETKEYSANDFLAGS GET a b", "COMMAND GETKEYSANDFLAGS PFCOUNT a b",
			"COMMAND GETKEYSANDFLAGS RENAME a b", "COMMAND GETKEYSANDFLAGS MIGRATE h 1 a 0 1", "COMMAND GETKEYSANDFLAGS OBJECT ENCODING a", "COMMAND GETKEYS LMPOP 2 a b LEFT",
			"COMMAND LIST FILTERBY ACLCAT nosuch", "COMMAND LIST FILTERBY MODULE x", "COMMAND LIST FILTERBY foo bar", "COMMAND LIST FILTERBY PATTERN",
			"COMMAND LIST FILTERBY PATTERN xr*", "COMMAND LIST FILTERBY ACLCAT hyperloglog", "COMMAND LIST FILTERBY ACLCAT scripting", "COMMAND LIST FILTERBY PATTERN *|help",
			"COMMAND DOCS get", "COMMAND DOCS set zadd nosuch", "COMMAND DOCS nosuch", "COMMAND DOCS",
		} {
			got, want := ours.do(c), theirs.do(c)
			if got == want {
				continue
			}
			g, _, err1 := resp.Decode([]byte(got))
			v, _, err2 := resp.Decode([]byte(want))
			if err1 != nil || err2 != nil || !strings.HasPrefix(c, "COMMAND LIST") && c != "COMMAND DOCS" || !slices.Equal(leaves(g, nil), leaves(v, nil)) {
				t.Errorf("RESP%d %s:\n got %.600q\nwant %.600q", proto, c, got, want)
			}
		}
	}
}
