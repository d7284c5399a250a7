package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

const staleJSON = `{"epoch":7,"seen":20,"complete":true,"checked":4,"fresh":2,"absent_ok":1,"stale":1,"changed_meanwhile":3,"superseded":2,"unchecked":0,` +
	`"took_ms":2100,"stale_entries":[{"key":"user:7","cache":"c1","shard":"s2","entry":"rs:1.0:user:7","age_ms":61000,"what":"differs"}],"faults":[]}`

const freshJSON = `{"epoch":7,"seen":2,"complete":false,"checked":1,"fresh":1,"absent_ok":0,"stale":0,"changed_meanwhile":0,"superseded":0,"unchecked":1,` +
	`"took_ms":5,"stale_entries":[],"faults":["shard s1 is down"]}`

func TestVerifyCache(t *testing.T) {
	for _, c := range []struct {
		args []string
		body string
		ask  string
		code int
		out  string
		err  string
	}{
		{nil, staleJSON, "sample=1000", 1, `SEEN  CHECKED  FRESH  ABSENT  STALE  CHANGED MEANWHILE  SUPERSEDED  UNCHECKED
20    4        2      1       1      3                  2           0

STALE KEY  CACHE  SHARD  AGE   WHAT
user:7     c1     s2     1m1s  differs
`, "ringside: 1 of 4 cached rows are stale\n"},
		{[]string{"--json", "--sample", "5"}, staleJSON, "sample=5", 1, staleJSON + "\n", "ringside: 1 of 4 cached rows are stale\n"},
		{[]string{"--sample=10000"}, freshJSON, "sample=10000", 0, `SEEN  CHECKED  FRESH  ABSENT  STALE  CHANGED MEANWHILE  SUPERSEDED  UNCHECKED
2     1        1      0       0      0                  0           1

NOT ALL COULD BE LOOKED AT
shard s1 is down
`, ""},
	} {
		asked := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.RawQuery
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, c.body)
		}))
		ringside(t, nil, append([]string{"verify", "cache", "--admin=" + server.URL}, c.args...)...).want(t, c.code, c.out, c.err)
		server.Close()
		if asked != c.ask {
			t.Errorf("asked for %q, want %q", asked, c.ask)
		}
	}
}
