package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
)

// HotKeys is what a sidecar knows, from samples, of what is used most lately: by its own clients, and by itself of the shards. Rates are per second.
type HotKeys struct {
	Sidecar  string  `json:"sidecar"`
	HalfLife float64 `json:"half_life_seconds"` // a use that long ago counts half
	// Keys are those that clients name, ShardKeys and Vnodes those whose rows are read from shards or written: not what the cache answers.
	Keys      []HotKey      `json:"keys"`
	ShardKeys []HotShardKey `json:"shard_keys"`
	Vnodes    []HotVnode    `json:"vnodes"` // without shard keys that have overrides
	Shards    []HotShard    `json:"shards"` // likewise
}

// HotKey is a key as clients name it; its first 256 bytes.
type HotKey struct {
	Key     string  `json:"key"`
	Cache   string  `json:"cache"`
	Rate    float64 `json:"rate"`
	AtLeast float64 `json:"at_least"` // less by what may belong to keys that are not remembered
}

// HotShardKey is a shard key.
type HotShardKey struct {
	ShardKey string  `json:"shard_key"`
	Vnode    uint16  `json:"vnode"`
	Shard    string  `json:"shard"`
	Override bool    `json:"override"`
	Rate     float64 `json:"rate"`
	AtLeast  float64 `json:"at_least"`
}

// HotVnode is a vnode of the shard map.
type HotVnode struct {
	Vnode uint16  `json:"vnode"`
	Shard string  `json:"shard"`
	Rate  float64 `json:"rate"`
}

// HotShard is what goes to one shard.
type HotShard struct {
	Name   string  `json:"name"`
	Vnodes int     `json:"vnodes"`
	Rate   float64 `json:"rate"`
}

const (
	hotKeysPath  = "/hotkeys"
	hotKeysShown = 20
	hotKeysLimit = 100
)

// serveHotKeys is /hotkeys?n=20.
func (s *Server) serveHotKeys(w http.ResponseWriter, r *http.Request) {
	n := hotKeysShown
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > hotKeysLimit {
			writeError(w, r, http.StatusBadRequest, "n is %q: it must be a number from 1 to %d", text, hotKeysLimit)
			return
		}
	}
	if s.current(w, r) == nil {
		return
	}
	h := s.deps.HotKeys(n)
	slices.SortFunc(h.Vnodes, func(a, b HotVnode) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Vnode, b.Vnode)) })
	h.Keys, h.ShardKeys, h.Shards = append([]HotKey{}, h.Keys...), append([]HotShardKey{}, h.ShardKeys...), append([]HotShard{}, h.Shards...)
	h.Vnodes = append([]HotVnode{}, h.Vnodes[:min(n, len(h.Vnodes))]...)
	writeJSON(w, r, h)
}
