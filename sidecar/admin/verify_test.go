package admin

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestVerifyIsBounded(t *testing.T) {
	s := newSetup(t, small(t))
	var asked []int
	s.deps.Verify = func(ctx context.Context, sample int) Verification {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a verification without a deadline")
		}
		asked = append(asked, sample)
		return Verification{Epoch: 1, Seen: 3, Checked: 2, Fresh: 2}
	}
	server := s.server(t)
	for target, want := range map[string]string{
		"/verify?sample=0":         `{"error":"sample must be one number from 1 to 10000"}`,
		"/verify?sample=10001":     `{"error":"sample must be one number from 1 to 10000"}`,
		"/verify?sample=x":         `{"error":"sample must be one number from 1 to 10000"}`,
		"/verify?sample=1&sample=": `{"error":"sample must be one number from 1 to 10000"}`,
		"/verify?%":                `{"error":"the query is malformed: write /verify?sample=1000"}`,
	} {
		if w := get(server, target); w.Code != http.StatusBadRequest || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	const want = `{"epoch":1,"seen":3,"complete":false,"checked":2,"fresh":2,"absent_ok":0,"stale":0,"changed_meanwhile":0,"superseded":0,` +
		`"unchecked":0,"took_ms":0,"stale_entries":[],"faults":[]}`
	for _, target := range []string{"/verify", "/verify?sample=10000"} {
		if w := get(server, target); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if len(asked) != 2 || asked[0] != DefaultSample || asked[1] != MaxSample {
		t.Errorf("asked for %v", asked)
	}
}

func TestOneVerificationAtATime(t *testing.T) {
	s := newSetup(t, small(t))
	begun, end := make(chan struct{}), make(chan struct{})
	s.deps.Verify = func(context.Context, int) Verification {
		close(begun)
		<-end
		return Verification{}
	}
	server := s.server(t)
	first := make(chan int, 1)
	go func() { first <- get(server, "/verify").Code }()
	<-begun
	if w := get(server, "/verify"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("the second one: %d %s", w.Code, w.Body)
	}
	close(end)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first one: %d", code)
	}
}

func TestInvalidation(t *testing.T) {
	s := newSetup(t, small(t))
	lag, safe := int64(12), int64(1000)
	s.deps.Invalidation = func() Invalidation {
		return Invalidation{Mode: "wal", Shards: []Following{
			{Name: "s1", State: "active", Follower: "a1", LagMS: &lag, Slot: "ringside_s1", WALStatus: "reserved", RetainedBytes: 7, SafeBytes: &safe},
			{Name: "s2", State: "off", Reason: "wal_level is replica"},
		}}
	}
	const want = `{"mode":"wal","shards":[` +
		`{"name":"s1","state":"active","follower":"a1","lag_ms":12,"degraded":false,"reason":"","slot":"ringside_s1","wal_status":"reserved","retained_bytes":7,"safe_bytes":1000},` +
		`{"name":"s2","state":"off","follower":"","lag_ms":null,"degraded":false,"reason":"wal_level is replica","slot":"","wal_status":"","retained_bytes":0,"safe_bytes":null}]}`
	if w := get(s.server(t), "/invalidation"); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
