package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ringside/resp"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// FuzzPipeline sends the same bytes twice, in one piece and cut as the second argument says, over connections of their own. The replies must be the
// same, whole, and one for each command; broken framing ends its own connection and no other. The cache servers say back what they
// were asked, so that replies depend on nothing that went before.
func FuzzPipeline(f *testing.F) {
	dir, err := os.MkdirTemp("", "rs") // a socket's path must be short
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	var caches []topology.Cache
	for i := range 3 {
		caches = append(caches, topology.Cache{Name: fmt.Sprintf("c%d", i+1), Addr: fakeEach(f, newParrot).addr, Weight: 1, RunID: fakeRunID})
	}
	// A Unix socket, so that many connections do not use up the ports.
	b := startBefore(f, caches, func(c *Config) { c.Listen = "unix:" + filepath.Join(dir, "s") })
	b.rows.set("user:1", `{"id":1}`)
	b.rows.mu.Lock()
	b.rows.write = func(op keyspace.Op) (keyspace.Outcome, error) {
		return keyspace.Outcome{Applied: true, Value: op.Delta}, nil // and the rows stay
	}
	b.rows.mu.Unlock()
	bystander := b.dial()
	for _, seed := range pipelineSeeds() {
		f.Add(seed, []byte{})
		f.Add(seed, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		f.Add(seed, []byte{3, 0, 11, 1, 40})
	}
	f.Fuzz(func(t *testing.T, input string, cuts []byte) {
		p := newPipeline(input)
		whole, err := p.run(b.addr, nil)
		if err != nil {
			t.Fatalf("%q: %v (replies: %q)", p.complete, err, whole)
		}
		pieces, err := p.run(b.addr, cuts)
		if err != nil {
			t.Fatalf("%q cut at %v: %v (replies: %q, in one piece: %q)", p.complete, cuts, err, pieces, whole)
		}
		if pieces != whole {
			t.Fatalf("%q cut at %v:\n got %q\nwant %q", p.complete, cuts, pieces, whole)
		}
		if n, err := countReplies(whole); err != nil || (p.countable && n != p.replies) {
			t.Fatalf("%q: %d replies, want %d: %v\n%q", p.complete, n, p.replies, err, whole)
		}
		bystander.t = t
		bystander.want("PING", "+PONG\r\n")
	})
}

func pipelineSeeds() []string {
	command := func(args ...string) string { return string(resp.AppendCommandString(nil, args...)) }
	return []string{
		"GET a\r\nSET a \"x y\"\nMGET a user:1 b\r\n\r\nDEL a b user:2 c\r\nMSET a 1 b 2 c 3\r\nPING 'in line'\r\nNOSUCH\r\nGET\r\n",
		command("MGET", "a", "\r\n*1\r\n$4\r\nPING\r\n", "", "user:1", "user:01") + "GET a\r\n*0\r\n*-1\r\n" + command("GET", "user:1"),
		"HELLO 3\r\nGET user:2\r\nCLIENT GETNAME\r\nMGET user:2 a\r\nHELLO 2 SETNAME me\r\nGET user:2\r\nRESET\r\nHELLO 4\r\nHELLO x\r\n",
		"MULTI\r\nSET {t}a 1\r\nPING\r\nGET {t}b\r\nEXEC\r\nMULTI\r\nGET a\r\nGET b\r\nEXEC\r\nMULTI\r\nNOSUCH\r\nDISCARD\r\nEXEC\r\nWATCH {t}a\r\nMULTI\r\nMGET {t}a {t}b\r\nEXEC\r\n",
		"BLPOP {t}a {t}b 1\r\nGET {t}a\r\nBLPOP a b 1\r\nXREAD BLOCK 5 STREAMS a 0\r\nBRPOPLPUSH a a 0\r\n",
		"SUBSCRIBE a b\r\nPING\r\nGET a\r\nUNSUBSCRIBE a\r\nPSUBSCRIBE x*\r\nHELLO 3\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\nSSUBSCRIBE s\r\nGET a\r\n",
		"SCAN 0\r\nDBSIZE\r\nKEYS *\r\nFLUSHALL\r\nPUBLISH a b\r\nPUBSUB NUMSUB a\r\nCOMMAND COUNT\r\nCONFIG GET *\r\nRING LOOKUP user:1\r\n",
		"SET user:1 {\"name\":\"x\"}\r\nHSET user:1 name x\r\nDEL user:1\r\nGET user:1\r\nHGETALL user:1\r\nEXPIRE user:1 1\r\nSET rs:1 x\r\nQUIT\r\nGET a\r\n",
		"GET a\r\n*1\r\n$x\r\n", "GET a\r\n*2000000\r\n", "PING \"\r\nPING\r\n", command("SET", "a", strings.Repeat("v", 20_000)) + command("GET", strings.Repeat("k", 17_000)) + "*2\r\n$3\r\nGET\r\n$5\r\nabc",
		command(strings.Fields("DEL "+strings.Repeat("k l m n o p ", 40))...) + command("MSET", "a", "1", "b") + command("EXISTS", "a", "a", "user:1", "user:1"),
	}
}

// pipeline is what is sent of a fuzzer's input.
type pipeline struct {
	complete  string // whole commands, and broken framing if that comes then
	rest      string // the beginning of a command
	broken    bool
	countable bool // one reply for each command
	replies   int  // then: how many, those at the end included
}

// Sent behind the commands. RESET leads back from wherever they have led.
const theEnd = "RESET\r\nPING the-end-of-the-pipeline\r\n"

var endReply = "+RESET\r\n" + bulk("the-end-of-the-pipeline")

// newPipeline takes from the input the commands whose replies are always the same.
func newPipeline(input string) pipeline {
	p := pipeline{countable: true, replies: 2}
	var parser resp.Parser
	at := 0
	for at < len(input) {
		cmd, n, err := parser.Next([]byte(input[at:]))
		if err != nil {
			p.complete, p.broken = input, true
			p.replies-- // the error, and no end
			return p
		}
		if n == 0 {
			break
		}
		if len(cmd.Args) > 0 {
			switch name := strings.ToLower(string(cmd.Args[0])); {
			case isFickle(name, cmd.Args):
				p.complete = input[:at]
				return p
			case name == "quit", strings.HasSuffix(name, "subscribe"):
				p.countable = false
			}
			p.replies++
		}
		at += n
	}
	p.complete, p.rest = input[:at], input[at:]
	return p
}

// isFickle reports whether a command's reply may differ from one time to the next, or what it does concerns other clients.
func isFickle(name string, args [][]byte) bool {
	switch name {
	case "time", "info", "randomkey", "slowlog", "latency", "monitor":
		return true
	case "client":
		if len(args) < 2 {
			return false
		}
		switch strings.ToLower(string(args[1])) {
		case "setname", "getname", "setinfo", "no-evict", "no-touch":
			return false
		}
		return true
	}
	return resp.IsHTTP(args[0]) // which cuts the connection under the replies
}

// run sends the pipeline over a connection of its own, cut in pieces, and returns the replies.
func (p pipeline) run(addr string, cuts []byte) (replies string, err error) {
	c, err := net.DialTimeout("unix", addr, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	out := p.complete
	if !p.broken {
		out += theEnd
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		const mostCuts = 12
		for _, n := range cuts[:min(len(cuts), mostCuts)] {
			at := min(1+int(n), len(out))
			if _, err := io.WriteString(c, out[:at]); err != nil {
				return // it was closed, for which there may be a reason
			}
			out = out[at:]
			time.Sleep(100 * time.Microsecond) // else the kernel may put the pieces together
		}
		_, _ = io.WriteString(c, out)
	}()
	defer func() { <-sent }()
	var in []byte
	buf := make([]byte, 64<<10)
	for !strings.HasSuffix(string(in[max(0, len(in)-len(endReply)):]), endReply) {
		n, err := c.Read(buf)
		in = append(in, buf[:n]...)
		switch {
		case errors.Is(err, io.EOF) && (p.broken || !p.countable):
			return withoutIDs(in), nil
		case err != nil:
			return withoutIDs(in), err
		}
	}
	_, err = io.WriteString(c, p.rest)
	if !p.countable {
		err = nil // QUIT may have come
	}
	return withoutIDs(in), err
}

var helloID = regexp.MustCompile(`\$2\r\nid\r\n:[0-9]+\r\n`)

// withoutIDs takes the numbers of connections out of the replies to HELLO.
func withoutIDs(replies []byte) string { return helloID.ReplaceAllString(string(replies), "<id>") }

func countReplies(stream string) (n int, err error) {
	rest := []byte(strings.ReplaceAll(stream, "<id>", "$2\r\nid\r\n:1\r\n"))
	for ; len(rest) > 0; n++ {
		_, size, err := resp.Decode(rest)
		if err != nil {
			return n, err
		}
		if size == 0 {
			return n, fmt.Errorf("a piece of a reply is left: %.100q", rest)
		}
		rest = rest[size:]
	}
	return n, nil
}

// newParrot returns the answers of a cache server that says back what it was asked, for one connection.
func newParrot() func(args []string) string {
	var queued []string
	inMulti := false
	return func(args []string) string {
		switch args[0] {
		case "HELLO", "INFO", "AUTH":
			return usual(args)
		}
		switch name := strings.ToLower(args[0]); {
		case name == "multi":
			inMulti, queued = true, nil
			return "+OK\r\n"
		case name == "exec" && inMulti:
			inMulti = false
			return fmt.Sprintf("*%d\r\n%s", len(queued), strings.Join(queued, ""))
		case inMulti:
			queued = append(queued, parrot(name, args))
			return "+QUEUED\r\n"
		case strings.HasSuffix(name, "subscribe"):
			var out strings.Builder
			for _, topic := range args[1:] {
				out.WriteString(event(3, name, topic, ":1"))
			}
			return out.String()
		default:
			return parrot(name, args)
		}
	}
}

func parrot(name string, args []string) string {
	switch name {
	case "mget":
		out := fmt.Sprintf("*%d\r\n", len(args)-1)
		for _, key := range args[1:] {
			out += parrot("get", []string{"GET", key})
		}
		return out
	case "get":
		if strings.HasPrefix(args[1], "rs:") {
			return "$-1\r\n" // no entry of any row is cached
		}
	case "del", "unlink", "exists", "touch":
		return fmt.Sprintf(":%d\r\n", len(args)-1)
	case "mset", "flushall", "watch", "unwatch":
		return "+OK\r\n"
	case "scan":
		return "*2\r\n$1\r\n0\r\n*2\r\n" + bulk("key") + bulk("rs:hidden")
	case "dbsize":
		return ":3\r\n"
	}
	return bulk(strings.Join(args, " "))
}
