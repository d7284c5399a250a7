package keyspace

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ringside/ring"
)

// testSet has one keyspace of every kind.
func testSet(t testing.TB) *Set {
	t.Helper()
	s, err := NewSet([]*Keyspace{
		pattern(t, "user", "user:{id:int}", ""),
		pattern(t, "order", "order:{tenant}:{id:int}", "tenant"),
		pattern(t, "doc", "doc:{ref:uuid}", ""),
		pattern(t, "page", "page:{path}", ""),
		pattern(t, "profile", "user:{id:int}:profile", ""),
		pattern(t, "long", "s:{name}::{id:int}", "name"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMatch(t *testing.T) {
	const uuid = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
	const intRule = "write a whole number, digits only, no leading zero"
	const uuidRule = `write ` + uuid
	for _, test := range []struct {
		key  string
		want string // "" plain; "keyspace value,value shardkey"; or "! reason"
	}{
		// Plain: another prefix, or something that could be no row.
		{"", ""}, {"x", ""}, {"use", ""}, {"user", ""}, {"User:42", ""}, {" user:42", ""},
		{"user:abc", ""}, {"user:42a", ""}, {"user:42:cart", ""}, {"user:1e5", ""}, {"user:0x10", ""}, {"user:-", ""}, {"user:.", ""},
		{"user:٣", ""}, {"user:42\n", ""}, {"user:42\x00", ""},
		{"order:acme", ""}, {"order:acme:x", ""}, {"order::x", ""}, {"order:acme:1:2", ""}, {"order:a:b:1", ""},
		{"doc:xyz", ""}, {"doc:" + uuid + "0", ""}, {"doc:" + uuid[1:], ""}, {"doc:" + strings.Repeat("-", 70), ""},
		{"doc:urn:uuid:", ""}, {"doc:" + strings.Repeat("g", 32), ""},
		{"user:42:profile:", ""}, {"user:42:profil", ""}, {"s:a:1", ""},

		// Integers.
		{"user:42", "user 42 42"}, {"user:0", "user 0 0"}, {"user:-1", "user -1 -1"},
		{"user:9223372036854775807", "user 9223372036854775807 9223372036854775807"},
		{"user:-9223372036854775808", "user -9223372036854775808 -9223372036854775808"},
		{"user:", `! field id is empty`},
		{"user:042", `! field id is "042": ` + `write 42`},
		{"user:00", `! field id is "00": ` + `write 0`},
		{"user:+42", `! field id is "+42": ` + `write 42`},
		{"user:-0", `! field id is "-0": ` + `write 0`},
		{"user:-042", `! field id is "-042": ` + `write -42`},
		{"user: 42", `! field id is " 42": ` + `write 42`},
		{"user:42 ", `! field id is "42 ": ` + `write 42`},
		{"user:4.2", `! field id is "4.2": ` + intRule},
		{"user:4_2", `! field id is "4_2": ` + intRule},
		{"user:--4", `! field id is "--4": ` + intRule},
		{"user:4-2", `! field id is "4-2": ` + intRule},
		{"user:9223372036854775808", `! field id is "9223372036854775808", which does not fit 64 bits`},
		{"user:-9223372036854775809", `! field id is "-9223372036854775809", which does not fit 64 bits`},
		{"user:" + strings.Repeat("9", 100), `! field id is "` + strings.Repeat("9", 40) + `", which does not fit 64 bits`},
		{"user:" + strings.Repeat("1", 2000), `! the key of a row has at most 1024 bytes, this one has 2005`},
		{"user:42:profile", "profile 42 42"},
		{"user:042:profile", `! field id is "042": ` + `write 42`},
		{"user::profile", `! field id is empty`},

		// Several fields.
		{"order:acme:7", "order acme,7 acme"}, {"order:ünïcode:7", "order ünïcode,7 ünïcode"},
		{"order:07:7", "order 07,7 07"}, {"order: :7", "order  ,7  "},
		{"order::7", `! field tenant is empty`},
		{"order:acme:", `! field id is empty`},
		{"order::07", `! field tenant is empty`},
		{"order:acme:07", `! field id is "07": ` + `write 7`},
		{"order:a\xffb:7", `! field tenant is not valid UTF-8`},
		{"order:a\x00b:7", `! field tenant contains a NUL byte, which PostgreSQL cannot store`},
		{"order:a\x00b:x", ""},
		{"s:a::1", "long a,1 a"}, {"s:a:b::1", "long a:b,1 a:b"}, {"s:a:::1", ""}, {"s:::1", `! field name is empty`},

		// A tag in the key places it on the cache servers, not on the shards.
		{"order:{acme}:7", "order {acme},7 {acme}"}, {"page:a{b}c", "page a{b}c a{b}c"},

		// UUIDs.
		{"doc:" + uuid, "doc " + uuid + " " + uuid},
		{"doc:", `! field ref is empty`},
		{"doc:" + strings.ToUpper(uuid), `! field ref is "` + strings.ToUpper(uuid) + `": ` + uuidRule},
		{"doc:{" + uuid + "}", `! field ref is "{` + uuid + `}": ` + uuidRule},
		{"doc:" + strings.ReplaceAll(uuid, "-", ""), `! field ref is "` + strings.ReplaceAll(uuid, "-", "") + `": ` + uuidRule},
		{"doc:URN:UUID:" + uuid, `! field ref is "URN:UUID:0b1c2d3e-4f50-6172-8394-a5b6c7d": ` + uuidRule},
		{"doc:0b1c-2d3e-4f50-6172-8394-a5b6-c7d8-e9f0", `! field ref is "0b1c-2d3e-4f50-6172-8394-a5b6-c7d8-e9f0": ` + uuidRule},

		// The last text takes the rest.
		{"page:a", "page a a"}, {"page:a:b/c{d}", "page a:b/c{d} a:b/c{d}"}, {"page: ", "page    "},
		{"page:", `! field path is empty`},
		{"page:\xc3\x28", `! field path is not valid UTF-8`},
		{"page:" + strings.Repeat("x", MaxKeyLen), `! the key of a row has at most 1024 bytes, this one has 1029`},
	} {
		h := ring.NewHasher()
		var k Key
		matched, err := testSet(t).Match(h, []byte(test.key), &k)
		got := ""
		switch {
		case err != nil:
			bad, ok := errors.AsType[*BadKeyError](err)
			if !ok || matched {
				t.Fatalf("%q: matched %t with %T", test.key, matched, err)
			}
			got = "! " + bad.Reason
		case matched:
			var values []string
			for _, v := range k.Values {
				values = append(values, string(v))
			}
			got = fmt.Sprintf("%s %s %s", k.Keyspace.Name, strings.Join(values, ","), k.ShardKey)
			if string(k.Text) != test.key {
				t.Errorf("%q: text is %q", test.key, k.Text)
			}
			if want := ring.Vnode(ring.CacheKey([]byte(test.key))); k.CacheVnode != want {
				t.Errorf("%q: cache vnode %d, want %d", test.key, k.CacheVnode, want)
			}
			if want := ring.Vnode(k.ShardKey); k.ShardVnode != want {
				t.Errorf("%q: shard vnode %d, want %d", test.key, k.ShardVnode, want)
			}
		}
		if got != test.want {
			t.Errorf("%.80q:\ngot  %s\nwant %s", test.key, got, test.want)
		}
	}
}

func TestMatchEmptySet(t *testing.T) {
	var s Set
	var k Key
	if matched, err := s.Match(ring.NewHasher(), []byte("user:42"), &k); matched || err != nil {
		t.Errorf("got %t, %v", matched, err)
	}
}

func TestBadKeyError(t *testing.T) {
	var k Key
	_, err := testSet(t).Match(ring.NewHasher(), []byte("user:042"), &k)
	const want = `key "user:042" of keyspace user: field id is "042": write 42`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = testSet(t).Match(ring.NewHasher(), []byte("page:"+strings.Repeat("y", 5000)), &k)
	if bad, ok := errors.AsType[*BadKeyError](err); !ok || len(bad.Key) != shownLen {
		t.Errorf("the error keeps more of a key than it should: %v", err)
	}
}

func TestClone(t *testing.T) {
	buf := []byte("order:acme:7")
	var k Key
	if matched, err := testSet(t).Match(ring.NewHasher(), buf, &k); !matched || err != nil {
		t.Fatal(matched, err)
	}
	c := k.Clone()
	for i := range buf {
		buf[i] = '#'
	}
	if got := fmt.Sprintf("%s|%s|%s", c.Text, c.ShardKey, c.Values); got != "order:acme:7|acme|[acme 7]" {
		t.Errorf("clone changed with the original: %s", got)
	}
	if c.Keyspace != k.Keyspace || c.CacheVnode != k.CacheVnode || c.ShardVnode != k.ShardVnode {
		t.Error("clone differs")
	}
	_ = append(c.Values[0], "overwritten"...)
	if string(c.Values[1]) != "7" {
		t.Error("appending to one value of a clone changes another")
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	set, h := testSet(t), ring.NewHasher()
	k := Key{Values: make([][]byte, 0, 4)}
	for _, key := range []string{
		"plain", "session:0123456789", "user:42", "user:abc", "order:acme:7", "order:acme:x", "page:a/b/c", "user:42:profile",
		"doc:0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0", "doc:0b1c2d3e-4f50-6172-8394-a5b6c7d8e9zz", "s:a::1",
	} {
		b := []byte(key)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := set.Match(h, b, &k); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%q: %v allocations", key, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	set, h := testSet(b), ring.NewHasher()
	for _, bench := range []struct{ name, key string }{
		{"plain", "session:0123456789abcdef"},
		{"same-prefix", "user:42:cart"},
		{"int", "user:1234567"},
		{"two-fields", "order:acme:1234567"},
		{"uuid", "doc:0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"},
		{"text", "page:docs/reference/index.html"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			key, k := []byte(bench.key), Key{}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := set.Match(h, key, &k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
