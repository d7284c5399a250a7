package proxy

import (
	"bytes"
	"strings"
	"testing"

	"ringside/resp"
)

// What each client library sends when it connects, and what it cannot do without in the answers. A step is one write: what is in it goes
// out together, as the library pipelines it.
type handshake struct {
	client string
	proto  int
	steps  [][]exchange
}

// exchange is one command and what its reply must be.
type exchange struct {
	send string
	want check
}

type check func(v resp.Value) bool

func is(text string) check        { return func(v resp.Value) bool { return !isFailure(v) && v.Text == text } }
func isFailure(v resp.Value) bool { return v.Kind == resp.KindError || v.Kind == resp.KindBulkError }

// tolerated: an answer or an error, but one reply.
func tolerated(resp.Value) bool { return true }

// isDocumentation checks that COMMAND DOCS tells what redis-cli shows of a command.
func isDocumentation(v resp.Value) bool {
	get := pairsOf(pairsOf(v)["get"])
	return get["summary"].Text != "" && len(get["arguments"].Elems) == 1
}

func failsWith(prefix string) check {
	return func(v resp.Value) bool { return isFailure(v) && strings.HasPrefix(v.Text, prefix) }
}

func isID(v resp.Value) bool { return v.Kind == resp.KindInt && v.Int > 0 }

// pairsOf returns a map, or a flat array as RESP2 has it, as a map.
func pairsOf(v resp.Value) map[string]resp.Value {
	m := map[string]resp.Value{}
	for i := 0; i+1 < len(v.Elems); i += 2 {
		m[v.Elems[i].Text] = v.Elems[i+1]
	}
	return m
}

// greets checks the reply to HELLO as the strictest clients do: lettuce casts the id and the texts, redis-py compares proto.
func greets(proto int64) check {
	return func(v resp.Value) bool {
		kind := resp.KindMap
		if proto == 2 {
			kind = resp.KindArray
		}
		m := pairsOf(v)
		return v.Kind == kind && m["proto"].Int == proto && m["id"].Kind == resp.KindInt && m["id"].Int > 0 &&
			m["server"].Text == "redis" && m["version"].Text == "7.0.15" && m["mode"].Text == "standalone" && m["role"].Text == "master" &&
			m["modules"].Kind == resp.KindArray
	}
}

// configured checks CONFIG GET of one setting.
func configured(name, value string) check {
	return func(v resp.Value) bool { return len(v.Elems) == 2 && pairsOf(v)[name].Text == value }
}

// tells checks that INFO has the lines.
func tells(lines ...string) check {
	return func(v resp.Value) bool {
		for _, l := range lines {
			if !strings.Contains("\r\n"+v.Text, "\r\n"+l) {
				return false
			}
		}
		return true
	}
}

var ready = tells("redis_version:7.", "loading:0", "role:master", "redis_mode:standalone")

func isCommandTable(v resp.Value) bool {
	return v.Kind == resp.KindArray && len(v.Elems) > 200 && len(v.Elems[0].Elems) == 10
}

