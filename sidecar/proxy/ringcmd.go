package proxy

import (
	"bytes"

	"ringside/resp"
	"ringside/ring"
)

// ring is RING LOOKUP key, RING NODES and RING INFO: what the admin endpoint shows, for those who have only a Redis client at hand.
func (w *worker) ring(cl *client, cmd resp.Command) {
	r := w.local(cl)
	t := w.route.topology
	if t == nil {
		w.fail(r, errNoTopology)
		return
	}
	sub := ""
	if len(cmd.Args) > 1 {
		sub = string(bytes.ToLower(cmd.Args[1]))
	}
	dst := w.scratch[:0]
	switch {
	case sub == "lookup" && len(cmd.Args) == 3:
		l, err := t.Locate(w.server.keyspaces, cmd.Args[2])
		if err != nil {
			w.fail(r, err)
			return
		}
		fields := []any{"key", l.Key, "keyspace", l.Keyspace, "cache_vnode", int64(l.CacheVnode), "cache", l.Cache}
		if l.Shard != nil {
			fields = append(fields, "shard_key", *l.ShardKey, "shard_vnode", int64(*l.ShardVnode), "shard", *l.Shard)
		}
		dst = appendFields(dst, cl.proto, append(fields, "epoch", int64(l.Epoch))...)
	case sub == "nodes" && len(cmd.Args) == 2:
		shares := ring.Counts(t.CacheTable(), len(t.Caches))
		dst = resp.AppendArray(dst, len(t.Caches)+len(t.Shards))
		for i, c := range t.Caches {
			dst = appendFields(dst, cl.proto, "kind", "cache", "name", c.Name, "addr", c.Addr, "weight", int64(c.Weight), "state", string(c.State), "vnodes", int64(shares[i]))
		}
		shares = ring.Counts(t.ShardTable(), len(t.Shards))
		for i, s := range t.Shards {
			dst = appendFields(dst, cl.proto, "kind", "shard", "name", s.Name, "weight", int64(s.Weight), "state", string(s.State), "vnodes", int64(shares[i]))
		}
	case sub == "info" && len(cmd.Args) == 2:
		dst = appendFields(dst, cl.proto, "epoch", int64(t.Epoch), "digest", t.Digest().String(), "vnodes", int64(ring.Vnodes),
			"caches", int64(len(t.Caches)), "shards", int64(len(t.Shards)), "overrides", int64(len(t.Overrides)), "sidecars", int64(w.server.deps.Cluster.Sidecars()))
	default:
		w.fail(r, resp.Refusal("ERR syntax: RING LOOKUP key, RING NODES or RING INFO"))
		return
	}
	w.scratch = dst
	w.finish(r, dst)
	w.trimScratch()
}

// appendFields appends a map of names and values, each a string or an int64.
func appendFields(dst []byte, proto int, fields ...any) []byte {
	dst = resp.AppendMap(dst, proto, len(fields)/2)
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			dst = resp.AppendBulk(dst, f)
		case int64:
			dst = resp.AppendInt(dst, f)
		}
	}
	return dst
}
