package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ringside/ring"
)

// Shards does what operators ask for about shards, and about moves of vnodes between them. The functions are called by many goroutines; each ends within ctx.
// Their errors are a *BadChangeError, a *topology.Refusal, or say why it could not be done now.
type Shards struct {
	Plan   func(ctx context.Context, want MoveRequest) (MovePlan, error)
	Start  func(ctx context.Context, want MoveRequest) (MoveStarted, error)
	Cancel func(ctx context.Context, id int64) error
	Moves  func(ctx context.Context) ([]MovePart, error)
	Verify func(ctx context.Context) (MoveVerification, error)
	Add    func(ctx context.Context, s NewShard) (Changed, error)
	Remove func(ctx context.Context, name string) (Changed, error)
	Weigh  func(ctx context.Context, name string, weight int64) (Changed, error)
	Attach func(ctx context.Context, table string) (Attached, error)
}

func (s Shards) complete() bool {
	return s.Plan != nil && s.Start != nil && s.Cancel != nil && s.Moves != nil && s.Verify != nil && s.Add != nil && s.Weigh != nil && s.Remove != nil && s.Attach != nil
}

// MoveRequest is what is to be moved: what the weights ask for, the vnodes First to Last to shard To, or the shard key Key to it, by an override; without To, back to
// the shard of its vnode.
type MoveRequest struct {
	To          string
	First, Last int // with To
	Key         string
	ByLoad      bool // without the others: the weights ask for shares of the load, as far as this sidecar knows it, not of the vnodes
}

// MovePlan is what a request comes to. Nothing was changed.
type MovePlan struct {
	Flows   []MoveFlow `json:"flows"`
	Parts   int        `json:"parts"`
	Vnodes  int        `json:"vnodes"`
	Rows    int64      `json:"rows"`  // about
	Bytes   int64      `json:"bytes"` // about
	Seconds float64    `json:"seconds"`
	Refused []string   `json:"refused"` // why it would not be begun; empty: nothing speaks against it
	Notes   []string   `json:"notes"`
	// Shards are all of them, now and then.
	Shards []PlannedShard `json:"shards"`
}

// PlannedShard is what a shard has, and would have after the move. Loads are of this sidecar's requests to it, a second.
type PlannedShard struct {
	Name       string  `json:"name"`
	Weight     uint32  `json:"weight"`
	Vnodes     int     `json:"vnodes"`
	VnodesThen int     `json:"vnodes_then"`
	Load       float64 `json:"load"`
	LoadThen   float64 `json:"load_then"`
}

// MoveFlow is what goes from one shard to another.
type MoveFlow struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Vnodes int    `json:"vnodes"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	// Load is that of the vnodes, in requests of this sidecar a second.
	Load float64 `json:"load"`
}

// MoveStarted is a move that was written down.
type MoveStarted struct {
	ID     int64 `json:"id"`
	Parts  int   `json:"parts"`
	Vnodes int   `json:"vnodes"`
	Rows   int64 `json:"rows"` // about
}

// MovePart is one part of a move.
type MovePart struct {
	Move     int64   `json:"move"`
	Part     int64   `json:"part"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Vnodes   int     `json:"vnodes"`
	ShardKey string  `json:"shard_key,omitempty"` // only this one of its vnode
	Clear    bool    `json:"clear,omitempty"`     // its override ends
	State    string  `json:"state"`               // waiting, running, done, cancelled or failed
	Cancel   bool    `json:"cancel"`
	Step     string  `json:"step"`
	Why      string  `json:"why"`  // what holds it up, or why it failed
	Rows     int64   `json:"rows"` // about, in all
	Bytes    int64   `json:"bytes"`
	Copied   int64   `json:"copied"`
	Sent     int64   `json:"sent"` // bytes
	Changes  int64   `json:"changes"`
	Deleted  int64   `json:"deleted"`
	Rate     float64 `json:"rate"`        // rows a second
	ETA      float64 `json:"eta_seconds"` // until all is copied; -1: not known
	Attempts int     `json:"attempts"`
	Blocked  float64 `json:"blocked_ms"`
	Seconds  float64 `json:"seconds"` // since it was begun
}

// MoveVerification says whether the shards have what the shard map says.
type MoveVerification struct {
	Epoch  uint64          `json:"epoch"`
	Shards []ShardVerified `json:"shards"`
	Faults []string        `json:"faults"`
}

