package proxy

import (
	"slices"

	"ringside/ring"
	"ringside/shard/keyspace"
)

// missing are the rows that this turn has found not to be cached. Those of one cache server and one shard are asked for together, once the turn's
// events have been handled: by scripts and statements for many, which cost all who take part several times less than as many for one. A lone miss
// waits for nobody, and none waits for a server or a shard that it does not need.
type missing struct {
	groups []missingGroup
	queued bool // they will be asked for in this turn
}

// missingGroup are requests, of kindRow, for rows of one cache server and one shard, by their indexes in the present topology.
type missingGroup struct {
	cache, shard uint16 // ring.None: the row has none that can be used
	requests     []*request
	keys         []keyspace.Key
}

// mostMissing is how many rows one goroutine asks for.
const mostMissing = 256

// add has a row asked for. key is that of r, and good as long as r is.
func (m *missing) add(w *worker, r *request, key keyspace.Key) {
	if w.server.rowOps.Add(1) > int64(w.server.live().RowOps) {
		w.server.rowOps.Add(-1)
		w.stats.atLimit.rowOps++
		w.fail(r, errManyRowOps)
		return
	}
	r.left = w.now
	g := m.group(w, r, &key)
	g.requests, g.keys = append(g.requests, r), append(g.keys, key)
	if len(g.requests) == mostMissing {
		w.readMissing(g)
	}
	if !m.queued {
		m.queued = true
		w.loop.Submit(w.readAllMissing) // false: the loop has ended, and with it every client
	}
}

func (m *missing) group(w *worker, r *request, key *keyspace.Key) *missingGroup {
	server, owner := uint16(ring.None), uint16(ring.None)
	if r.at.topology != nil {
		server = r.at.copy.Server
	}
	if t := w.route.topology; t != nil {
		owner = t.ShardOf(key.ShardKey, key.ShardVnode)
	}
	for i := range m.groups {
		if g := &m.groups[i]; g.cache == server && g.shard == owner {
			return g
		}
	}
	m.groups = append(m.groups, missingGroup{cache: server, shard: owner})
	return &m.groups[len(m.groups)-1]
}

func (w *worker) readAllMissing() {
	m := &w.missing
	m.queued = false
	for i := range m.groups {
		w.readMissing(&m.groups[i])
	}
	clear(m.groups)
	m.groups = m.groups[:0]
}

// readMissing has a goroutine read the rows of a group, and empties it.
func (w *worker) readMissing(g *missingGroup) {
	if len(g.requests) == 0 {
		return
	}
	s, requests, keys := w.server, g.requests, g.keys
	g.requests, g.keys = nil, nil
	s.goroutines.Add(1)
	go func() {
		defer s.goroutines.Done()
		ctx, cancel := s.rowContext()
		defer cancel()
		s.deps.Rows.Read(ctx, keys, func(at []int, rows []Row) {
			s.rowOps.Add(-int64(len(at)))
			there := slices.Clone(at)
			w.loop.Submit(func() {
				w.turn()
				for _, i := range there {
					w.missingRead(requests[i], &rows[i])
				}
			})
		})
	}()
}

func (w *worker) missingRead(r *request, row *Row) {
	r.back = w.now
	if row.Err != nil {
		w.fail(r, row.Err)
		return
	}
	w.rowFound(r, row.Found, row.Body)
}
