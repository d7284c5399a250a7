package keyspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"unicode/utf8"

	"ringside/ring"
	"ringside/shard"
)

// render is the inverse of Match.
func render(k *Keyspace, values [][]byte) []byte {
	out := []byte(k.literals[0])
	for i, v := range values {
		out = append(out, v...)
		out = append(out, k.literals[i+1]...)
	}
	return out
}

// FuzzMatch guards I1 and I2: the key of a row can be told from its typed values alone, so no row has two; and no second keyspace
// claims it.
func FuzzMatch(f *testing.F) {
	for _, key := range []string{
		"user:42", "user:042", "user:-0", "user: 1", "user:4.2", "user:42:profile", "order:a:1", "order::1", "order:a:b:1",
		"doc:0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0", "doc:{0B1C2D3E4F5061728394a5b6c7d8e9f0}", "doc:urn:uuid:0", "page:a:\xff", "page:{x}:7", "s:a:::1",
	} {
		f.Add([]byte(key))
	}
	set, h := testSet(f), ring.NewHasher()
	f.Fuzz(func(t *testing.T, key []byte) {
		claims := 0
		for _, k := range set.Keyspaces() {
			alone, err := NewSet([]*Keyspace{k})
			if err != nil {
				t.Fatal(err)
			}
			var ignored Key
			if matched, err := alone.Match(h, key, &ignored); matched || err != nil {
				claims++
			}
		}
		var k Key
		matched, err := set.Match(h, key, &k)
		if want := map[bool]int{true: 1}[matched || err != nil]; claims != want {
			t.Fatalf("%d keyspaces claim %q, want %d", claims, key, want)
		}
		if !matched {
			return
		}
		if got := render(k.Keyspace, k.Values); !bytes.Equal(got, key) {
			t.Fatalf("%q renders as %q", key, got)
		}
		for i, field := range k.Keyspace.Fields {
			value := string(k.Values[i])
			switch field.Type {
			case Int:
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil || strconv.FormatInt(n, 10) != value {
					t.Fatalf("%q is not the canonical text of an integer", value)
				}
			case UUID:
				if canonicalUUID(k.Values[i]) != value {
					t.Fatalf("%q is not the canonical text of a uuid", value)
				}
			case Text:
				if value == "" || !utf8.ValidString(value) || bytes.IndexByte(k.Values[i], 0) >= 0 {
					t.Fatalf("%q cannot be stored", value)
				}
			}
		}
	})
}

// FuzzColumns guards I4: what is accepted is valid JSON in every detail that encoding/json knows, and each value is as written.
func FuzzColumns(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"a":1}`, `{"a":{"b":[1,2.5e-3,"x\u0041\n"]},"c":null}`, `{"a":1,"a":2}`, `{"a":"\ud83d\ude00"}`, `{"a":"\u0000"}`, `[1]`, `{"a":1}x`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		columns, err := Columns(doc)
		if err != nil {
			if _, ok := errors.AsType[*shard.BadRowError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", doc, err)
		}
		if len(columns) != len(want) {
			t.Fatalf("%d columns of %q, want %d", len(columns), doc, len(want))
		}
		for _, c := range columns {
			if !bytes.Equal(c.Value, want[c.Name]) {
				t.Fatalf("column %q is %s, want %s", c.Name, c.Value, want[c.Name])
			}
		}
	})
}

// FuzzValue compares the scanner with encoding/json on any text: it refuses what that refuses, and besides only text that
// encoding/json would repair (broken UTF-8, half surrogates) or deeper nesting.
func FuzzValue(f *testing.F) {
	for _, doc := range []string{`1`, `-0.5E+1`, `"a\/b"`, `[1,[2,{}],{"a":[]}]`, `tru`, `{"a":}`, `01`, `"\u00zz"`, ` [ ] `} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		s := scanner{b: doc}
		raw, _, err := s.value(0)
		if err == nil {
			err = s.end()
		}
		if err == nil && !json.Valid(doc) {
			t.Fatalf("accepted %q", doc)
		}
		if err != nil {
			if json.Valid(doc) && utf8.Valid(doc) && !bytes.Contains(doc, []byte(`\u`)) && bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) <= maxDepth {
				t.Fatalf("refused %q: %v", doc, err)
			}
			return
		}
		var want bytes.Buffer
		if err := json.Compact(&want, doc); err != nil {
			t.Fatal(err)
		}
		if got := compact(raw); !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("compact(%q) = %q, want %q", raw, got, want.Bytes())
		}
	})
}
