package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countedMetrics are metrics of a sidecar that has been asked n times: it has answered 200 more requests each time, 100 of them within 1 ms.
func countedMetrics(n int) string {
	return fmt.Sprintf(`# TYPE ringside_commands_total counter
ringside_commands_total{command="get"} %[1]d50
ringside_commands_total{command="set"} %[1]d50
# TYPE ringside_row_hits_total counter
ringside_row_hits_total %[1]d0
# TYPE ringside_row_misses_total counter
ringside_row_misses_total %[1]d
# TYPE ringside_error_replies_total counter
ringside_error_replies_total{code="BADROW"} 7
ringside_error_replies_total{code="SHARDDOWN"} %[1]d
# TYPE ringside_request_duration_seconds histogram
ringside_request_duration_seconds_bucket{le="0.001"} %[1]d00
ringside_request_duration_seconds_bucket{le="0.002"} %[2]d00
ringside_request_duration_seconds_bucket{le="+Inf"} %[2]d00
ringside_request_duration_seconds_sum 1
ringside_request_duration_seconds_count %[2]d00
# TYPE ringside_topology_epoch gauge
ringside_topology_epoch 7
# TYPE ringside_clients gauge
ringside_clients 12
# TYPE ringside_cache_server_up gauge
ringside_cache_server_up{server="c1"} 1
ringside_cache_server_up{server="c2"} 0
# TYPE ringside_cache_server_votes gauge
ringside_cache_server_votes{server="c2"} 1
# TYPE ringside_shard_up gauge
ringside_shard_up{shard="s1"} 1
# TYPE ringside_shard_sessions_in_use gauge
ringside_shard_sessions_in_use{shard="s1"} 3
# TYPE ringside_shard_sessions_limit gauge
ringside_shard_sessions_limit{shard="s1"} 32
# TYPE ringside_shard_queue_oldest_seconds gauge
ringside_shard_queue_oldest_seconds{shard="s1"} 0.0124
# TYPE ringside_shard_admitted_total counter
ringside_shard_admitted_total{shard="s1"} %[1]d0
`, n, 2*n)
}

const hotJSON = `{"sidecar":"a1","half_life_seconds":30,"keys":[{"key":"big\nkey","cache":"c2","rate":20,"at_least":18},{"key":"user:1","cache":"c1","rate":30,"at_least":30}],
"shard_keys":[{"shard_key":"acme","vnode":7,"shard":"s1","override":false,"rate":8,"at_least":8}],"vnodes":[],"shards":[]}`