// ShardVerified is what was found on one shard.
type ShardVerified struct {
	Name   string `json:"name"`
	Vnodes int    `json:"vnodes"`
	// Overrides are the shard keys that it owns by overrides.
	Overrides int   `json:"overrides"`
	Moving    int   `json:"moving"`
	Rows      int64 `json:"rows"`
	Astray    int64 `json:"astray"`
}

// NewShard is a shard that is to be added.
type NewShard struct {
	Name           string `json:"name"`
	DSN            string `json:"dsn"`
	Weight         int64  `json:"weight"`
	MaxConnections int64  `json:"max_connections"`
}

// Attached says on which shards a table was attached.
type Attached struct {
	Table  string   `json:"table"`
	Shards []string `json:"shards"`
}

const (
	movesPath       = "/moves"
	movePlanPath    = "/moves/plan"
	moveVerifyPath  = "/moves/verify"
	moveVerifyLimit = 50 * time.Second // less than answerWithin
	attachWithin    = 55 * time.Second
)

// An order is a change that is a POST with a JSON object.
type order struct {
	example string // a body
	within  time.Duration
	do      func(ctx context.Context, body *json.Decoder) (any, error)
}

// orders maps the paths of changes to shards and moves to what they do.
func (s *Server) newOrders() map[string]order {
	return map[string]order{
		"/moves/start": {`{"vnodes":"0-1023","to":"s2"} or {}`, changeWithin + moveVerifyLimit/2, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct{ Vnodes, To, By string }
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			want, err := requestOf(in.Vnodes, in.To, "", in.By)
			if err != nil {
				return nil, err
			}
			return s.deps.Shards.Start(ctx, want)
		}},
		"/moves/cancel": {`{"id":1}`, changeWithin, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct{ ID int64 }
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			return struct {
				ID int64 `json:"id"`
			}{in.ID}, s.deps.Shards.Cancel(ctx, in.ID)
		}},
		"/shards/add": {`{"name":"s3","dsn":"postgres://ringside@10.0.0.3/app","weight":1,"max_connections":64}`, changeWithin, func(ctx context.Context, body *json.Decoder) (any, error) {
			in := NewShard{Weight: 1, MaxConnections: 64}
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			return s.deps.Shards.Add(ctx, in)
		}},
		"/shards/weight": {`{"name":"s3","weight":2}`, changeWithin, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct {
				Name   string
				Weight *int64
			}
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			if in.Weight == nil {
				return nil, &BadChangeError{Reason: "weight is missing"}
			}
			return s.deps.Shards.Weigh(ctx, in.Name, *in.Weight)
		}},
		"/overrides/set": {`{"shard_key":"acme","shard":"s3"}`, changeWithin + moveVerifyLimit/2, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct {
				ShardKey string `json:"shard_key"`
				Shard    string
			}
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			if in.ShardKey == "" || in.Shard == "" {
				return nil, &BadChangeError{Reason: "shard_key or shard is missing"}
			}
			return s.deps.Shards.Start(ctx, MoveRequest{Key: in.ShardKey, To: in.Shard})
		}},
		"/overrides/clear": {`{"shard_key":"acme"}`, changeWithin + moveVerifyLimit/2, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct {
				ShardKey string `json:"shard_key"`
			}
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			if in.ShardKey == "" {
				return nil, &BadChangeError{Reason: "shard_key is missing"}
			}
			return s.deps.Shards.Start(ctx, MoveRequest{Key: in.ShardKey})
		}},
		"/shards/remove": {`{"name":"s3"}`, changeWithin, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct{ Name string }
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			return s.deps.Shards.Remove(ctx, in.Name)
		}},
		"/shards/attach": {`{"table":"users"}`, attachWithin, func(ctx context.Context, body *json.Decoder) (any, error) {
			var in struct{ Table string }
			if err := body.Decode(&in); err != nil {
				return nil, badBody(err)
			}
			return s.deps.Shards.Attach(ctx, in.Table)
		}},
	}
}

func badBody(err error) error {
	return &BadChangeError{Reason: strings.TrimPrefix(err.Error(), "json: ")}
}

