package cache

import (
	"context"
)

// CleanMany deletes the entries of many rows, which others have changed on their shards, as writers do after their commits: whatever is there but
// poison of writers. Each row has its refs in the order in which they are to be cleaned, that of the former owner first (see Write); the rows go
// together, in one pipeline for each server. It tries once, within Config.StepTimeout for each place in that order: what is to be done
// about a server that cannot be reached depends on what has become of it meanwhile, so the caller works out the refs anew.
//
// nil: all are clean. Else a *CleanError with the refs that may not be.
func (c *Cache) CleanMany(ctx context.Context, rows [][]Ref) error {
	token := c.tokens.next() // that of no writer
	failed := &CleanError{}
	for place := 0; len(rows) > 0; place++ {
		var next [][]Ref
		var refs []Ref
		for _, row := range rows {
			if place < len(row) {
				refs, next = append(refs, row[place]), append(next, row)
			}
		}
		errs := c.cleanPlace(ctx, refs, token)
		rows = rows[:0:0]
		for i, err := range errs {
			if err == nil {
				rows = append(rows, next[i])
				continue
			}
			// Those after it are left: a reader could take the entry over from here afterwards.
			failed.Refs = append(failed.Refs, next[i][place:]...)
			if failed.Err == nil {
				failed.Err = err
			}
		}
		c.detach(refs)
	}
	if failed.Err != nil {
		c.metrics.cleanFailures.Add(float64(len(failed.Refs)))
		return failed
	}
	return nil
}

// cleanPlace cleans entries of different rows and returns what went wrong with each.
func (c *Cache) cleanPlace(ctx context.Context, refs []Ref, token Token) []error {
	errs := make([]error, len(refs))
	var steps []*step
	var of []int
	for i, r := range refs {
		srv, err := c.servers.of(r)
		if err != nil {
			errs[i] = &ServerError{Server: r.Server, Err: err}
			continue
		}
		defer c.servers.release(srv)
		steps = append(steps, &step{srv: srv, script: c.scripts.clean, name: r.Name, args: []any{token[:]}})
		of = append(of, i)
	}
	if len(steps) > 0 {
		c.exec(ctx, steps)
	}
	for n, s := range steps {
		if _, err := s.number(); err != nil {
			errs[of[n]] = &ServerError{Server: refs[of[n]].Server, Err: inOurWords(err)}
		}
	}
	return errs
}

// Entries returns the bytes of entries on a server as they are, in the order of their names; nil: there is none. It is for looking after the cache,
// not for answering anybody. The error is a *ServerError.
func (s *Servers) Entries(ctx context.Context, server, runID string, names []string) ([][]byte, error) {
	srv, err := s.of(Ref{Server: server, RunID: runID})
	if err != nil {
		return nil, &ServerError{Server: server, Err: err}
	}
	defer s.release(srv)
	values, err := srv.client.MGet(ctx, names...).Result()
	if err != nil {
		return nil, &ServerError{Server: server, Err: inOurWords(err)}
	}
	entries := make([][]byte, len(names))
	for i, v := range values {
		if text, ok := v.(string); ok {
			entries[i] = []byte(text)
		}
	}
	return entries, nil
}
