package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ringside/internal/realredis"
	"ringside/resp"
)

// TestRandomCommandsAnswerAsOneRedis sends the same random commands of every data type to the proxy, before three servers, and to one
// redis-server, and compares each reply.
func TestRandomCommandsAnswerAsOneRedis(t *testing.T) {
	b := start(t, 3, nil)
	direct := realredis.T(t)
	const commands, batch = 4000, 100
	for _, proto := range []int{2, 3} {
		for _, seed := range []uint64{1, 2, 3} {
			t.Run(fmt.Sprintf("RESP%d seed %d", proto, seed), func(t *testing.T) {
				ours, theirs := dial(t, b.addr), dial(t, direct.Addr())
				for _, w := range []*wire{ours, theirs} {
					w.do(fmt.Sprintf("HELLO %d", proto))
				}
				g := &generator{rng: rand.New(rand.NewPCG(seed, uint64(proto))), space: fmt.Sprintf("%d.%d", proto, seed)}
				tried := map[string]bool{}
				failed := 0
				for range commands / batch {
					var sent [][]string
					var out []byte
					for range batch {
						c := g.command()
						sent = append(sent, c)
						out = resp.AppendCommandString(out, c...)
					}
					ours.write(string(out))
					theirs.write(string(out))
					for _, c := range sent {
						tried[strings.ToUpper(c[0])] = true
						got, want := ours.reply(), theirs.reply()
						checkProtocol(t, c[0], got, proto)
						if !alike(c, got, want) {
							t.Errorf("%.300q:\nringside %.300q\nRedis    %.300q", c, got, want)
							if failed++; failed > 10 {
								t.FailNow()
							}
						}
					}
				}
				if len(tried) < 120 {
					t.Errorf("only %d different commands were tried", len(tried))
				}
			})
		}
	}
	t.Run("DUMP and RESTORE", func(t *testing.T) { compareDumps(t, dial(t, b.addr), dial(t, direct.Addr())) })
}

// alike compares two replies: errors by their first word, those without a fixed order as sets, times with a little tolerance.
func alike(command []string, got, want string) bool {
	if got == want {
		return true
	}
	if resp.IsError([]byte(got)) && resp.IsError([]byte(want)) {
		return string(resp.ErrorCode([]byte(got))) == string(resp.ErrorCode([]byte(want)))
	}
	g, _, err1 := resp.Decode([]byte(got))
	w, _, err2 := resp.Decode([]byte(want))
	if err1 != nil || err2 != nil || g.Kind != w.Kind {
		return false
	}
	switch strings.ToUpper(command[0]) {
	case "TTL", "EXPIRETIME":
		return g.Int > 0 && w.Int > 0 && max(g.Int-w.Int, w.Int-g.Int) <= 3
	case "PTTL", "PEXPIRETIME":
		return g.Int > 0 && w.Int > 0 && max(g.Int-w.Int, w.Int-g.Int) <= 3000
	case "SMEMBERS", "SINTER", "SUNION", "SDIFF", "SSCAN", "HSCAN", "ZSCAN", "HGETALL", "HKEYS", "HVALS", "SORT", "SORT_RO":
		return slices.Equal(leaves(g, nil), leaves(w, nil))
	}
	return false
}

// leaves returns the texts in a reply, sorted.
func leaves(v resp.Value, dst []string) []string {
	if len(v.Elems) == 0 {
		return append(dst, fmt.Sprint(v.Text, v.Int, v.Float, v.Null))
	}
	for _, e := range v.Elems {
		dst = leaves(e, dst)
	}
	slices.Sort(dst)
	return dst
}

// compareDumps is about commands whose arguments or cost do not suit chance.
func compareDumps(t *testing.T, ours, theirs *wire) {
	commands := []string{
		"SET {d}s 'some text'", "RPUSH {d}l a b 3", "ZADD {d}z 1 a 2.5 b", "HSET {d}h f v g w", "SADD {d}i 1 2 3", "SET {d}n 77",
		"LCS {d}s {d}n", "LCS {d}s {d}s LEN", "LCS {d}s {d}s IDX", // not among the random ones: quadratic in long values
	}
	for _, c := range commands {
		if got, want := ours.do(c), theirs.do(c); got != want {
			t.Errorf("%s: %q, want %q", c, got, want)
		}
	}
	for _, k := range []string{"s", "l", "z", "h", "i", "n", "none"} {
		got, want := ours.do("DUMP {d}"+k), theirs.do("DUMP {d}"+k)
		if got != want {
			t.Errorf("DUMP %s: %q, want %q", k, got, want)
		}
		v, _, _ := resp.Decode([]byte(want))
		for _, c := range [][]string{
			{"RESTORE", "copy:" + k, "0", v.Text}, {"RESTORE", "copy:" + k, "0", v.Text}, {"RESTORE", "copy:" + k, "0", v.Text, "REPLACE"},
			{"RESTORE", "copy:" + k, "0", v.Text + "x", "REPLACE"}, {"TYPE", "copy:" + k}, {"OBJECT", "ENCODING", "copy:" + k}, {"DUMP", "copy:" + k},
		} {
			out := string(resp.AppendCommandString(nil, c...))
			ours.write(out)
			theirs.write(out)
			if got, want := ours.reply(), theirs.reply(); !alike(c, got, want) {
				t.Errorf("%q: %q, want %q", c, got, want)
			}
		}
	}
}
