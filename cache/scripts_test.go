package cache

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// TestScriptsOnEveryEntry runs each script against each state that an entry can be in: the transitions of the protocol, whole.
func TestScriptsOnEveryEntry(t *testing.T) {
	r := realredis.T(t)
	s := newSidecar(t, testConfig(), r)
	db := admin(t, r)
	srv := s.servers.acquire("c1")
	defer s.servers.release(srv)

	now := time.Now()
	ours, theirs := Token{1}, Token{2}
	soon, late, over := now.Add(time.Minute), now.Add(2*time.Minute), now.Add(-time.Second) // the server has our clock
	poison := func(writers ...Writer) string { return string(appendWriters(nil, writers...)) }
	value := string(AppendValue(nil, now, now, []byte("old")))
	entries := map[string]string{
		"nothing":        "",
		"value":          value,
		"absent":         string(AppendAbsent(nil, now, now)),
		"fresh":          string(AppendValue(nil, now, late, []byte("old"))),
		"we refresh":     string(claimed([]byte(value), 1)) + "old",
		"they refresh":   string(claimed([]byte(value), 2)) + "old",
		"our lease":      string(AppendLease(nil, ours)),
		"their lease":    string(AppendLease(nil, theirs)),
		"ours awaited":   string(awaited(AppendLease(nil, ours))),
		"theirs awaited": string(awaited(AppendLease(nil, theirs))),
		"our poison":     poison(Writer{ours, soon}),
		"their poison":   poison(Writer{theirs, soon}),
		"both poisons":   poison(Writer{theirs, soon}, Writer{ours, late}, Writer{Token{3}, late}),
		"old poison":     poison(Writer{theirs, over}),
		"ours after old": poison(Writer{theirs, over}, Writer{ours, soon}),
		"malformed":      "?",
		"short poison":   poison(Writer{theirs, soon})[:9],
		"no poison":      poison(),
		"longer poison":  poison(Writer{theirs, soon}) + "x",
		"another type":   "",
	}
	fill := string(AppendValue(nil, now, now, []byte("new")))
	const keeps = "\x00"
	for _, tc := range []struct {
		name   string
		script *script
		args   []any
		after  map[string]string // what is there afterwards; default is what stands under ""
	}{
		{"fill", s.scripts.fill, []any{AppendLease(nil, ours), fill, 60000, awaited(AppendLease(nil, ours))},
			map[string]string{"": keeps, "our lease": fill, "ours awaited": fill}},
		{"release", s.scripts.release, []any{AppendLease(nil, ours), awaited(AppendLease(nil, ours))},
			map[string]string{"": keeps, "our lease": "", "ours awaited": ""}},
		{"await", s.scripts.await, []any{AppendLease(nil, theirs), awaited(AppendLease(nil, theirs))},
			map[string]string{"": keeps, "their lease": string(awaited(AppendLease(nil, theirs)))}},
		{"lift", s.scripts.lift, []any{ours[:]}, map[string]string{"": keeps, "our poison": "", "ours after old": "",
			"both poisons": poison(Writer{theirs, soon}, Writer{Token{3}, late})}},
		{"clean", s.scripts.clean, []any{ours[:]}, map[string]string{"": "", "their poison": keeps,
			"both poisons": poison(Writer{theirs, soon}, Writer{Token{3}, late})}},
		{"claim", s.scripts.claim, []any{value[softAt:HeaderSize], claimed([]byte(value), 1)[softAt:]},
			map[string]string{"": keeps, "value": string(claimed([]byte(value), 1)) + "old", "absent": "A" + string(claimed([]byte(value), 1)[1:])}},
		{"renew", s.scripts.renew, []any{claimed([]byte(value), 1), fill, 60000}, map[string]string{"": keeps, "we refresh": fill}},
		{"unclaim", s.scripts.unclaim, []any{claimed([]byte(value), 1), value[softAt:HeaderSize]}, map[string]string{"": keeps, "we refresh": value}},
		{"discard", s.scripts.discard, []any{"?"}, map[string]string{"": keeps, "malformed": "", "another type": ""}},
	} {
		for state, before := range entries {
			t.Run(tc.name+" on "+state, func(t *testing.T) {
				db.Del(ctxb, "k")
				switch {
				case state == "another type":
					db.LPush(ctxb, "k", "x")
				case before != "":
					db.Set(ctxb, "k", before, 0)
				}
				st := &step{srv: srv, script: tc.script, name: "k", args: tc.args}
				s.exec(ctxb, []*step{st})
				n, err := st.number()
				if text, ok := st.cmd.(*redis.Cmd).Val().(string); ok { // claim's answer
					n, err = 1, nil
					if text != before[:HeaderSize] {
						t.Fatalf("answer %q", text)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				want, given := tc.after[state]
				if !given {
					want = tc.after[""]
				}
				got, err := db.Get(ctxb, "k").Result()
				if state == "another type" {
					if exists := db.Exists(ctxb, "k").Val() == 1; exists != (want == keeps) {
						t.Fatalf("exists: %v (answer %d)", exists, n)
					}
					return
				}
				if errors.Is(err, redis.Nil) {
					got, err = "", nil
				}
				if want == keeps {
					want = before
				}
				if err != nil || got != want {
					t.Fatalf("%q became %q (%v, answer %d), want %q", before, got, err, n, want)
				}
				if awaits := got == string(awaited(AppendLease(nil, theirs))); tc.name == "await" && awaits != (n > 0) {
					t.Fatalf("answer %d, awaited %v", n, awaits)
				}
				if changed := got != before; (tc.name == "claim" || tc.name == "renew" || tc.name == "unclaim") && changed != (n == 1) {
					t.Fatalf("answer %d, changed %v", n, changed)
				}
				if deleted := got == "" && before != ""; slices.Contains([]string{"release", "lift", "clean", "discard"}, tc.name) && deleted != (n == 1) {
					t.Fatalf("answer %d, deleted %v", n, deleted)
				}
				if filled := got == fill; tc.name == "fill" && filled != (n == 1) {
					t.Fatalf("answer %d, filled %v", n, filled)
				}
				if Kind([]byte(got)) == KindPoison && got != before {
					most := time.Until(late)
					if left := db.PTTL(ctxb, "k").Val(); left > most+time.Millisecond || left < time.Until(late)-30*time.Second {
						t.Fatalf("the entry lives %v, its last writer %v", left, most)
					}
				}
			})
		}
	}
	db.Set(ctxb, "k", string(AppendLease(nil, ours)), 15*time.Second)
	s.exec(ctxb, []*step{{srv: srv, script: s.scripts.fill, name: "k", args: []any{AppendLease(nil, ours), fill, 60000}}})
	if ttl := db.PTTL(ctxb, "k").Val(); ttl < 20*time.Second || ttl > time.Minute {
		t.Errorf("a filled entry lives %v", ttl)
	}
}

func TestScriptsSurviveScriptFlush(t *testing.T) {
	r := realredis.T(t)
	s := newSidecar(t, testConfig(), r)
	db := admin(t, r)
	reg := new(row)
	for i := range 3 {
		ref := Ref{Server: "c1", Name: "rs:1.0:k"}
		if err := s.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
			t.Fatal(err)
		}
		db.ScriptFlush(ctxb)
		v, err := s.Read(ctxb, ref, time.Minute, 0, reg.loader)
		wantVersion(t, v, err, i+1)
		if v.Source != Filled {
			t.Fatalf("source %s after SCRIPT FLUSH", v.Source)
		}
		db.ScriptFlush(ctxb)
	}
}
