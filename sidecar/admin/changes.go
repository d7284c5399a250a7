package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"ringside/sidecar/topology"
)

// Verb is what is to be done with a cache server.
type Verb string

// The verbs, each of which is a path: /caches/add and so on.
const (
	AddCache    Verb = "add"
	DrainCache  Verb = "drain"
	WeighCache  Verb = "weight"
	RemoveCache Verb = "remove"
)

// Change is what an operator asks for. Nothing about it has been checked but that what the verb needs was given.
type Change struct {
	Verb   Verb
	Name   string
	Addr   string // of AddCache
	Weight int64  // of AddCache and WeighCache
	Flush  bool   // of AddCache: the server may hold keys, which are lost
}

// Changed is what came of a change that was accepted. It is carried out afterwards: Progress says how far it is.
type Changed struct {
	Epoch uint64 `json:"epoch"`
	// State of the server now: joining, active, draining, or gone.
	State string `json:"state"`
}

// Gone is the State of a server that was removed.
const Gone = "gone"

// BadChangeError says what is wrong with a Change itself, whatever state the cluster is in.
type BadChangeError struct{ Reason string }

func (e *BadChangeError) Error() string { return e.Reason }

// Progress is the answer of /changes: what is being carried out, as this sidecar sees it.
type Progress struct {
	Epoch    uint64 `json:"epoch"`
	Changing bool   `json:"changing"`
	// Summary says in one line what is under way; empty: nothing.
	Summary   string             `json:"summary"`
	Shards    []ShardProgress    `json:"shards"`
	Handovers []HandoverProgress `json:"handovers"`
	Servers   []ServerProgress   `json:"servers"`
	Lost      []Loss             `json:"lost"` // the last few that this sidecar has seen, the oldest first
}

// Loss is a hand-over that ended because its server did: what plain keys had not been carried over are lost.
type Loss struct {
	From  string `json:"from"`
	Since uint64 `json:"since"` // epoch in which the hand-over began
	Epoch uint64 `json:"epoch"` // that ended it
}

// ShardProgress is how far a shard has come with its rows.
type ShardProgress struct {
	Name  string `json:"name"`
	Epoch uint64 `json:"epoch"` // 0: it was not heard yet
	Phase string `json:"phase"` // preparing, active or done; empty: it was not heard yet
	Done  bool   `json:"done"`  // it needs nothing any more of what is being replaced
	Down  int64  `json:"down"`  // for how many seconds this sidecar has not reached it, from 1; 0: it is up
}

// HandoverProgress is how far plain keys have been carried over from one cache server.
type HandoverProgress struct {
	From  string `json:"from"`
	Since uint64 `json:"since"` // epoch in which it lost them
	Step  string `json:"step"`  // open, held or handed; empty: not known here
	Done  bool   `json:"done"`  // nothing is left to carry
	// Keys that were looked at there, carried to their new owners, removed because the server has no business with them any more, or dropped
	// because they were too big.
	Seen    int64  `json:"keys_seen"`
	Carried int64  `json:"keys_carried"`
	Swept   int64  `json:"keys_swept"`
	Dropped int64  `json:"keys_dropped"`
	Fault   string `json:"fault"` // why it does not go on; empty: it does
}

// ServerProgress is how a cache server is.
type ServerProgress struct {
	Name  string         `json:"name"`
	State topology.State `json:"state"`
	Well  bool           `json:"well"`  // this sidecar's own probes go well
	Fault string         `json:"fault"` // why not
	// Votes are the sidecars that vote against it; with as many as Needed it is taken out of use.
	Votes  []string `json:"votes"`
	Needed int      `json:"needed"`
}

const (
	changesPath = "/changes"
	cachesPath  = "/caches/"
	maxChange   = 64 << 10 // bytes
)

// verbs maps the paths of changes to what they do.
func verbs() map[string]Verb {
	out := map[string]Verb{}
	for _, v := range []Verb{AddCache, DrainCache, WeighCache, RemoveCache} {
		out[cachesPath+string(v)] = v
	}
	return out
}

