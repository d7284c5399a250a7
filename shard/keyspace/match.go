package keyspace

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"ringside/ring"
)

// MaxKeyLen is the length of the longest row key, in bytes. The key is part of what the cache, the outbox and messages store.
const MaxKeyLen = 1024

// shownLen is how much of a key an error keeps.
const shownLen = 128

// BadKeyError says that a key belongs to a table keyspace but is not the canonical name of any row.
type BadKeyError struct {
	Key      string // its first 128 bytes
	Keyspace *Keyspace
	Reason   string // what is wrong, and what to write instead
}

func (e *BadKeyError) Error() string {
	return fmt.Sprintf("key %q of keyspace %s: %s", e.Key, e.Keyspace.Name, e.Reason)
}

// Match takes a key apart. matched says that it is a row; then into is filled, and its slices alias key. If neither matched nor
// err, the key is plain. The error is a *BadKeyError. into.Values is reused; into is undefined unless matched.
//
// Match belongs to the event loop that owns h. It allocates only for an error, or when into.Values is too small.
func (s *Set) Match(h *ring.Hasher, key []byte, into *Key) (matched bool, err error) {
	t := s.now.Load()
	if t == nil || len(key) == 0 {
		return false, nil
	}
	for _, k := range t.byFirst[key[0]] {
		if !hasPrefix(key, k.literals[0]) {
			continue
		}
		mine, reason := k.split(key, into)
		switch {
		case !mine:
			continue // another keyspace with the same first literal may claim it
		case reason != "":
			return false, &BadKeyError{Key: string(key[:min(len(key), shownLen)]), Keyspace: k, Reason: reason}
		}
		into.Keyspace = k
		into.Text = key
		into.ShardKey = into.Values[k.shardBy]
		into.CacheVnode = h.Vnode(ring.CacheKey(key))
		into.ShardVnode = h.Vnode(into.ShardKey)
		return true, nil
	}
	return false, nil
}

// hasPrefix is bytes.HasPrefix for a string; the conversion does not allocate.
func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// split cuts the key, which begins with the first literal, into into.Values. mine says that the keyspace claims the key; a reason
// that it is badly spelled. A key is badly spelled only if every field is good or badly spelled: one field that is something else
// altogether makes the key somebody else's.
func (k *Keyspace) split(key []byte, into *Key) (mine bool, reason string) {
	rest := key[len(k.literals[0]):]
	into.Values = into.Values[:0]
	badField := -1
	for i, f := range k.Fields {
		value := rest
		if next := k.literals[i+1]; next != "" {
			end := indexString(rest, next)
			if end < 0 {
				return false, ""
			}
			value, rest = rest[:end], rest[end+len(next):]
		} else {
			rest = nil // only the last literal may be empty
		}
		switch f.Type.check(value) {
		case foreign:
			return false, ""
		case misspelt:
			if badField < 0 {
				badField = i
			}
		}
		into.Values = append(into.Values, value)
	}
	switch {
	case len(rest) > 0:
		return false, ""
	case len(key) > MaxKeyLen:
		return true, fmt.Sprintf("the key of a row has at most %d bytes, this one has %d", MaxKeyLen, len(key))
	case badField >= 0:
		f := k.Fields[badField]
		return true, fmt.Sprintf("field %s %s", f.Name, f.Type.explain(into.Values[badField]))
	}
	return true, ""
}

// indexString is bytes.Index for a string, without allocation.
func indexString(b []byte, sep string) int {
	if len(sep) == 1 {
		return bytes.IndexByte(b, sep[0])
	}
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], sep[0])
		if i < 0 {
			return -1
		}
		from += i
		if hasPrefix(b[from:], sep) {
			return from
		}
		from++
	}
}

// verdict is what a text is as the value of a field.
type verdict uint8

const (
	canonical verdict = iota // the one name of a value
	misspelt                 // it may be meant as a value, but is not its canonical text
	foreign                  // no value of this type
)

func (t Type) check(value []byte) verdict {
	if len(value) == 0 {
		return misspelt
	}
	switch t {
	case Int:
		return checkInt(value)
	case UUID:
		return checkUUID(value)
	}
	if bytes.IndexByte(value, 0) >= 0 || !utf8.Valid(value) {
		return misspelt
	}
	return canonical
}

// IsShardKey reports whether a text can be the shard key of a row: the canonical text of a value of the shard_by field.
func (k *Keyspace) IsShardKey(text []byte) bool {
	return len(text) <= MaxKeyLen && k.Fields[k.shardBy].Type.check(text) == canonical
}

// explain says why a value is misspelt and what is allowed instead.
func (t Type) explain(value []byte) string {
	if len(value) == 0 {
		return "is empty"
	}
	shown := value[:min(len(value), 40)]
	switch t {
	case Int:
		return explainInt(value, shown)
	case UUID:
		return fmt.Sprintf("is %q: write %s", shown, canonicalUUID(value))
	}
	if bytes.IndexByte(value, 0) >= 0 {
		return "contains a NUL byte, which PostgreSQL cannot store"
	}
	return "is not valid UTF-8"
}

// Clone returns a copy that shares no memory with the matched bytes, for use after the event loop's turn.
func (k *Key) Clone() Key {
	c := *k
	size := len(k.Text) + len(k.ShardKey)
	for _, v := range k.Values {
		size += len(v)
	}
	buf := make([]byte, 0, size)
	keep := func(b []byte) []byte {
		start := len(buf)
		buf = append(buf, b...)
		return buf[start:len(buf):len(buf)]
	}
	c.Text = keep(k.Text)
	c.ShardKey = keep(k.ShardKey)
	c.Values = make([][]byte, len(k.Values))
	for i, v := range k.Values {
		c.Values[i] = keep(v)
	}
	return c
}