// countingSidecar answers /members and, a little further each time, /metrics.
func countingSidecar(t *testing.T) string {
	t.Helper()
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, membersJSON) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, countedMetrics(int(asked.Add(1)))) })
	mux.HandleFunc("GET /hotkeys", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, hotJSON) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestTopWorksOutRates(t *testing.T) {
	at := func(n int) scrape {
		s, err := readScrape(time.Unix(int64(2*n), 0), []byte(countedMetrics(n)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var hot hotAnswer
	if err := json.Unmarshal([]byte(hotJSON), &hot); err != nil {
		t.Fatal(err)
	}
	got := newTopView([]asked{{name: "a1", over: interval{at(1), at(3)}, hot: hot}, {name: "a2", fault: "gone"}})
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	// 400 requests in 4 s; 2 of 22 rows were misses; half of the requests took up to 1 ms.
	want := `{"at":"` + got.At.Format(time.RFC3339) + `","seconds":4,"all":{"requests":100,"errors":0.5,"hit_ratio":0.9090909090909091,"p50_ms":1,"p99_ms":1.98,"clients":12,"waiting":0,"row_operations":0},` +
		`"sidecars":[{"name":"a1","epoch":7,"requests":100,"errors":0.5,"hit_ratio":0.9090909090909091,"p50_ms":1,"p99_ms":1.98,"clients":12,"waiting":0,"row_operations":0,"fault":""},` +
		`{"name":"a2","epoch":0,"requests":0,"errors":0,"hit_ratio":null,"p50_ms":null,"p99_ms":null,"clients":0,"waiting":0,"row_operations":0,"fault":"gone"}],` +
		`"caches":[{"name":"c1","up":true,"votes":0,"probe_p99_ms":null,"degraded":0},{"name":"c2","up":false,"votes":1,"probe_p99_ms":null,"degraded":0}],` +
		`"shards":[{"name":"s1","up":true,"requests":5,"load_p99_ms":null,"write_p99_ms":null,"sessions_in_use":3,"sessions_limit":32,"queue_waiting":0,"queue_oldest_ms":12.4,"shed":0,"outbox_rows":0}],` +
		`"commands":[{"name":"get","rate":50},{"name":"set","rate":50}],"errors":[{"name":"SHARDDOWN","rate":0.5}],` +
		`"hot_keys":[{"key":"user:1","on":"c1","rate":30},{"key":"big\nkey","on":"c2","rate":20}],"hot_shard_keys":[{"key":"acme","on":"s1","rate":8}]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if lines := strings.Join(got.lines(), "\n"); lines != `SIDECAR  EPOCH  REQUESTS/S  ERRORS/S  HIT RATIO  P50   P99   CLIENTS  WAITING  ROWS UNDER WAY
a1       7      100         0.5       90.91%     1 ms  2 ms  12       0        0
all      -      100         0.5       90.91%     1 ms  2 ms  12       0        0

SIDECAR  CANNOT BE ASKED
a2       gone

CACHE  STATE  VOTES  PROBE P99  READS WITHOUT IT/S
c1     up     0      -          0
c2     down   1      -          0

SHARD  STATE  REQUESTS/S  LOAD P99  WRITE P99  IN USE  LIMIT  WAITING  OLDEST  SHED/S  OUTBOX
s1     up     5.0         -         -          3       32     0        12 ms   0       0

HOT KEY     CACHE  USES/S
user:1      c1     30
"big\nkey"  c2     20

HOT SHARD KEY  SHARD  USES/S
acme           s1     8.0

commands/s    get 50  set 50

errors/s    SHARDDOWN 0.5` {
		t.Errorf("it shows\n%s", lines)
	}
	// A sidecar that was started anew has counted from 0.
	if v := newTopView([]asked{{name: "a1", over: interval{at(3), scrape{time.Unix(10, 0), at(1).families}}}}); v.All.Requests != 75 || v.All.P50 == nil || *v.All.P50 != 1 {
		t.Errorf("after a restart: %+v", v.All)
	}
}

func TestQuantiles(t *testing.T) {
	b := buckets{.001: 0, .002: 50, .004: 100, math.Inf(1): 100}
	for q, want := range map[float64]float64{.25: .0015, .5: .002, .75: .003, 1: .004} {
		if got, ok := b.quantile(q); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v, %v; want %v", q, got, ok, want)
		}
	}
	if got, ok := (buckets{.001: 1, math.Inf(1): 10}).quantile(.9); !ok || got != .001 {
		t.Errorf("beyond all bounds: %v, %v", got, ok)
	}
	if _, ok := (buckets{}).quantile(.5); ok {
		t.Error("a quantile of nothing")
	}
}

func TestTopOnce(t *testing.T) {
	admin := "--admin=" + countingSidecar(t)
	got := ringside(t, nil, "top", admin, "--once", "--every=100ms")
	if got.code != exitDone || got.stderr != "" || !strings.Contains(got.stdout, "\na1 ") || !strings.Contains(got.stdout, "\nc2     down   1 ") || strings.Contains(got.stdout, "\x1b") {
		t.Error(got)
	}
	got = ringside(t, nil, "top", admin, "--once", "--json", "--all", "--every=100ms")
	var v topView
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || got.code != exitDone || len(v.Sidecars) != 1 || v.All.Requests <= 0 { // the other one is suspect
		t.Errorf("%v: %v", err, got)
	}
	if got := ringside(t, nil, "top", admin, "--every=1ms"); got.code != exitUsage || !strings.Contains(got.stderr, "--every is 1ms; allowed are 100ms to 1h") {
		t.Error(got)
	}
}
