package admin

import (
	"net/http"
	"strings"
	"testing"
)

// The hottest vnodes come first, and no more of each than was asked for.
func TestHotKeys(t *testing.T) {
	s := newSetup(t, small(t))
	asked := 0
	s.deps.HotKeys = func(n int) HotKeys {
		asked = n
		return HotKeys{
			Sidecar: "app-1", HalfLife: 60, Keys: []HotKey{{Key: "user:42", Cache: "c1", Rate: 12.5, AtLeast: 12}},
			Vnodes: []HotVnode{{7, "s1", 1}, {9, "s2", 3}, {8, "s1", 2}},
		}
	}
	server := s.server(t)
	ask := func(target string) (int, string) {
		r := get(server, target)
		return r.Code, r.Body.String()
	}
	code, body := ask("/hotkeys?n=2")
	if code != http.StatusOK || asked != 2 || !strings.Contains(body, `"vnodes":[{"vnode":9,"shard":"s2","rate":3},{"vnode":8,"shard":"s1","rate":2}]`) ||
		!strings.Contains(body, `"keys":[{"key":"user:42","cache":"c1","rate":12.5,"at_least":12}],"shard_keys":[]`) {
		t.Errorf("%d, n %d: %s", code, asked, body)
	}
	if code, _ := ask("/hotkeys"); code != http.StatusOK || asked != hotKeysShown {
		t.Errorf("%d, n %d", code, asked)
	}
	for _, n := range []string{"0", "101", "many"} {
		if code, body := ask("/hotkeys?n=" + n); code != http.StatusBadRequest {
			t.Errorf("n=%s: %d %s", n, code, body)
		}
	}
}
