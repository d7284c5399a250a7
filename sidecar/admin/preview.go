package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"ringside/ring"
	"ringside/sidecar/config"
	"ringside/sidecar/topology"
)

// The bounds of previews (promise P6). Each is a placement: 10 ms for 10 servers, 2 s for a thousand.
const (
	previewServers = 1024            // of one fleet
	previewKept    = 8               // answers
	previewWithin  = 5 * time.Second // for the turn: there is one at a time
)

// previewAnswer is /ring/preview.
type previewAnswer struct {
	Epoch           uint64                `json:"epoch"` // of the ring that was started from
	Fleet           topology.Fleet        `json:"fleet"`
	Change          topology.ProposalVerb `json:"change"`
	Name            string                `json:"name"`
	Moved           int                   `json:"moved"`      // vnodes
	Share           float64               `json:"share"`      // of the ring, 0 to 1, that moves
	Collateral      int                   `json:"collateral"` // of the vnodes that move, those between two others
	CollateralShare float64               `json:"collateral_share"`
	Wait            string                `json:"wait"` // why the change would be refused now, though not for good
	Servers         []prospectAnswer      `json:"servers"`
	// Moving is base64 of 65,536 bits: bit v%8 of byte v/8 says whether vnode v moves.
	Moving string `json:"moving"`
}

type prospectAnswer struct {
	Name         string  `json:"name"`
	WeightBefore uint32  `json:"weight_before"` // by which it is given vnodes: 0 while it is not active
	WeightAfter  uint32  `json:"weight_after"`
	VnodesBefore int     `json:"vnodes_before"`
	VnodesAfter  int     `json:"vnodes_after"`
	ShareBefore  float64 `json:"share_before"` // of the ring, 0 to 1
	ShareAfter   float64 `json:"share_after"`
	Gained       int     `json:"gained"` // vnodes
	Lost         int     `json:"lost"`
	New          bool    `json:"new"` // it is not there yet
}

func newPreviewAnswer(t *topology.Topology, p topology.Proposal, o *topology.Outlook) *previewAnswer {
	a := &previewAnswer{
		Epoch: t.Epoch, Fleet: p.Fleet, Change: p.Verb, Name: p.Name, Moved: o.Moved, Share: ring.Share(o.Moved), Collateral: o.Collateral,
		CollateralShare: ring.Share(o.Collateral), Wait: o.Wait, Servers: make([]prospectAnswer, len(o.Servers)), Moving: base64.StdEncoding.EncodeToString(o.Moving[:]),
	}
	for i, s := range o.Servers {
		a.Servers[i] = prospectAnswer{
			Name: s.Name, WeightBefore: s.WeightBefore, WeightAfter: s.WeightAfter, VnodesBefore: s.VnodesBefore, VnodesAfter: s.VnodesAfter,
			ShareBefore: ring.Share(s.VnodesBefore), ShareAfter: ring.Share(s.VnodesAfter), Gained: s.Gained, Lost: s.Lost, New: !s.Existed,
		}
	}
	return a
}

const previewExamples = "write /ring/preview?add=NAME&weight=1, ?drain=NAME or ?weigh=NAME&weight=2, and fleet=shard if a shard is meant"

