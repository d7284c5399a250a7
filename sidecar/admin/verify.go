package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Verification is the answer of /verify: cached rows, compared with their shards.
type Verification struct {
	Epoch uint64 `json:"epoch"`
	// Seen entries are those that the cache servers hold of rows, of which at most as many as were asked for were looked at. Complete: all servers
	// were gone through.
	Seen     int  `json:"seen"`
	Complete bool `json:"complete"`
	// Checked is the sum of Fresh, Absent (no row, rightly) and Stale: entries that were compared.
	Checked int `json:"checked"`
	Fresh   int `json:"fresh"`
	Absent  int `json:"absent_ok"`
	Stale   int `json:"stale"`
	// Changed entries were written, or ended, meanwhile. Superseded ones are of an earlier generation, flush or keyspace, which nobody reads.
	// Unchecked could not be compared: a shard or a cache server did not answer, or there was no time.
	Changed    int `json:"changed_meanwhile"`
	Superseded int `json:"superseded"`
	Unchecked  int `json:"unchecked"`

	TookMS  int64        `json:"took_ms"`
	Entries []StaleEntry `json:"stale_entries"` // the first MaxStaleShown
	Faults  []string     `json:"faults"`        // why entries are unchecked; each once
}

// StaleEntry is a cached row that differs from what its shard has.
type StaleEntry struct {
	Key   string `json:"key"`
	Cache string `json:"cache"` // server
	Shard string `json:"shard"`
	Entry string `json:"entry"` // its name on the server
	AgeMS int64  `json:"age_ms"`
	What  string `json:"what"` // differs, cached_absent (but there is a row) or cached_row (but there is none)
}

const (
	// MaxSample is the most entries that one verification looks at, DefaultSample how many if it is not said.
	MaxSample     = 10_000
	DefaultSample = 1000
	// MaxStaleShown is how many stale entries are listed.
	MaxStaleShown = 100

	verifyPath   = "/verify"
	verifyWithin = 45 * time.Second // less than answerWithin
)

// sampleOf reads the query of /verify.
func sampleOf(raw string) (int, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return 0, errors.New("the query is malformed: write " + verifyPath + "?sample=" + strconv.Itoa(DefaultSample))
	}
	if !query.Has("sample") {
		return DefaultSample, nil
	}
	n, err := strconv.Atoi(query.Get("sample"))
	if err != nil || len(query["sample"]) != 1 || n < 1 || n > MaxSample {
		return 0, errors.New("sample must be one number from 1 to " + strconv.Itoa(MaxSample))
	}
	return n, nil
}

// serveVerify is /verify?sample=N. It costs the cache servers and shards something, so there is one at a time.
func (s *Server) serveVerify(w http.ResponseWriter, r *http.Request) {
	n, err := sampleOf(r.URL.RawQuery)
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "%v", err)
		return
	}
	if s.current(w, r) == nil {
		return
	}
	if !s.verifying.CompareAndSwap(false, true) {
		w.Header().Set("Retry-After", "1")
		writeError(w, r, http.StatusTooManyRequests, "another verification is under way here: try again when it is done")
		return
	}
	defer s.verifying.Store(false)
	ctx, cancel := context.WithTimeout(r.Context(), verifyWithin)
	defer cancel()
	found := s.deps.Verify(ctx, n)
	found.Entries = append([]StaleEntry{}, found.Entries...)
	found.Faults = append([]string{}, found.Faults...)
	w.Header().Set("Cache-Control", "no-store")
	send(w, r, http.StatusOK, typeJSON, encodeJSON(found))
}