// handshakes returns the sequences; auth is what goes into HELLO and pass the AUTH that comes before others, if a password is set.
func handshakes(withPassword bool) []handshake {
	auth := ""
	var pass []exchange
	if withPassword {
		auth = " AUTH default secret"
		pass = []exchange{{"AUTH secret", is("OK")}}
	}
	one := func(send string, want check) []exchange { return []exchange{{send, want}} }
	maint := failsWith("ERR unknown subcommand")
	all := []handshake{
		{"redis-py 8", 3, [][]exchange{
			one("HELLO 3"+auth, greets(3)), one("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip", maint), one("CLIENT SETNAME app", is("OK")),
			{{"CLIENT SETINFO LIB-NAME redis-py", is("OK")}, {"CLIENT SETINFO LIB-VER 8.0.0", is("OK")}}, one("SELECT 0", is("OK")), one("PING", is("PONG")),
		}},
		{"go-redis", 3, [][]exchange{
			one("HELLO 3"+auth+" SETNAME app", greets(3)), {{"SELECT 0", is("OK")}, {"READONLY", is("OK")}, {"CLIENT SETNAME app", is("OK")}},
			one("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip", maint),
			{{"CLIENT SETINFO LIB-NAME go-redis(,go1.26)", is("OK")}, {"CLIENT SETINFO LIB-VER 9.23.0", is("OK")}}, one("PING", is("PONG")),
		}},
		{"node-redis 6", 3, [][]exchange{{
			{"HELLO 3" + auth + " SETNAME app", greets(3)}, {"SELECT 0", is("OK")}, {"READONLY", is("OK")}, {"CLIENT SETINFO LIB-VER 6.2.1", is("OK")},
			{"CLIENT SETINFO LIB-NAME node-redis", is("OK")}, {"CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip", maint},
		}}},
		{"ioredis 6", 3, [][]exchange{{
			{"HELLO 3" + auth, greets(3)}, {"SELECT 0", is("OK")}, {"CLIENT SETNAME app", is("OK")}, {"READONLY", is("OK")},
			{"CLIENT SETINFO LIB-VER 6.0.0", is("OK")}, {"CLIENT SETINFO LIB-NAME ioredis", is("OK")},
		}, one("INFO", ready)}},
		{"jedis 8", 3, [][]exchange{
			one("HELLO 3"+auth, greets(3)), {{"CLIENT SETNAME app", is("OK")}, {"CLIENT SETINFO LIB-NAME jedis", is("OK")}, {"CLIENT SETINFO LIB-VER 8.0.0", is("OK")}},
			one("SELECT 0", is("OK")), one("PING", is("PONG")),
		}},
		{"lettuce 7", 3, [][]exchange{
			one("HELLO 3"+auth+" SETNAME app", greets(3)), {{"SELECT 0", is("OK")}, {"READONLY", is("OK")}},
			{{"CLIENT SETINFO lib-name Lettuce", is("OK")}, {"CLIENT SETINFO lib-ver 7.8.0", is("OK")}, {"CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type none", maint}},
		}},
		{"rueidis without tracking", 3, [][]exchange{{
			{"HELLO 3" + auth + " SETNAME app", greets(3)}, {"CLIENT SETINFO LIB-NAME rueidis", is("OK")}, {"CLIENT SETINFO LIB-VER 1.0.37", is("OK")},
		}}},
		{"rueidis with tracking", 3, [][]exchange{{
			{"HELLO 3" + auth, greets(3)}, {"CLIENT TRACKING ON OPTIN", failsWith("ERR ")},
		}}},
	}
	for _, proto := range []int{2, 3} {
		version := map[int]string{2: "2", 3: "3"}[proto]
		exchanges := append(append([]exchange{}, pass...), exchange{"HELLO " + version, greets(int64(proto))},
			exchange{"CLIENT SETNAME app", is("OK")}, exchange{"CLIENT SETINFO lib-name SE.Redis", is("OK")}, exchange{"CLIENT SETINFO lib-ver 3.1.0", is("OK")},
			exchange{"CLIENT ID", isID})
		tracer := exchange{"ECHO '\x01\x02\r\n\xff tracer'", is("\x01\x02\r\n\xff tracer")}
		all = append(all,
			handshake{"StackExchange.Redis", proto, [][]exchange{exchanges, {
				{"CONFIG GET timeout", configured("timeout", "0")}, {"CONFIG GET replica-read-only", configured("replica-read-only", "yes")},
				{"CONFIG GET slave-read-only", configured("slave-read-only", "yes")},
				{"CONFIG GET databases", configured("databases", "1")}, {"SENTINEL MASTERS", failsWith("ERR unknown command")},
				{"INFO replication", tells("role:master")}, {"INFO server", tells("redis_version:7.")}, {"CLUSTER NODES", failsWith("ERR This instance has cluster support disabled")},
				{"GET __Booksleeve_TieBreak", func(v resp.Value) bool { return v.Null }}, tracer,
			}}},
			handshake{"StackExchange.Redis, second connection", proto, [][]exchange{exchanges, {tracer, {"SUBSCRIBE __Booksleeve_MasterChanged", about("subscribe")}},
				// It listens for good; what follows here is about other connections.
				one("UNSUBSCRIBE __Booksleeve_MasterChanged", about("unsubscribe"))}},
			handshake{"memtier", proto, [][]exchange{append(append([]exchange{}, pass...),
				exchange{"SELECT 0", is("OK")}, exchange{"HELLO " + version, greets(int64(proto))}, exchange{"CLUSTER SLOTS", failsWith("ERR This instance")})}},
		)
	}
	all = append(all,
		handshake{"redis-cli", 2, [][]exchange{pass, one("SELECT 0", is("OK")), one("COMMAND DOCS", isDocumentation), one("COMMAND", isCommandTable), one("INFO SERVER", tells("redis_version:7."))}},
		handshake{"redis-cli -3", 3, [][]exchange{pass, one("SELECT 0", is("OK")), one("HELLO 3", greets(3)), one("COMMAND DOCS", isDocumentation), one("COMMAND", isCommandTable)}},
		handshake{"redis-benchmark", 2, [][]exchange{append(append([]exchange{}, pass...), exchange{"CONFIG GET save", configured("save", "")}, exchange{"CONFIG GET appendonly", configured("appendonly", "no")})}},
		handshake{"redis-benchmark -3", 3, [][]exchange{append(append([]exchange{}, pass...), exchange{"SELECT 0", is("OK")}, exchange{"HELLO 3", greets(3)}, exchange{"PING", is("PONG")})}},
		// What falls back to RESP2.
		handshake{"jedis 8 to RESP2", 2, [][]exchange{one("HELLO 4", failsWith("NOPROTO")), append(append([]exchange{}, pass...), exchange{"HELLO 2", greets(2)})}},
		handshake{"lettuce 7 with RESP2", 2, [][]exchange{pass, one("PING", is("PONG"))}},
	)
	return all
}

