package keyspace

import (
	"errors"
	"testing"
)

// TestNewSetAmbiguous guards I2.
func TestNewSetAmbiguous(t *testing.T) {
	for _, test := range []struct {
		a, b    string
		example string // empty: the two may stand together
	}{
		{"user:{id:int}", "user:{id:int}", "user:0"},
		{"user:{id:int}", "user:{name}", "user:0"},
		{"user:{id:int}", "user:{ref:uuid}", "user:0"},
		{"user:{id:int}", "user:{id:int}:", ""},
		{"user:{id:int}", "user:{name}:", ""},
		{"user:{name}", "user:{id:int}:", "user:0:"},
		{"user:{id:int}", "user:x{id:int}", ""},
		{"user:{name}", "user:x{id:int}", "user:x0"},
		{"user:{id:int}", "user:1.{id:int}", "user:1.0"},
		{"user:{ref:uuid}", "user:z{id:int}", ""},
		{"user:{ref:uuid}", "user:n{id:int}", "user:n0"},
		{"user:{id:int}", "order:{id:int}", ""},
		{"u:{id:int}", "user:{id:int}", ""},
		{"order:{tenant}:{id:int}", "order:{id:int}", ""},
		{"order:{tenant}:{id:int}", "order:{tenant}:{name}", "order:0:0"},
		{"order:{tenant}:{id:int}", "order:{tenant}:{id:int}:items", ""},
		{"order:{tenant}:{name}", "order:{tenant}:{id:int}:items", "order:0:0:items"},
		{"a:{x:int}b", "a:b{y:int}", "a:b"}, // only misspelt keys of both
	} {
		a := pattern(t, "a", test.a, lastField(test.a))
		b := pattern(t, "b", test.b, lastField(test.b))
		for _, pair := range [][]*Keyspace{{a, b}, {b, a}} {
			set, err := NewSet(pair)
			if test.example == "" {
				if err != nil {
					t.Errorf("%s beside %s: %v", test.a, test.b, err)
				}
				continue
			}
			ambiguous, ok := errors.AsType[*AmbiguousError](err)
			if !ok || set != nil {
				t.Errorf("%s beside %s: accepted", test.a, test.b)
				continue
			}
			if ambiguous.Example != test.example || ambiguous.First != pair[0] || ambiguous.Second != pair[1] {
				t.Errorf("%s beside %s: %v; want the example %q", test.a, test.b, err, test.example)
			}
		}
	}
	_, err := NewSet([]*Keyspace{pattern(t, "user", "user:{id:int}", ""), pattern(t, "person", "user:{name}", "")})
	const want = `keyspaces user (user:{id:int}) and person (user:{name}) both claim keys such as "user:0": begin their patterns differently`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// lastField returns the name of a pattern's last field.
func lastField(pattern string) string {
	var k Keyspace
	k.Pattern = pattern
	if err := k.parsePattern(); err != nil {
		return ""
	}
	return k.Fields[len(k.Fields)-1].Name
}

func TestNewSetNames(t *testing.T) {
	a, b := pattern(t, "user", "user:{id:int}", ""), pattern(t, "user", "person:{id:int}", "")
	if _, err := NewSet([]*Keyspace{a, b}); err == nil || err.Error() != `two keyspaces are named "user"` {
		t.Errorf("got %v", err)
	}
	c := pattern(t, "order", "order:{id:int}", "")
	s, err := NewSet([]*Keyspace{a, c})
	if err != nil {
		t.Fatal(err)
	}
	if s.ByName("order") != c || s.ByName("user") != a || s.ByName("x") != nil || len(s.Keyspaces()) != 2 {
		t.Error("the set does not hold what it was made of")
	}
}
