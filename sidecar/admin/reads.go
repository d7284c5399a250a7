package admin

import (
	"errors"
	"net/http"
	"net/url"

	"ringside/sidecar/topology"
)

// errNoTopology is what is said while there is nothing to show.
var errNoTopology = errors.New("no topology yet: the sidecar is still starting")

// current returns the topology to answer from, or answers that there is none.
func (s *Server) current(w http.ResponseWriter, r *http.Request) *topology.Topology {
	t := s.deps.Topology.Current()
	if t == nil {
		w.Header().Set("Retry-After", "1")
		writeError(w, r, http.StatusServiceUnavailable, "%v", errNoTopology)
	}
	return t
}

// serveLookup is /ring/lookup?key=: where a key lives, and why. Any key will do, the empty one too, but it must be given.
func (s *Server) serveLookup(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "the query is malformed: %v", err)
		return
	}
	keys := query["key"]
	if len(keys) != 1 {
		writeError(w, r, http.StatusBadRequest, "%d keys are given: write /ring/lookup?key=KEY, percent-encoded", len(keys))
		return
	}
	t := s.current(w, r)
	if t == nil {
		return
	}
	l, err := t.Locate(s.deps.Keyspaces, []byte(keys[0]))
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "%v", err)
		return
	}
	writeJSON(w, r, l)
}

func (s *Server) serveMembers(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, r, struct {
		Members []Member `json:"members"`
	}{append([]Member{}, s.deps.Members()...)})
}

// servePools shows this sidecar's own connections to the shards.
func (s *Server) servePools(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, r, struct {
		Shards []Pool `json:"shards"`
	}{append([]Pool{}, s.deps.Pools()...)})
}

// serveHealth says that the process lives, and nothing else: it must not be restarted for the troubles of others.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	send(w, r, http.StatusOK, typeText, []byte("ok\n"))
}

// serveReady says whether the application beside this sidecar can use it.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if err := s.deps.Ready(); err != nil {
		writeError(w, r, http.StatusServiceUnavailable, "not ready: %v", err)
		return
	}
	send(w, r, http.StatusOK, typeText, []byte("ready\n"))
}