func (s *Server) serveChanges(w http.ResponseWriter, r *http.Request) {
	if s.current(w, r) == nil {
		return
	}
	p := s.deps.Progress()
	p.Shards = append([]ShardProgress{}, p.Shards...)
	p.Handovers = append([]HandoverProgress{}, p.Handovers...)
	p.Servers = append([]ServerProgress{}, p.Servers...)
	p.Lost = append([]Loss{}, p.Lost...)
	for i := range p.Servers {
		p.Servers[i].Votes = append([]string{}, p.Servers[i].Votes...)
	}
	writeJSON(w, r, p)
}

// admitChange decides who may change something, of those who may read: only who has the token. No web page has it, so none can change
// anything, whatever browser it runs in.
func admitChange(r *http.Request, token string) *refusal {
	given, hasToken := bearer(r.Header.Get("Authorization"))
	switch {
	case token == "":
		return &refusal{http.StatusForbidden, "no admin.token is configured, so nothing can be changed: configure one and restart the sidecar"}
	case !hasToken:
		return &refusal{http.StatusUnauthorized, "changes need the token (Authorization: Bearer TOKEN)"}
	case !sameToken(given, token):
		return &refusal{http.StatusUnauthorized, "the token is wrong"}
	}
	return nil
}

// serveChange is POST /caches/add and the like.
func (s *Server) serveChange(w http.ResponseWriter, r *http.Request, verb Verb) {
	if !s.mayChange(w, r) {
		return
	}
	c, err := readChange(http.MaxBytesReader(w, r.Body, maxChange), verb)
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "%v", err)
		return
	}
	if s.current(w, r) == nil {
		return
	}
	// Whoever asked may go away; what was begun is brought to its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeWithin)
	defer cancel()
	changed, err := s.deps.Change(ctx, c)
	if err != nil {
		writeError(w, r, statusOf(err), "%v", err)
		return
	}
	s.log.Info("changed by an operator", "change", verb, "server", c.Name, "epoch", changed.Epoch, "from", r.RemoteAddr)
	w.Header().Set("Cache-Control", "no-store")
	send(w, r, http.StatusOK, typeJSON, encodeJSON(changed))
}

func statusOf(err error) int {
	var bad *BadChangeError
	var refusal *topology.Refusal
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.As(err, &refusal) && refusal.Unknown:
		return http.StatusNotFound
	case errors.As(err, &refusal):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// readChange reads the body of a change. It knows which fields a verb has; more is an error, for it may be a slip that matters.
func readChange(body io.Reader, verb Verb) (Change, error) {
	var in struct {
		Name   *string `json:"name"`
		Addr   *string `json:"addr"`
		Weight *int64  `json:"weight"`
		Flush  *bool   `json:"flush"`
	}
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return Change{}, fmt.Errorf("the body must be a JSON object such as %s: %s", example(verb), strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return Change{}, fmt.Errorf("the body must be one JSON object such as %s", example(verb))
	}
	c := Change{Verb: verb, Weight: 1}
	for _, f := range []struct {
		name          string
		given         bool
		may, required bool
	}{
		{"name", in.Name != nil, true, true},
		{"addr", in.Addr != nil, verb == AddCache, verb == AddCache},
		{"weight", in.Weight != nil, verb == AddCache || verb == WeighCache, verb == WeighCache},
		{"flush", in.Flush != nil, verb == AddCache, false},
	} {
		switch {
		case f.given && !f.may:
			return Change{}, fmt.Errorf("%s has no %s: write %s", verb, f.name, example(verb))
		case !f.given && f.required:
			return Change{}, fmt.Errorf("%s is missing: write %s", f.name, example(verb))
		}
	}
	c.Name = *in.Name
	if in.Addr != nil {
		c.Addr = *in.Addr
	}
	if in.Weight != nil {
		c.Weight = *in.Weight
	}
	c.Flush = in.Flush != nil && *in.Flush
	return c, nil
}

func example(verb Verb) string {
	switch verb {
	case AddCache:
		return `{"name":"c4","addr":"10.0.0.4:6379","weight":1,"flush":false}`
	case WeighCache:
		return `{"name":"c4","weight":2}`
	}
	return `{"name":"c4"}`
}
