package ring

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCacheKey(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{"", ""},
		{"user:42", "user:42"},
		{"{user:42}:posts", "user:42"},
		{"posts:{user:42}", "user:42"},
		{"a{b}{c}", "b"},
		{"a{b{c}d}", "b{c"},
		{"{}{tag}", "{}{tag}"}, // the first pair is empty: the whole key counts
		{"a{}b", "a{}b"},
		{"a{b", "a{b"},
		{"a}b", "a}b"},
		{"a}b{c}", "c"},
		{"{", "{"},
		{"}{", "}{"},
		{"{\x00}", "\x00"},
		{"{ключ}:1", "ключ"},
	} {
		if got := string(CacheKey([]byte(c.key))); got != c.want {
			t.Errorf("CacheKey(%q) = %q, want %q", c.key, got, c.want)
		}
	}
}

// TestCacheKeyAsRedis compares to a transcription of Redis's keyHashSlot.
func TestCacheKeyAsRedis(t *testing.T) {
	part := rapid.SampledFrom([]string{"{", "}", "a", "bc", ""})
	rapid.Check(t, func(t *rapid.T) {
		var key []byte
		for _, p := range rapid.SliceOfN(part, 0, 10).Draw(t, "parts") {
			key = append(key, p...)
		}
		if got, want := string(CacheKey(key)), string(redisCacheKey(key)); got != want {
			t.Fatalf("CacheKey(%q) = %q, want %q", key, got, want)
		}
	})
}

func redisCacheKey(key []byte) []byte {
	s := 0
	for s < len(key) && key[s] != '{' {
		s++
	}
	if s == len(key) {
		return key
	}
	e := s + 1
	for e < len(key) && key[e] != '}' {
		e++
	}
	if e == len(key) || e == s+1 {
		return key
	}
	return key[s+1 : e]
}
