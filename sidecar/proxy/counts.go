package proxy

// Counts are what all event loops have counted since the start, as far as it is shown over time.
type Counts struct {
	Requests           uint64 // answered
	Errors             uint64 // error replies made by this sidecar, or passed on from cache servers
	RowHits, RowMisses uint64 // rows that the event loops answered from the cache, or could not
}

// Counts may be called from any goroutine but the loops'. It waits for a second at most; a loop that is that late is left out, so that a later sum can be
// higher by more than what happened in between, and even this one lower than the one before.
func (s *Server) Counts() Counts {
	sum := s.gather()
	c := Counts{Errors: sum.passedErrors, RowHits: sum.hits, RowMisses: sum.misses}
	for _, n := range sum.commands {
		c.Requests += n
	}
	for _, n := range sum.errors {
		c.Errors += n
	}
	return c
}
