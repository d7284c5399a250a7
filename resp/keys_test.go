package resp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"ringside/internal/realredis"
)

func TestKeys(t *testing.T) {
	for _, test := range []struct{ call, keys string }{
		{"GET k", "[1]"}, {"SET k v NX", "[1]"}, {"PING", "[]"}, {"MGET a b c", "[1 2 3]"}, {"MSET a 1 b 2", "[1 3]"}, {"DEL a", "[1]"},
		{"BLPOP a b 0", "[1 2]"}, {"RENAME a b", "[1 2]"}, {"BITOP AND d a b", "[2 3 4]"}, {"OBJECT ENCODING k", "[2]"}, {"XGROUP CREATE k g 0", "[2]"},
		{"EVAL s 2 a b x", "[3 4]"}, {"EVAL s 0", "[]"}, {"EVAL s 0 x", "[]"}, {"EVAL s 3 a b", "bad"}, {"EVAL s -1 a", "bad"}, {"EVAL s x a", "bad"},
		{"FCALL f 1 a b", "[3]"}, {"ZUNIONSTORE d 2 a b WEIGHTS 1 2", "[1 3 4]"}, {"ZUNIONSTORE d 0 x", "[1]"}, {"ZUNION 2 a b", "[2 3]"}, {"ZUNIONSTORE d 9 a", "bad"},
		{"LMPOP 2 a b LEFT", "[2 3]"}, {"BLMPOP 0 1 a LEFT", "[3]"}, {"SINTERCARD 2 a b LIMIT 1", "[2 3]"}, {"EVAL s 99999999999999999999 a", "bad"},
		{"XREAD COUNT 1 STREAMS a b 0 0", "[4 5]"}, {"XREADGROUP GROUP g c streams a 0", "[5]"}, {"XREAD COUNT 1 a", "bad"},
		{"XREADGROUP GROUP STREAMS c STREAMS a 0", "[5]"},
		{"SORT a", "[1]"}, {"SORT a BY store STORE b", "[1 5]"}, {"SORT a LIMIT 0 1 GET x store b STORE c", "[1 10]"}, {"SORT a STORE", "[1]"},
		{"SORT_RO a BY w_* GET #", "[1]"},
		{"GEORADIUS k 1 2 3 m STORE d", "[1 7]"}, {"GEORADIUS k 1 2 3 m", "[1]"}, {"GEORADIUSBYMEMBER k m 3 m STORE a STOREDIST b", "[1 8]"}, {"GEORADIUS_RO k 1 2 3 m", "[1]"},
		{"MIGRATE h p k 0 1", "[3]"}, {"MIGRATE h p  0 1 COPY KEYS a b", "[8 9]"}, {"MIGRATE h p  0 1 AUTH KEYS KEYS a", "[9]"}, {"MIGRATE h p  0 1 AUTH2 KEYS KEYS KEYS a", "[10]"},
		{"MIGRATE h p k 0 1 KEYS a", "bad"}, {"SPUBLISH c m", "[]"}, {"PUBLISH c m", "[]"}, {"LCS a b", "[1 2]"}, {"COPY a b", "[1 2]"}, {"PFCOUNT a b", "[1 2]"}, {"PFMERGE d", "[1]"}, {"PFMERGE d a", "[1 2]"},
	} {
		args := bytesOf(strings.Split(test.call, " "))
		c, err := Resolve(args)
		if err != nil {
			t.Errorf("%s: %v", test.call, err)
			continue
		}
		keys, err := c.Keys(args, nil)
		got := fmt.Sprint(keys)
		if err != nil {
			got = "bad"
		}
		if got != test.keys {
			t.Errorf("%s: got %s, want %s", test.call, got, test.keys)
		}
	}
}

// TestKeysLive compares the keys of random calls with what COMMAND GETKEYS of a live server says.
func TestKeysLive(t *testing.T) {
	s := realredis.T(t)
	random := rand.New(rand.NewPCG(5, 6))
	words := []string{"a", "b", "c", "0", "1", "2", "3", "-1", "", "STORE", "storedist", "STREAMS", "KEYS", "BY", "GET", "LIMIT", "COPY", "AUTH", "AUTH2", "COUNT", "99999999999"}
	var commands []CommandInfo
	for _, c := range Commands() {
		if c.Subcommands == nil {
			commands = append(commands, c)
		}
		commands = append(commands, c.Subcommands...)
	}
	var (
		calls    [][]string
		requests [][]byte
	)
	for _, c := range commands {
		if c.Name == "client|setinfo" || c.Name == "client|no-touch" {
			continue // not in 7.0
		}
		for range 100 {
			call := strings.Split(c.Name, "|")
			for len(call) < max(c.Arity, -c.Arity) || c.Arity < 0 && random.IntN(4) > 0 && len(call) < 14 {
				call = append(call, words[random.IntN(len(words))])
			}
			calls = append(calls, call)
			requests = append(requests, request(append([]string{"COMMAND", "GETKEYS"}, call...)...))
		}
	}
	for i, frame := range ask(t, s, requests...) {
		args := bytesOf(calls[i])
		c, err := Resolve(args)
		if err != nil {
			t.Errorf("%q: %v", calls[i], err)
			continue
		}
		keys, err := c.Keys(args, nil)
		var got, want []string
		for _, k := range keys {
			got = append(got, calls[i][k])
		}
		for _, e := range decodeAll(t, frame).Elems {
			want = append(want, e.Text)
		}
		if fmt.Sprintf("%q", got) == fmt.Sprintf("%q", want) {
			continue
		}
		switch {
		case len(want) == 0 && err != nil:
			// Both refuse; the server gives no keys for some and an error for others.
		case len(want) == 0 && runsWithFewer(c):
			// COMMAND GETKEYS refuses PFMERGE with a destination alone, and no keys behind a number of keys; the commands
			// themselves run or refuse as they see fit.
		case c.special == specialGeo && storeWords(args) > 1:
			// COMMAND GETKEYS takes the first STORE, the command itself the last.
		case c.special == specialMigrate && err != nil:
			// KEYS beside a key: COMMAND GETKEYS gives one or the other or neither, the command refuses.
		default:
			t.Errorf("%q: got %q (%v), want %q %.60q", calls[i], got, err, want, frame)
		}
	}
}

func runsWithFewer(c *CommandInfo) bool {
	last := c.KeySpecs[len(c.KeySpecs)-1]
	return c.Name == "pfmerge" || last.Find == FindKeyNum
}

func storeWords(args [][]byte) int {
	n := 0
	for _, a := range args {
		if isWord(a, "STORE") || isWord(a, "STOREDIST") {
			n++
		}
	}
	return n
}

func TestReadsByPattern(t *testing.T) {
	for _, test := range []struct {
		call string
		want bool
	}{
		{"SORT k", false}, {"SORT k BY nosort GET #", false}, {"SORT k BY w_*", true}, {"SORT_RO k GET #  GET o_*", true}, {"SORT k LIMIT BY x_* ALPHA", false},
		{"SORT k STORE BY GET x", false}, {"SORT k by w_*->f", true}, {"GET k", false}, {"SORT k BY", false},
	} {
		args := bytesOf(strings.Split(test.call, " "))
		if got := Lookup(args[0]).ReadsByPattern(args); got != test.want {
			t.Errorf("%s: %v", test.call, got)
		}
	}
}
