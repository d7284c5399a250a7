package systemtest

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/localcluster"
)

// verified is what `ringside verify cache --json` prints.
type verified struct {
	Checked, Fresh, Stale int
	Entries               []struct {
		Key, Cache, Shard, What string
		AgeMS                   int64 `json:"age_ms"`
	} `json:"stale_entries"`
}

func verify(t *testing.T, s *localcluster.Sidecar, wantCode int) verified {
	t.Helper()
	p := start(t, "verify", "cache", "--admin", s.Admin, "--json", "--sample", "10000")
	if code := exit(t, p, time.Minute); code != wantCode {
		t.Fatalf("exit %d, want %d; it printed: %s", code, wantCode, p.Output())
	}
	var v verified
	for line := range strings.Lines(p.Output()) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			return v
		}
	}
	t.Fatalf("no JSON in %s", p.Output())
	return v
}

// A stale copy can only be planted: by hand, under the name that counts. The command finds it, and so does each sidecar by itself.
func TestAStaleCopyIsFound(t *testing.T) {
	c := own(t, func(o *localcluster.Options) { o.Config = patient + "verify_rate: 100\n" })
	a1 := dial(t, c.Sidecars[0].Redis)
	for at := 1; at <= 200; at++ {
		a1.do(t, "GET", "user:"+strconv.Itoa(at))
	}
	a1.want(t, "(nil)", "GET", "user:800001")
	if v := verify(t, c.Sidecars[0], 0); v.Stale != 0 || v.Checked < 200 || v.Fresh < 200 {
		t.Fatalf("before anything was planted: %+v", v)
	}

	const key = "user:42"
	l := lookup(t, c.Sidecars[0], key)
	var db *redis.Client
	for _, x := range c.Caches {
		if x.Name == l.Cache {
			db = redis.NewClient(&redis.Options{Addr: x.Addr()})
		}
	}
	defer db.Close()
	names, err := db.Keys(t.Context(), "rs:*:"+key).Result()
	if err != nil || len(names) != 1 {
		t.Fatalf("entries of %s on %s: %q, %v", key, l.Cache, names, err)
	}
	entry, err := db.Get(t.Context(), names[0]).Result()
	if err != nil {
		t.Fatal(err)
	}
	const header = 18 // kind, version, written-at, soft expiry
	planted := `{"id":42,"name":"planted"}`
	if err := db.Set(t.Context(), names[0], entry[:header]+planted, redis.KeepTTL).Err(); err != nil {
		t.Fatal(err)
	}
	a1.want(t, planted, "GET", key)

	v := verify(t, c.Sidecars[0], 1)
	if v.Stale != 1 || len(v.Entries) != 1 || v.Entries[0].Key != key || v.Entries[0].Cache != l.Cache || v.Entries[0].Shard != l.Shard ||
		v.Entries[0].What != "differs" || v.Entries[0].AgeMS < 1 {
		t.Errorf("%+v", v)
	}
	found := eventually(t, time.Minute, "the other sidecar has found it by itself", func() bool {
		return metric(t, c.Sidecars[1], "ringside_stale_reads_total") > 0
	})
	t.Logf("found by the sampler within %v", found)
	if metric(t, c.Sidecars[1], "ringside_staleness_seconds_count") < 1 || metric(t, c.Sidecars[1], "ringside_verified_entries_total") < 1 {
		t.Error("the other metrics do not show it")
	}
}
