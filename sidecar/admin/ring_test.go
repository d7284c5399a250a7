package admin

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"ringside/ring"
)

func decodeOwners(t *testing.T, text string) []uint16 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 2*ring.Vnodes {
		t.Fatalf("%d bytes of owners, %v", len(raw), err)
	}
	out := make([]uint16, ring.Vnodes)
	for v := range out {
		out[v] = binary.LittleEndian.Uint16(raw[2*v:])
	}
	return out
}

func TestRingAsJSON(t *testing.T) {
	top := overridden(t)
	body := get(newSetup(t, top).server(t), "/ring").Body.Bytes()
	var got ringAnswer
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if caches := decodeOwners(t, got.Owners.Cache); !slices.Equal(caches, top.CacheTable()) {
		t.Error("the cache servers' vnodes differ from the topology's")
	}
	shards := decodeOwners(t, got.Owners.Shard)
	if !slices.Equal(shards, top.ShardTable()) {
		t.Error("the shards' vnodes differ from the topology's")
	}
	c, s := ring.Counts(top.CacheTable(), 3), ring.Counts(shards, 2)
	share := func(n int) string {
		text, _ := json.Marshal(float64(n) / 65536)
		return string(text)
	}
	want := fmt.Sprintf(`{"epoch":7,"vnodes":65536,"caches":[`+
		`{"name":"c1","addr":"10.0.0.1:6379","weight":1,"state":"active","vnodes":%d,"share":%s},`+
		`{"name":"c2","addr":"10.0.0.2:6379","weight":2,"state":"active","vnodes":%d,"share":%s},`+
		`{"name":"c3","addr":"10.0.0.3:6379","weight":0,"state":"active","vnodes":0,"share":0}],"shards":[`+
		`{"name":"s1","weight":1,"state":"active","vnodes":%d,"share":%s},{"name":"s2","weight":3,"state":"active","vnodes":%d,"share":%s}],`+
		`"overrides":[{"shard_key":"acme","shard":"s1"}],"owners":{"cache":"%s","shard":"%s"}}`+"\n",
		c[0], share(c[0]), c[1], share(c[1]), s[0], share(s[0]), s[1], share(s[1]), got.Owners.Cache, got.Owners.Shard)
	if string(body) != want {
		t.Errorf("got  %.800s\nwant %.800s", body, want)
	}
	if c[0]+c[1] != ring.Vnodes || s[0] != ring.Vnodes/4 {
		t.Errorf("vnodes: %v of the cache servers, %v of the shards", c, s)
	}
}

// TestSameRingEverywhere guards promise P1 as far as it shows: the order in which a sidecar was told of servers, its name and its members
// leave no trace.
func TestSameRingEverywhere(t *testing.T) {
	one := newSetup(t, small(t))
	caches, shards := smallCaches(), smallShards()
	slices.Reverse(caches)
	slices.Reverse(shards)
	two := newSetup(t, bootstrap(t, caches, shards))
	two.deps.Name, two.deps.Version = "a2", "v9"
	two.deps.Members = func() []Member { return []Member{{Name: "a2"}} }
	first, second := one.server(t), two.server(t)
	for _, target := range []string{"/ring", "/topology"} {
		a, b := get(first, target), get(second, target)
		if !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) || a.Header().Get("ETag") != b.Header().Get("ETag") {
			t.Errorf("%s differs", target)
		}
	}
}

func TestTopologyIsCanonical(t *testing.T) {
	top := small(t)
	if got := get(newSetup(t, top).server(t), "/topology").Body.Bytes(); !bytes.Equal(got, top.JSON()) {
		t.Error("/topology is not the canonical JSON")
	}
}

func TestTagsAndCompression(t *testing.T) {
	s := newSetup(t, small(t))
	server := s.server(t)
	for _, target := range []string{"/ring", "/topology", "/ring?format=html"} {
		plain := get(server, target)
		tag := plain.Header().Get("ETag")
		if tag == "" || plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("Vary") == "" {
			t.Errorf("%s: headers %v", target, plain.Header())
		}
		zipped := get(server, target, "Accept-Encoding: br;q=1, gzip;q=0.5")
		z, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		unzipped, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(unzipped, plain.Body.Bytes()) || zipped.Header().Get("ETag") != tag || zipped.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s compressed: %v, %d bytes, headers %v", target, err, len(unzipped), zipped.Header())
		}
		if refused := get(server, target, "Accept-Encoding: gzip;q=0"); refused.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: compressed for who refuses it", target)
		}
		for _, known := range []string{tag, `"x", ` + tag, strings.TrimPrefix(tag, "W/"), "*"} {
			if w := get(server, target, "If-None-Match: "+known); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
				t.Errorf("%s, If-None-Match %s: %d, %d bytes", target, known, w.Code, w.Body.Len())
			}
		}
		if w := get(server, target, `If-None-Match: W/"x"`); w.Code != http.StatusOK {
			t.Errorf("%s, another tag: %d", target, w.Code)
		}
		if w := answer(server, request(http.MethodHead, target)); w.Body.Len() != 0 || w.Header().Get("Content-Length") != plain.Header().Get("Content-Length") {
			t.Errorf("HEAD %s: %d bytes, headers %v", target, w.Body.Len(), w.Header())
		}
	}
	before := get(server, "/ring").Header().Get("ETag")
	s.deps.Topology.Publish(overridden(t))
	if after := get(server, "/ring"); after.Header().Get("ETag") == before || !strings.HasPrefix(after.Body.String(), `{"epoch":7,`) {
		t.Error("a new topology does not show")
	}
}

func TestPageOrJSON(t *testing.T) {
	server := newSetup(t, small(t)).server(t)
	for _, test := range []struct {
		target, accept, want string
	}{
		{"/ring", "", typeJSON},
		{"/ring", "*/*", typeJSON},
		{"/ring", "application/json", typeJSON},
		{"/ring", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", typeHTML},
		{"/ring", "application/json, text/html;q=0.5", typeJSON},
		{"/ring", "text/html, application/json;q=0.5", typeHTML},
		{"/ring", "text/html;q=0", typeJSON},
		{"/ring?format=json", "text/html", typeJSON},
		{"/ring?format=html", "application/json", typeHTML},
	} {
		if got := get(server, test.target, "Accept: "+test.accept).Header().Get("Content-Type"); got != test.want {
			t.Errorf("%s, Accept %q: %s", test.target, test.accept, got)
		}
	}
}
