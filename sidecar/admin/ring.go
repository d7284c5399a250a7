package admin

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"sync"

	"ringside/ring"
	"ringside/sidecar/topology"
)

// ringAnswer is /ring as JSON. Its fields and their order are fixed: it is the same on every sidecar, byte for byte.
type ringAnswer struct {
	Epoch     uint64              `json:"epoch"`
	Vnodes    int                 `json:"vnodes"`
	Caches    []cacheAnswer       `json:"caches"`
	Shards    []shardAnswer       `json:"shards"`
	Overrides []topology.Override `json:"overrides"`
	Owners    ownersAnswer        `json:"owners"`
}

type cacheAnswer struct {
	Name   string         `json:"name"`
	Addr   string         `json:"addr"`
	Weight uint32         `json:"weight"`
	State  topology.State `json:"state"`
	Vnodes int            `json:"vnodes"`
	Share  float64        `json:"share"` // of the ring, 0 to 1
}

type shardAnswer struct {
	Name   string         `json:"name"`
	Weight uint32         `json:"weight"`
	State  topology.State `json:"state"`
	Vnodes int            `json:"vnodes"`
	Share  float64        `json:"share"` // of the ring, 0 to 1; overrides aside
}

// ownersAnswer holds, for each fleet, base64 of 65,536 little-endian 16-bit indexes into its list; 65535: nobody.
type ownersAnswer struct {
	Cache string `json:"cache"`
	Shard string `json:"shard"`
}

// newRingAnswer follows from t alone.
func newRingAnswer(t *topology.Topology) ringAnswer {
	a := ringAnswer{
		Epoch: t.Epoch, Vnodes: ring.Vnodes,
		Caches: make([]cacheAnswer, len(t.Caches)), Shards: make([]shardAnswer, len(t.Shards)),
		Overrides: append([]topology.Override{}, t.Overrides...),
		Owners:    ownersAnswer{encodeOwners(t.CacheTable()), encodeOwners(t.ShardTable())},
	}
	counts := ring.Counts(t.CacheTable(), len(t.Caches))
	for i, c := range t.Caches {
		a.Caches[i] = cacheAnswer{c.Name, c.Addr, c.Weight, c.State, counts[i], ring.Share(counts[i])}
	}
	counts = ring.Counts(t.ShardTable(), len(t.Shards))
	for i, s := range t.Shards {
		a.Shards[i] = shardAnswer{s.Name, s.Weight, s.State, counts[i], ring.Share(counts[i])}
	}
	return a
}

func encodeOwners(table []uint16) string {
	raw := make([]byte, 0, 2*ring.Vnodes)
	for _, owner := range table {
		raw = binary.LittleEndian.AppendUint16(raw, owner)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// ringCache keeps what was made of the last topology: some hundred kilobytes that everybody who looks would make anew.
type ringCache struct {
	// mu guards the following; held while they are made, so that they are made once.
	mu       sync.Mutex
	of       *topology.Topology
	ring     *document
	topology *document
}

// documents returns /ring as JSON and /topology.
func (c *ringCache) documents(t *topology.Topology) (ring, topology *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != t {
		c.ring = newDocument(typeJSON, encodeJSON(newRingAnswer(t)), gzip.DefaultCompression)
		c.topology = newDocument(typeJSON, t.JSON(), gzip.DefaultCompression)
		c.of = t
	}
	return c.ring, c.topology
}

// serveRing answers with the page to who asks for HTML, as browsers do, and with JSON to everybody else.
func (s *Server) serveRing(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	html := preference(accept, "text/html") > preference(accept, typeJSON)
	switch format := r.URL.Query().Get("format"); format {
	case "":
	case "json", "html":
		html = format == "html"
	default:
		writeError(w, r, http.StatusBadRequest, "format is %q: it must be json or html", format)
		return
	}
	if html {
		s.servePage(w, r)
		return
	}
	if t := s.current(w, r); t != nil {
		answer, _ := s.rings.documents(t)
		answer.write(w, r)
	}
}

func (s *Server) serveTopology(w http.ResponseWriter, r *http.Request) {
	if t := s.current(w, r); t != nil {
		_, answer := s.rings.documents(t)
		answer.write(w, r)
	}
}