// requestOf reads what is to be moved: "A-B" and a shard, or neither, or a shard key with or without a shard.
func requestOf(vnodes, to, key, by string) (MoveRequest, error) {
	bad := func(reason string) (MoveRequest, error) { return MoveRequest{}, &BadChangeError{Reason: reason} }
	switch {
	case by != "" && by != "load" && by != "vnodes":
		return bad(fmt.Sprintf("by is %q: it must be load or vnodes", by))
	case by == "load" && vnodes+to+key == "":
		return MoveRequest{ByLoad: true}, nil
	case by == "load":
		return bad("by load is about what the weights ask for: nothing else can be named with it")
	}
	if key != "" {
		if vnodes != "" {
			return bad("vnodes and shard_key exclude each other")
		}
		return MoveRequest{Key: key, To: to}, nil
	}
	if (vnodes == "") != (to == "") {
		return bad("vnodes and to go together: which vnodes, and to which shard; without both, what the weights ask for")
	}
	if to == "" {
		return MoveRequest{}, nil
	}
	a, b, found := strings.Cut(vnodes, "-")
	if !found {
		b = a
	}
	first, errA := strconv.Atoi(a)
	last, errB := strconv.Atoi(b)
	if errA != nil || errB != nil || first < 0 || last < first || last >= ring.Vnodes {
		return bad(fmt.Sprintf("vnodes is %q: it must be one number, or two with a dash, from 0 to %d", vnodes, ring.Vnodes-1))
	}
	return MoveRequest{To: to, First: first, Last: last}, nil
}

// serveOrder is POST /moves/start and the like.
func (s *Server) serveOrder(w http.ResponseWriter, r *http.Request, o order) {
	if !s.mayChange(w, r) {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChange))
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "%v", err)
		return
	}
	if s.current(w, r) == nil {
		return
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), o.within)
	defer cancel()
	answer, err := o.do(ctx, d)
	if err == nil && d.More() {
		err = &BadChangeError{Reason: "more than one JSON object was sent; the first was carried out"}
	}
	if err != nil {
		var bad *BadChangeError
		if errors.As(err, &bad) {
			err = fmt.Errorf("%w: write such as %s", err, o.example)
		}
		writeError(w, r, statusOf(err), "%v", err)
		return
	}
	s.log.Info("changed by an operator", "change", r.URL.Path, "from", r.RemoteAddr)
	w.Header().Set("Cache-Control", "no-store")
	send(w, r, http.StatusOK, typeJSON, encodeJSON(answer))
}

// mayChange answers who may not change anything.
func (s *Server) mayChange(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, r, http.StatusMethodNotAllowed, "%s changes something: POST, not %q", r.URL.Path, r.Method)
		return false
	}
	if no := admitChange(r, s.cfg.Token); no != nil {
		s.refuse(w, r, no)
		return false
	}
	return true
}

// serveMoves is /moves: the parts of the latest moves.
func (s *Server) serveMoves(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestWithin)
	defer cancel()
	parts, err := s.deps.Shards.Moves(ctx)
	if err != nil {
		writeError(w, r, http.StatusServiceUnavailable, "%v", err)
		return
	}
	writeJSON(w, r, struct {
		Moves []MovePart `json:"moves"`
	}{append([]MovePart{}, parts...)})
}

// serveMovePlan is /moves/plan?by=load, /moves/plan?vnodes=A-B&to=NAME, or /moves/plan?shard_key=KEY&to=NAME.
func (s *Server) serveMovePlan(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "the query is malformed: %v", err)
		return
	}
	want, err := requestOf(query.Get("vnodes"), query.Get("to"), query.Get("shard_key"), query.Get("by"))
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "%v", err)
		return
	}
	s.serveShards(w, r, moveVerifyLimit, func(ctx context.Context) (any, error) {
		p, err := s.deps.Shards.Plan(ctx, want)
		p.Flows, p.Refused, p.Notes = append([]MoveFlow{}, p.Flows...), append([]string{}, p.Refused...), append([]string{}, p.Notes...)
		p.Shards = append([]PlannedShard{}, p.Shards...)
		return p, err
	})
}

// serveMoveVerify is /moves/verify.
func (s *Server) serveMoveVerify(w http.ResponseWriter, r *http.Request) {
	s.serveShards(w, r, moveVerifyLimit, func(ctx context.Context) (any, error) {
		v, err := s.deps.Shards.Verify(ctx)
		v.Shards, v.Faults = append([]ShardVerified{}, v.Shards...), append([]string{}, v.Faults...)
		return v, err
	})
}

func (s *Server) serveShards(w http.ResponseWriter, r *http.Request, within time.Duration, ask func(ctx context.Context) (any, error)) {
	if s.current(w, r) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	answer, err := ask(ctx)
	if err != nil {
		writeError(w, r, statusOf(err), "%v", err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	send(w, r, http.StatusOK, typeJSON, encodeJSON(answer))
}
