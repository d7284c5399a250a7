package cache

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"
)

func TestEntriesComeBack(t *testing.T) {
	at, soft := time.UnixMilli(1700000000123), time.UnixMilli(1700000060456)
	tok := Token{1, 2, 3, 15: 9}
	for _, tc := range []struct {
		kind EntryKind
		b    []byte
		body string
	}{
		{KindValue, AppendValue(nil, at, soft, []byte(`{"id":1}`)), `{"id":1}`},
		{KindValue, AppendValue(nil, at, soft, nil), ""},
		{KindAbsent, AppendAbsent(nil, at, soft), ""},
		{KindLease, AppendLease(nil, tok), ""},
		{KindPoison, AppendPoison(nil, tok), ""},
		{KindPoison, appendWriters(nil, Writer{tok, at}, Writer{Token{7}, soft}), ""},
	} {
		e, err := Decode(tc.b)
		if err != nil || e.Kind != tc.kind || Kind(tc.b) != tc.kind || string(e.Body) != tc.body {
			t.Fatalf("%s: decoded %+v, %v", tc.kind, e, err)
		}
		switch tc.kind {
		case KindValue, KindAbsent:
			if !e.WrittenAt.Equal(at) || !e.SoftExpires.Equal(soft) {
				t.Errorf("%s: times %v, %v", tc.kind, e.WrittenAt, e.SoftExpires)
			}
		case KindLease:
			if e.Token != tok {
				t.Errorf("%s: token %v", tc.kind, e.Token)
			}
		case KindPoison:
			if e.Writers[0].Token != tok || !bytes.Equal(appendWriters(nil, e.Writers...), tc.b) {
				t.Errorf("%s: writers %v", tc.kind, e.Writers)
			}
		}
	}
}

func TestBodyIsASuffixOfTheEntry(t *testing.T) {
	b := AppendValue([]byte("before"), time.Now(), time.Now(), []byte("row"))[len("before"):]
	if got := Body(b); &got[0] != &b[HeaderSize] || len(got) != len(b)-HeaderSize {
		t.Error("Body copies")
	}
	if e, _ := Decode(b); &e.Body[0] != &b[HeaderSize] {
		t.Error("Decode copies")
	}
}

func TestMalformedEntriesAreRefused(t *testing.T) {
	value := AppendValue(nil, time.Now(), time.Now(), []byte("x"))
	for name, b := range map[string][]byte{
		"empty":              {},
		"foreign":            []byte(`{"id":42,"name":"somebody else's value"}`),
		"short value":        value[:HeaderSize-1],
		"other version":      append([]byte{'V', 2}, value[2:]...),
		"long absent":        append(AppendAbsent(nil, time.Now(), time.Now()), 'x'),
		"long lease":         append(AppendLease(nil, Token{}), 'x'),
		"short poison":       AppendPoison(nil, Token{})[:10],
		"poison of nobody":   {'P', formatVersion},
		"poison cut off":     appendWriters(nil, make([]Writer, 2)...)[:40],
		"long poison":        append(AppendPoison(nil, Token{}), 'x'),
		"kind of no meaning": append([]byte{'X'}, value[1:]...),
	} {
		if _, err := Decode(b); !errors.Is(err, ErrMalformed) || Kind(b) != KindMalformed {
			t.Errorf("%s: Kind %s, Decode error %v", name, Kind(b), err)
		}
	}
}

func TestHitPathDoesNotAllocate(t *testing.T) {
	b := AppendValue(nil, time.Now(), time.Now(), []byte("row"))
	var n int
	if a := testing.AllocsPerRun(100, func() {
		if Kind(b) == KindValue {
			n += len(Body(b))
		}
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
	name := make([]byte, 0, 64)
	if a := testing.AllocsPerRun(100, func() { name = AppendName(name[:0], math.MaxUint64, 7, []byte("user:42")) }); a != 0 {
		t.Errorf("AppendName: %v allocations", a)
	}
}

func TestAppendName(t *testing.T) {
	for want, got := range map[string][]byte{
		"rs:7.0:user:42":                    AppendName(nil, 7, 0, []byte("user:42")),
		"GET rs:12.3:":                      AppendName([]byte("GET "), 12, 3, nil),
		"rs:18446744073709551615.1:a\x00:b": AppendName(nil, math.MaxUint64, 1, []byte("a\x00:b")),
	} {
		if string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTokensDiffer(t *testing.T) {
	a, b := newTokens(), newTokens()
	seen := make(map[Token]bool)
	for range 1000 {
		for _, tok := range []Token{a.next(), b.next()} {
			if seen[tok] {
				t.Fatalf("%x twice", tok)
			}
			seen[tok] = true
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(AppendValue(nil, time.UnixMilli(1), time.UnixMilli(2), []byte("row")))
	f.Add(AppendAbsent(nil, time.UnixMilli(1), time.UnixMilli(2)))
	f.Add(AppendLease(nil, Token{1}))
	f.Add(AppendPoison(nil, Token{2}))
	f.Add(appendWriters(nil, Writer{Token{3}, time.UnixMilli(4)}, Writer{Token{}, time.UnixMilli(5)}))
	f.Add([]byte("V"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if (err == nil) != (Kind(b) != KindMalformed) || e.Kind != Kind(b) {
			t.Fatalf("Decode says %s, %v; Kind says %s", e.Kind, err, Kind(b))
		}
		var again []byte
		switch e.Kind {
		case KindValue:
			again = AppendValue(nil, e.WrittenAt, e.SoftExpires, e.Body)
			if e.Claim != 0 {
				again = append(claimed(again, e.Claim), e.Body...)
			}
		case KindAbsent:
			again = AppendAbsent(nil, e.WrittenAt, e.SoftExpires)
			if e.Claim != 0 {
				again = claimed(again, e.Claim)
			}
		case KindLease:
			again = AppendLease(nil, e.Token)
		case KindPoison:
			again = appendWriters(nil, e.Writers...)
		default:
			return
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%q becomes %q", b, again)
		}
	})
}
