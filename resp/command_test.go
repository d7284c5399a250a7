package resp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	for i := range Commands() {
		c := &Commands()[i]
		for _, name := range []string{c.Name, strings.ToUpper(c.Name), strings.ToUpper(c.Name[:1]) + c.Name[1:]} {
			if got := Lookup([]byte(name)); got != c {
				t.Errorf("%s: got %v", name, got)
			}
		}
		for j := range c.Name {
			near := []byte(c.Name)
			near[j] ^= 0x80
			if got := Lookup(near); got != nil {
				t.Errorf("%q is taken for %s", near, got.Name)
			}
		}
		for j := range c.Subcommands {
			sub := &c.Subcommands[j]
			if got := c.Sub([]byte(strings.ToUpper(sub.Name[len(c.Name)+1:]))); got != sub {
				t.Errorf("%s: got %v", sub.Name, got)
			}
		}
	}
	for _, name := range []string{"", "g", "nosuch", "get ", "ge", "acl|cat", "restore_asking", "restore\rasking", strings.Repeat("x", 1000)} {
		if got := Lookup([]byte(name)); got != nil {
			t.Errorf("%q is taken for %s", name, got.Name)
		}
	}
}

func TestClass(t *testing.T) {
	for class, names := range map[Class]string{
		ClassOther:  "PING INFO PUBLISH SUBSCRIBE SPUBLISH SCAN FLUSHALL MULTI CLIENT|ID SCRIPT|LOAD KEYS",
		ClassSingle: "GET SET HSET LPUSH ZADD XADD SSCAN OBJECT|ENCODING XGROUP|CREATE MEMORY|USAGE DUMP BITFIELD",
		ClassMulti:  "RENAME SINTER BLPOP EVAL FCALL SORT SORT_RO GEORADIUS MIGRATE XREAD LMPOP COPY MSETNX WATCH ZUNIONSTORE BITOP PFCOUNT LMOVE",
		ClassSplit:  "MGET MSET DEL UNLINK EXISTS TOUCH",
	} {
		for name := range strings.FieldsSeq(names) {
			container, sub, isSub := strings.Cut(name, "|")
			c := Lookup([]byte(container))
			if isSub {
				c = c.Sub([]byte(sub))
			}
			if c == nil || c.Class != class || class == ClassSingle && c.First == 0 {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	for _, test := range []struct{ call, name, refusal string }{
		{"get k", "get", ""},
		{"CLIENT setname x", "client|setname", ""},
		{"CLIENT SETINFO lib-name x", "client|setinfo", ""},
		{"CLIENT MAINT_NOTIFICATIONS ON", "", "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."},
		{"GET", "get", "ERR wrong number of arguments for 'get' command"},
		{"CLIENT setname", "client|setname", "ERR wrong number of arguments for 'client|setname' command"},
		{"client", "client", "ERR wrong number of arguments for 'client' command"},
		{"foo bar", "", "ERR unknown command 'foo', with args beginning with: 'bar' "},
	} {
		c, err := Resolve(bytesOf(strings.Split(test.call, " ")))
		var refusal Refusal
		errors.As(err, &refusal)
		name := ""
		if c != nil {
			name = c.Name
		}
		if name != test.name || string(refusal) != test.refusal {
			t.Errorf("%s: got %q, %q", test.call, name, refusal)
		}
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	args := bytesOf([]string{"MGET", "a", "b"})
	dst := make([]int, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		c, err := Resolve(args)
		if err != nil {
			t.Fatal(err)
		}
		if keys, err := c.Keys(args, dst); len(keys) != 2 || err != nil {
			t.Fatal(keys, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestIsHTTP(t *testing.T) {
	for _, name := range []string{"POST", "Host:", "host:"} {
		if !IsHTTP([]byte(name)) {
			t.Error(name)
		}
	}
	for _, name := range [][]byte{nil, []byte("GET"), []byte("host"), bytes.Repeat([]byte("p"), 100)} {
		if IsHTTP(name) {
			t.Errorf("%q", name)
		}
	}
}
