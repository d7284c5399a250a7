package admin

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"ringside/sidecar/topology"
)

// proposalForm is the form for previews on the page, and what was asked by it last.
type proposalForm struct {
	Asked                       bool
	Change, Fleet, Name, Weight string // as they were written
	Query                       string // by which /ring/preview gives the same
	Problem                     string // why there is no answer
	Answer                      *previewAnswer
	Prospects                   []prospectRow // of the answer, what it is about first
	Command                     string        // that would do it; empty: nothing is to be done
}

type prospectRow struct {
	prospectAnswer
	Proposed bool
	Was, Bar float64 // the shares on the scale of the bars
}

// option is one of a list to choose from.
type option struct {
	Value, Text string
	Chosen      bool
}

// Changes are the verbs to choose from.
func (f proposalForm) Changes() []option {
	return options(f.Change, option{Value: "add", Text: "add"}, option{Value: "drain", Text: "drain"}, option{Value: "weigh", Text: "set the weight of"})
}

// Fleets are the fleets to choose from.
func (f proposalForm) Fleets() []option {
	return options(f.Fleet, option{Value: "cache", Text: "cache server"}, option{Value: "shard", Text: "shard"})
}

func options(chosen string, all ...option) []option {
	for i := range all {
		all[i].Chosen = all[i].Value == chosen
	}
	return all
}

// proposal works out what the page shows of a preview.
func (s *Server) proposal(ctx context.Context, t *topology.Topology, query url.Values) proposalForm {
	p, asked, err := readProposal(query)
	f := proposalForm{Asked: asked, Change: string(p.Verb), Fleet: string(p.Fleet), Name: p.Name, Weight: query.Get("weight")}
	if !asked {
		return f
	}
	if err == nil {
		f.Answer, err = s.previews.get(ctx, t, p)
	}
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	written := url.Values{string(p.Verb): {p.Name}, "fleet": {f.Fleet}}
	if p.Weight != nil {
		written.Set("weight", fmt.Sprint(*p.Weight))
	}
	f.Query, f.Command, f.Prospects = written.Encode(), command(t, p), prospectRows(f.Answer)
	return f
}

func prospectRows(a *previewAnswer) []prospectRow {
	rows := make([]prospectRow, len(a.Servers))
	largest := 0.0
	for i, s := range a.Servers {
		rows[i] = prospectRow{prospectAnswer: s, Proposed: s.Name == a.Name}
		largest = max(largest, s.ShareBefore, s.ShareAfter)
	}
	for i := range rows {
		if r := &rows[i]; largest > 0 {
			r.Was, r.Bar = 100*r.ShareBefore/largest, 100*r.ShareAfter/largest
		}
	}
	slices.SortStableFunc(rows, func(a, b prospectRow) int {
		switch {
		case a.Proposed == b.Proposed:
			return 0
		case a.Proposed:
			return -1
		}
		return 1
	})
	return rows
}

// plainName is a name that a shell takes as it is: a link that somebody sends could have any other in it.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// command is what to write to carry the proposal out.
func command(t *topology.Topology, p topology.Proposal) string {
	if !plainName.MatchString(p.Name) {
		return ""
	}
	weight := uint32(1)
	if p.Weight != nil {
		weight = *p.Weight
	}
	switch {
	case p.Fleet == topology.CacheFleet && p.Verb == topology.ProposeAdd:
		if t.CacheIndex(p.Name) >= 0 {
			return "" // it is joining already
		}
		return fmt.Sprintf("ringside cache add %s HOST:PORT --weight %d", p.Name, weight)
	case p.Fleet == topology.CacheFleet && p.Verb == topology.ProposeDrain:
		return "ringside cache drain " + p.Name
	case p.Fleet == topology.CacheFleet:
		return fmt.Sprintf("ringside cache weight %s %d", p.Name, weight)
	case p.Verb == topology.ProposeAdd:
		return fmt.Sprintf("ringside shard add %s DSN --weight %d && ringside move start", p.Name, weight)
	case p.Verb == topology.ProposeDrain:
		weight = 0
	}
	return fmt.Sprintf("ringside shard weight %s %d && ringside move start", p.Name, weight)
}