// about wants the reply to a subscription.
func about(word string) func(resp.Value) bool {
	return func(v resp.Value) bool { return len(v.Elems) == 3 && v.Elems[0].Text == word }
}

func TestHandshakes(t *testing.T) {
	for _, withPassword := range []bool{false, true} {
		name := "open"
		if withPassword {
			name = "with password"
		}
		t.Run(name, func(t *testing.T) {
			b := start(t, 2, func(c *Config) {
				if withPassword {
					c.Password = "secret"
				}
			})
			for _, h := range handshakes(withPassword) {
				t.Run(h.client, func(t *testing.T) { h.run(t, dial(t, b.addr)) })
			}
			if n := b.rows.asked(); n != 0 {
				t.Errorf("the probes of client libraries led to %d reads of rows", n)
			}
		})
	}
}

func (h handshake) run(t *testing.T, w *wire) {
	spoken := 2
	step := func(exchanges []exchange) {
		var out []string
		for _, e := range exchanges {
			out = append(out, e.send)
		}
		w.send(out...)
		for _, e := range exchanges {
			frame := w.reply()
			v, n, err := resp.Decode([]byte(frame))
			if err != nil || n != len(frame) || !e.want(v) {
				t.Errorf("%s: %.300q", e.send, frame)
			}
			if strings.HasPrefix(e.send, "HELLO") && !isFailure(v) {
				spoken = h.proto
			}
			checkProtocol(t, e.send, frame, spoken)
		}
	}
	for _, s := range h.steps {
		step(s)
	}
	// What the application does then.
	step([]exchange{
		{"SET {h}k v", is("OK")}, {"GET {h}k", is("v")}, {"GET {h}none", func(v resp.Value) bool { return v.Null }},
		{"MGET {h}k other none", func(v resp.Value) bool {
			return len(v.Elems) == 3 && v.Elems[0].Text == "v" && v.Elems[1].Null && v.Elems[2].Null
		}},
		{"DEL {h}hash", tolerated}, {"HSET {h}hash f 1", tolerated}, {"HGETALL {h}hash", func(v resp.Value) bool { return pairsOf(v)["f"].Text == "1" }},
		{"HMGET {h}hash f none", func(v resp.Value) bool { return len(v.Elems) == 2 && v.Elems[1].Null }}, {"NOSUCHCOMMAND", failsWith("ERR unknown command")},
		{"CLIENT GETNAME", tolerated}, {"CLIENT INFO", tells("id=")}, {"INFO", ready}, {"CONFIG GET max*", tolerated}, {"RING INFO", tolerated}, {"LPOP {h}list", tolerated},
		{"PING", is("PONG")},
	})
}