// readProposal reads a proposal out of a query. Nothing is wrong with a query that has none: asked is false then. A form, which cannot choose the names of its
// fields, writes change=add&name=NAME for add=NAME.
func readProposal(query url.Values) (p topology.Proposal, asked bool, err error) {
	p.Fleet = topology.CacheFleet
	if change := query.Get("change"); change != "" {
		p.Verb, p.Name, asked = topology.ProposalVerb(change), query.Get("name"), true
		if p.Verb != topology.ProposeAdd && p.Verb != topology.ProposeDrain && p.Verb != topology.ProposeWeigh {
			return p, true, fmt.Errorf("change is %q: it must be add, drain or weigh", change)
		}
	}
	for _, verb := range []topology.ProposalVerb{topology.ProposeAdd, topology.ProposeDrain, topology.ProposeWeigh} {
		names := query[string(verb)]
		if len(names) > 1 || len(names) == 1 && asked {
			return p, true, errors.New("one change at a time: " + previewExamples)
		}
		if len(names) == 1 {
			p.Verb, p.Name, asked = verb, names[0], true
		}
	}
	if !asked {
		return p, false, nil
	}
	if p.Name == "" {
		return p, true, errors.New("the name is empty: " + previewExamples)
	}
	if p.Verb == topology.ProposeAdd { // any other server is there, or unknown
		if err := config.CheckName(p.Name); err != nil {
			return p, true, fmt.Errorf("name %w", err)
		}
	}
	if fleet := query.Get("fleet"); fleet != "" {
		p.Fleet = topology.Fleet(fleet)
	}
	if p.Fleet != topology.CacheFleet && p.Fleet != topology.ShardFleet {
		return p, true, fmt.Errorf("fleet is %q: it must be cache or shard", p.Fleet)
	}
	text := query.Get("weight")
	switch {
	case p.Verb == topology.ProposeDrain: // whatever a form sends along
	case text == "" && p.Verb == topology.ProposeWeigh:
		return p, true, errors.New("weight is missing: " + previewExamples)
	case text != "":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return p, true, fmt.Errorf("weight is %q: it must be a whole number from 0 to %d", text, config.MaxWeight)
		}
		if err := config.CheckWeight(n); err != nil {
			return p, true, fmt.Errorf("weight %w", err)
		}
		weight := uint32(n)
		p.Weight = &weight
	}
	return p, true, nil
}

// previews makes previews one at a time, and keeps the last ones for who looks again: the page does so all the time.
type previews struct {
	turn chan struct{} // holds one who makes one

	mu   sync.Mutex // guards the following
	of   *topology.Topology
	kept []*keptPreview // the latest last
}

type keptPreview struct {
	key    string
	answer *previewAnswer
}

func newPreviews() previews { return previews{turn: make(chan struct{}, 1)} }

var errPreviewBusy = errors.New("others are being made previews for: try again in a moment")

// get returns a preview of what p would do to t.
func (x *previews) get(ctx context.Context, t *topology.Topology, p topology.Proposal) (*previewAnswer, error) {
	if n := max(len(t.Caches), len(t.Shards)); n >= previewServers {
		return nil, &topology.Refusal{Reason: fmt.Sprintf("there are %d servers: previews are made for fewer than %d", n, previewServers)}
	}
	key := fmt.Sprintf("%s %s %q", p.Fleet, p.Verb, p.Name)
	if p.Weight != nil {
		key += fmt.Sprint(" ", *p.Weight)
	}
	if a := x.known(t, key); a != nil {
		return a, nil
	}
	ctx, cancel := context.WithTimeout(ctx, previewWithin)
	defer cancel()
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return nil, errPreviewBusy
	}
	if a := x.known(t, key); a != nil {
		return a, nil // somebody else asked for the same
	}
	o, err := t.Preview(p)
	if err != nil {
		return nil, err
	}
	a := newPreviewAnswer(t, p, o)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of != t {
		x.of, x.kept = t, nil
	}
	if len(x.kept) == previewKept {
		x.kept = x.kept[1:]
	}
	x.kept = append(x.kept, &keptPreview{key, a})
	return a, nil
}

func (x *previews) known(t *topology.Topology, key string) *previewAnswer {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == t {
		for _, k := range x.kept {
			if k.key == key {
				return k.answer
			}
		}
	}
	return nil
}

// servePreview is /ring/preview?add=NAME&weight=W, ?drain=NAME or ?weigh=NAME&weight=W: what such a change would move. Nothing is changed.
func (s *Server) servePreview(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "the query is malformed: %v", err)
		return
	}
	p, asked, err := readProposal(query)
	switch {
	case err != nil:
		writeError(w, r, http.StatusBadRequest, "%v", err)
		return
	case !asked:
		writeError(w, r, http.StatusBadRequest, "no change is given: %s", previewExamples)
		return
	}
	t := s.current(w, r)
	if t == nil {
		return
	}
	a, err := s.previews.get(r.Context(), t, p)
	if err != nil {
		writeError(w, r, statusOf(err), "%v", err)
		return
	}
	writeJSON(w, r, a)
}
