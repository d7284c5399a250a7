package admin

import "net/http"

// Invalidation is the answer of /invalidation: how changes that others make on the shards are followed.
type Invalidation struct {
	Mode   string      `json:"mode"` // wal or off
	Shards []Following `json:"shards"`
}

// Following is how one shard's changes are followed, as this sidecar sees it.
type Following struct {
	Name     string `json:"name"`
	State    string `json:"state"`    // of this sidecar: starting, down, off, standby or active (it is the one that follows)
	Follower string `json:"follower"` // the sidecar that follows, by the shard's word; empty: nobody did yet
	// LagMS is how long ago all changes that were visible then had been dealt with; null: nobody knows.
	LagMS    *int64 `json:"lag_ms"`
	Degraded bool   `json:"degraded"` // changes may be heard of late, so rows are cached for a moment only
	Reason   string `json:"reason"`   // what is wrong; empty: nothing
	// Left are keyspaces that cannot be followed, with the reason: their ttl is the bound. Only the active sidecar knows.
	Left map[string]string `json:"left,omitempty"`

	Slot          string `json:"slot"`       // empty: there is none
	WALStatus     string `json:"wal_status"` // of the slot
	RetainedBytes int64  `json:"retained_bytes"`
	SafeBytes     *int64 `json:"safe_bytes"` // null: without limit
}

func (s *Server) serveInvalidation(w http.ResponseWriter, r *http.Request) {
	shown := s.deps.Invalidation()
	shown.Shards = append([]Following{}, shown.Shards...)
	writeJSON(w, r, shown)
}
