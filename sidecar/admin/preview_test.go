package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
	"testing"
	"time"

	"ringside/sidecar/topology"
)

func TestPreview(t *testing.T) {
	server := newSetup(t, overridden(t)).server(t)
	for _, test := range []struct {
		query string
		want  string // of the answer, all but the servers and what moves
		after map[string]float64
	}{
		{"add=c4&weight=3", `{"epoch":7,"fleet":"cache","change":"add","name":"c4","collateral":0,"wait":""}`, map[string]float64{"c1": 1. / 6, "c2": 2. / 6, "c3": 0, "c4": 0.5}},
		{"drain=c1", `{"epoch":7,"fleet":"cache","change":"drain","name":"c1","collateral":0,"wait":""}`, map[string]float64{"c1": 0, "c2": 1, "c3": 0}},
		{"weigh=c3&weight=3&add", `error`, nil},
		{"weigh=c3&weight=3", `{"epoch":7,"fleet":"cache","change":"weigh","name":"c3","collateral":0,"wait":""}`, map[string]float64{"c1": 1. / 6, "c2": 2. / 6, "c3": 0.5}},
		{"drain=s1&fleet=shard", `{"epoch":7,"fleet":"shard","change":"drain","name":"s1","collateral":0,"wait":""}`, map[string]float64{"s1": 0, "s2": 1}},
	} {
		w := get(server, "/ring/preview?"+test.query)
		if test.want == "error" {
			if w.Code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", test.query, w.Code, w.Body)
			}
			continue
		}
		var a previewAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
			t.Errorf("%s: %d %v %s", test.query, w.Code, err, w.Body)
			continue
		}
		head := encodeJSON(struct {
			Epoch      uint64                `json:"epoch"`
			Fleet      topology.Fleet        `json:"fleet"`
			Change     topology.ProposalVerb `json:"change"`
			Name       string                `json:"name"`
			Collateral int                   `json:"collateral"`
			Wait       string                `json:"wait"`
		}{a.Epoch, a.Fleet, a.Change, a.Name, a.Collateral, a.Wait})
		if got := strings.TrimSpace(string(head)); got != test.want {
			t.Errorf("%s: %s", test.query, got)
		}
		moving, err := base64.StdEncoding.DecodeString(a.Moving)
		n, gained := 0, 0
		for _, b := range moving {
			n += bits.OnesCount8(b)
		}
		for _, s := range a.Servers {
			gained += s.Gained
			if want, ok := test.after[s.Name]; !ok || s.ShareAfter < want-0.01 || s.ShareAfter > want+0.01 || s.New != (s.Name == "c4") {
				t.Errorf("%s: %+v, want a share of %.3f", test.query, s, want)
			}
		}
		if err != nil || n != a.Moved || gained != a.Moved || a.Share != float64(n)/65536 || len(a.Servers) != len(test.after) {
			t.Errorf("%s: %d bits, %d gained, %d moved: %v", test.query, n, gained, a.Moved, err)
		}
	}
}

func TestPreviewRefuses(t *testing.T) {
	server := newSetup(t, small(t)).server(t)
	for query, want := range map[string]struct {
		code int
		text string
	}{
		"":                         {400, "no change is given"},
		"add=":                     {400, "the name is empty"},
		"add=a&drain=c1":           {400, "one change at a time"},
		"add=a&add=b":              {400, "one change at a time"},
		"add=a&weight=-1":          {400, `{"error":"weight is -1: it must be from 0 to 1000000"}`},
		"add=a&weight=1000001":     {400, `{"error":"weight is 1000001: it must be from 0 to 1000000"}`},
		"weigh=c1&weight=1000001":  {400, `{"error":"weight is 1000001: it must be from 0 to 1000000"}`},
		"add=a&weight=1.5":         {400, `{"error":"weight is \"1.5\": it must be a whole number from 0 to 1000000"}`},
		"add=a&weight=1e30":        {400, `{"error":"weight is \"1e30\": it must be a whole number from 0 to 1000000"}`},
		"add=C+4":                  {400, `{"error":"name is \"C 4\": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit"}`},
		"add=-s&fleet=shard":       {400, `{"error":"name is \"-s\": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit"}`},
		"change=add&name=a/b":      {400, `name is \"a/b\": a name is 1 to 63`},
		"weigh=C9&weight=1":        {404, "there is no cache server C9"},
		"add=a&weight=1000000":     {200, `"weight_after":1000000`},
		"weigh=c1":                 {400, "weight is missing"},
		"drain=c1&fleet=both":      {400, "it must be cache or shard"},
		"drain=%zz":                {400, "the query is malformed"},
		"drain=c9":                 {404, "there is no cache server c9"},
		"drain=s9&fleet=shard":     {404, "there is no shard s9"},
		"add=c1":                   {409, "there is a cache server c1 already"},
		"weigh=c2&weight=0":        {200, `"name":"c2"`},
		"drain=c2&weight=whatever": {200, `"name":"c2"`}, // what the form sends along
	} {
		if w := get(server, "/ring/preview?"+query); w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%q: %d %.200s", query, w.Code, w.Body)
		}
	}
	if w := get(newSetup(t, nil).server(t), "/ring/preview?drain=c1"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a topology: %d", w.Code)
	}
}

// TestPreviewsAreBounded: promise P6. One is made at a time, and the page, which asks again and again, costs nothing.
func TestPreviewsAreBounded(t *testing.T) {
	top := small(t)
	x := newPreviews()
	drain := func(name string) topology.Proposal {
		return topology.Proposal{Fleet: topology.CacheFleet, Verb: topology.ProposeDrain, Name: name}
	}
	first, err := x.get(t.Context(), top, drain("c1"))
	if err != nil {
		t.Fatal(err)
	}
	x.turn <- struct{}{} // somebody else's
	if again, err := x.get(t.Context(), top, drain("c1")); err != nil || again != first {
		t.Errorf("made anew: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := x.get(ctx, top, drain("c2")); !errors.Is(err, errPreviewBusy) {
		t.Errorf("beside another one: %v", err)
	}
	<-x.turn
	if other, err := x.get(t.Context(), overridden(t), drain("c1")); err != nil || other == first || other.Epoch != 7 {
		t.Errorf("of another ring: %v", err)
	}
	for i := range uint32(2 * previewKept) {
		if _, err := x.get(t.Context(), top, topology.Proposal{Fleet: topology.ShardFleet, Verb: topology.ProposeWeigh, Name: "s1", Weight: &i}); err != nil {
			t.Fatal(err)
		}
	}
	if len(x.kept) != previewKept {
		t.Errorf("%d are kept", len(x.kept))
	}

	shards := make([]topology.Shard, previewServers)
	for i := range shards {
		shards[i] = topology.Shard{Name: fmt.Sprintf("s%04d", i), DSN: "d", Weight: 1}
	}
	if _, err := x.get(t.Context(), bootstrap(t, nil, shards), drain("s0000")); err == nil || !strings.Contains(err.Error(), "previews are made for fewer than") {
		t.Errorf("of a huge fleet: %v", err)
	}
}