// checkProtocol fails when a reply has a null of the other protocol, at any depth, or a type that RESP2 lacks.
func checkProtocol(t testing.TB, command, frame string, proto int) {
	t.Helper()
	if proto == 3 {
		if clean := resp.AppendNulls3(nil, []byte(frame)); !bytes.Equal(clean, []byte(frame)) {
			t.Errorf("%s: a null of RESP2 on a connection that speaks RESP3: %.200q", command, frame)
		}
		return
	}
	v, _, err := resp.Decode([]byte(frame))
	if err != nil || !onlyRESP2(v) {
		t.Errorf("%s: RESP3 on a connection that speaks RESP2: %.200q", command, frame)
	}
}

func onlyRESP2(v resp.Value) bool {
	switch v.Kind {
	case resp.KindSimple, resp.KindError, resp.KindInt, resp.KindBulk, resp.KindArray:
	default:
		return false
	}
	for _, e := range v.Elems {
		if !onlyRESP2(e) {
			return false
		}
	}
	return len(v.Attrs) == 0
}

func TestAuthentication(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.Password = "secret" })
	b.rows.set("user:1", "{}")
	const noAuth = "-NOAUTH Authentication required.\r\n"
	w := b.dial()
	for _, c := range [][2]string{
		{"GET k", noAuth}, {"GET user:1", noAuth}, {"PING", noAuth}, {"RING NODES", noAuth}, {"ring lookup k", noAuth}, {"INFO", noAuth}, {"CONFIG GET save", noAuth},
		{"NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"},
		{"HELLO 3", "-" + string(errHelloAuth) + "\r\n"},
		{"AUTH", "-ERR wrong number of arguments for 'auth' command\r\n"},
		{"AUTH wrong", "-" + string(errWrongPass) + "\r\n"},
		{"AUTH secret1", "-" + string(errWrongPass) + "\r\n"},
		{"AUTH ''", "-" + string(errWrongPass) + "\r\n"},
		{"AUTH other secret", "-" + string(errWrongPass) + "\r\n"},
		{"AUTH default secret more", "-ERR syntax error\r\n"},
		{"HELLO 3 AUTH default wrong", "-" + string(errWrongPass) + "\r\n"},
		{"HELLO 3 AUTH default secret NOSUCH", "-ERR Syntax error in HELLO option 'NOSUCH'\r\n"},
		{"HELLO 3 AUTH default secret SETNAME 'a b'", "-" + string(errBadName) + "\r\n"},
		{"PING", noAuth}, // none of them has let us in, nor changed the protocol
		{"AUTH default secret", "+OK\r\n"},
		{"CLIENT GETNAME", "$-1\r\n"},
		{"AUTH wrong", "-" + string(errWrongPass) + "\r\n"},
		{"PING", "+PONG\r\n"}, // as in Redis: a failed AUTH does not lock out
		{"HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"},
		{"HELLO 1", "-NOPROTO unsupported protocol version\r\n"},
		{"HELLO 4", "-NOPROTO unsupported protocol version\r\n"},
		{"GET none", "$-1\r\n"},
		{"RESET", "+RESET\r\n"},
		{"GET k", noAuth},
	} {
		w.want(c[0], c[1])
	}
	w.send("AUTH secret", "GET none", "HELLO 3 SETNAME me", "GET none", "CLIENT GETNAME", "HELLO", "RESET", "AUTH secret", "GET none", "CLIENT GETNAME", "QUIT")
	for _, want := range []string{"+OK\r\n", "$-1\r\n", "%7\r\n", "_\r\n", bulk("me"), "%7\r\n", "+RESET\r\n", "+OK\r\n", "$-1\r\n", "$-1\r\n", "+OK\r\n"} {
		if got := w.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	w.closed()

	// Before the password nothing large is read.
	for _, big := range []string{"*11\r\n", "*2\r\n$4\r\nAUTH\r\n$16385\r\n"} {
		w := b.dial()
		w.write(big)
		if got := w.rest(); !strings.HasPrefix(got, "-ERR Protocol error: unauthenticated") {
			t.Errorf("%q: %q", big, got)
		}
	}
}

func TestAUTHWithoutAPasswordConfigured(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.want("AUTH x", "-"+string(errNoPassword)+"\r\n")
	w.want("AUTH default x", "+OK\r\n")
	w.want("AUTH somebody x", "-"+string(errWrongPass)+"\r\n")
	if got := w.do("HELLO 3 AUTH default x"); !strings.HasPrefix(got, "%7\r\n") {
		t.Error(got)
	}
}
