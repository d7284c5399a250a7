package keyspace

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ringside/ring"
)

// I1: a row's key is made in one way only, and rows that no key can name get none.
func TestAppendKey(t *testing.T) {
	for _, c := range []struct {
		pattern string
		values  []string
		want    string // "": no key
	}{
		{"user:{id:int}", []string{"42"}, "user:42"},
		{"user:{id:int}", []string{"-9223372036854775808"}, "user:-9223372036854775808"},
		{"user:{id:int}", []string{"042"}, ""},
		{"user:{id:int}", []string{""}, ""},
		{"user:{id:int}", []string{"1", "2"}, ""},
		{"doc/{id:uuid}/body", []string{"0b9c3c1e-5a5f-4a57-9d0e-0123456789ab"}, "doc/0b9c3c1e-5a5f-4a57-9d0e-0123456789ab/body"},
		{"doc/{id:uuid}/body", []string{"0B9C3C1E-5A5F-4A57-9D0E-0123456789AB"}, ""},
		{"order:{tenant}:{id:int}", []string{"acme", "7"}, "order:acme:7"},
		{"order:{tenant}:{id:int}", []string{"ac:me", "7"}, ""},
		{"order:{tenant}:{id:int}", []string{"", "7"}, ""},
		{"order:{id:int}:{tenant}", []string{"7", "ac:me"}, "order:7:ac:me"},
		{"x:{a}::{b}", []string{"p:", "q"}, ""}, // would be read as p and :q
		{"x:{a}::{b}", []string{"p", ":q"}, "x:p:::q"},
		{"x:{a}", []string{"nul\x00"}, ""},
		{"x:{a}", []string{"\xff"}, ""},
		{"x:{a}", []string{strings.Repeat("k", MaxKeyLen-2)}, "x:" + strings.Repeat("k", MaxKeyLen-2)},
		{"x:{a}", []string{strings.Repeat("k", MaxKeyLen-1)}, ""},
	} {
		k := composed(t, c.pattern)
		var values [][]byte
		for _, v := range c.values {
			values = append(values, []byte(v))
		}
		got, ok := k.AppendKey([]byte("before "), values)
		if want := "before " + c.want; string(got) != want || ok != (c.want != "") {
			t.Errorf("%s of %.60q: %.80q, %v, want %.80q", c.pattern, c.values, got, ok, want)
		}
	}
}

// FuzzAppendKey: whatever has a key is found again by Match, with the same values; what Match finds has that key.
func FuzzAppendKey(f *testing.F) {
	f.Add("a", "b", "1")
	f.Add("a:", ":b", "-1")
	f.Add("a/", "/:/", "0")
	f.Fuzz(func(t *testing.T, a, b, n string) {
		for _, pattern := range []string{"x:{a}:/{b}/{n:int}", "x:{n:int}:{a}/:{b}", "x:{a}::{n:int}:{b}:"} {
			k := composed(t, pattern)
			byName := map[string][]byte{"a": []byte(a), "b": []byte(b), "n": []byte(n)}
			var values [][]byte
			for _, field := range k.Fields {
				values = append(values, byName[field.Name])
			}
			key, ok := k.AppendKey(nil, values)
			if !ok {
				continue
			}
			set, err := NewSet([]*Keyspace{k})
			if err != nil {
				t.Fatal(err)
			}
			var got Key
			if matched, err := set.Match(ring.NewHasher(), key, &got); !matched || err != nil {
				t.Fatalf("%s: Match(%q) is %v, %v", pattern, key, matched, err)
			}
			for i := range values {
				if !bytes.Equal(got.Values[i], values[i]) {
					t.Fatalf("%s: %q has values %q, want %q", pattern, key, got.Values, values)
				}
			}
		}
	})
}

func composed(t *testing.T, pattern string) *Keyspace {
	t.Helper()
	k, err := Compile(Spec{Name: "k", Pattern: pattern, Table: "t", TTL: time.Minute, ShardBy: firstField(pattern)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func firstField(pattern string) string {
	_, rest, _ := strings.Cut(pattern, "{")
	field, _, _ := strings.Cut(rest, "}")
	name, _, _ := strings.Cut(field, ":")
	return name
}
