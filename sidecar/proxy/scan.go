package proxy

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/resp"
	"ringside/ring"
)

const errCursor = resp.Refusal("ERR invalid cursor")

// maxScanCount is the largest COUNT that is passed on. It is a hint, and a server answers nobody else meanwhile.
const maxScanCount = 10000

// scan is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]: one page of one server. Its guarantee is Redis's for the keys that are
// there from the first call to the last, also while they are handed over.
func (w *worker) scan(cl *client, c *command, cmd resp.Command) bool {
	cursor, ok := parseCursor(cmd.Args[1])
	if !ok {
		cl.refuse(w, errCursor)
		return true
	}
	plan, err := w.scanPlan()
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	at, more := plan.resume(cursor)
	if !more {
		r := w.newRequest(cl, c.index, kindAway)
		w.finish(r, appendPage(nil, 0, nil))
		return true
	}
	t := &scanTask{plan: plan, at: at, server: w.route.topology.Caches[plan.passes[at.pass][at.place].index].Name}
	u, err := w.upstreamOf(t.server, cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	args := slices.Clone(cmd.Args)
	args[1] = strconv.AppendUint(nil, at.own, 10)
	for i := 2; i+1 < len(args); i += 2 {
		if n, err := strconv.ParseInt(string(args[i+1]), 10, 64); bytes.EqualFold(args[i], []byte("count")) && err == nil && n > maxScanCount {
			args[i+1] = strconv.AppendInt(nil, maxScanCount, 10)
		}
	}
	t.r = w.begin(cl, c, t)
	u.sendCommand(t.r, 0, args...)
	return true
}

// scanPlan returns how the servers are scanned.
func (w *worker) scanPlan() (*scanPlan, error) {
	t := w.route.topology
	if t == nil {
		return nil, errNoTopology
	}
	if w.route.scan == nil {
		p := &scanPlan{}
		if since := lastChange(t); since > 0 {
			p.change = changeOf(since)
		}
		owned := ring.Counts(t.CacheTable(), len(t.Caches))
		p.passes[passFormer] = w.scanOrder(func(i int) bool { return w.gate.handsOver(t.Caches[i].Name) })
		p.passes[passOwners] = w.scanOrder(func(i int) bool { return owned[i] > 0 })
		w.route.scan = p
	}
	if len(w.route.scan.passes[passOwners]) == 0 {
		return nil, errNoCacheServer
	}
	return w.route.scan, nil
}

// scanOrder returns the order in which some of the servers are scanned.
func (w *worker) scanOrder(which func(i int) bool) []scanServer {
	var names []string
	var index []int
	for i := range w.route.topology.Caches {
		if which(i) {
			names = append(names, w.route.topology.Caches[i].Name)
			index = append(index, i)
		}
	}
	order := scanOrder(names)
	for i := range order {
		order[i].index = index[order[i].index]
	}
	return order
}

// upstreamOf returns the worker's connection to a server of the topology, ready to be sent something.
func (w *worker) upstreamOf(name string, proto int) (*upstream, error) {
	i := w.route.topology.CacheIndex(name)
	if i < 0 {
		return nil, &CacheDownError{Server: name, Err: errGone}
	}
	u := w.route.upstreams[i][proto-2]
	return u, u.room()
}

// lists reports whether a name that a server has is a plain key that this server owns; as a former owner: that it still has to hand over. What
// else a server may hold: entries of rows, what has been left behind by a change of the topology, and names that mean rows: nobody can read them there.
func (w *worker) lists(name []byte, server int, asFormer bool) bool {
	if checkPlain(name) != nil {
		return false
	}
	t, vnode := w.route.topology, w.hasher.Vnode(ring.CacheKey(name))
	if asFormer {
		if n := t.HandoverOf(vnode); n < 0 || server < 0 || t.Handovers[n].From != t.Caches[server].Name {
			return false
		}
	} else if int(t.CacheOf(vnode)) != server {
		return false
	}
	isRow, err := w.server.keyspaces.Match(w.hasher, name, &w.key)
	return !isRow && err == nil
}

type scanTask struct {
	r      *request
	plan   *scanPlan // when the page was asked for
	at     spot
	server string
}

func (t *scanTask) replied(w *worker, _ *upstream, _ int32, frame []byte) {
	if frame[0] == '-' {
		w.stats.passedErrors++
		w.finish(t.r, frame)
		return
	}
	own, names, ok := pageOf(frame)
	if !ok {
		w.fail(t.r, errStrangeReply)
		return
	}
	cursor, err := t.plan.next(t.at, own)
	if err != nil {
		w.fail(t.r, err)
		return
	}
	// A server that has left the topology meanwhile owns nothing any more.
	index := w.route.topology.CacheIndex(t.server)
	kept := make([][]byte, 0, names.Len())
	for {
		element, more := names.Next()
		if !more {
			break
		}
		if name, ok := resp.BulkOf(element); ok && w.lists(name, index, t.at.pass == passFormer) {
			kept = append(kept, name)
		}
	}
	w.scratch = appendPage(w.scratch[:0], cursor, kept)
	w.finish(t.r, w.scratch)
	w.trimScratch()
}

func (t *scanTask) refused(w *worker, _ int32, err error) { w.fail(t.r, err) }

// pageOf takes the reply to SCAN apart.
func pageOf(frame []byte) (cursor uint64, names resp.Elements, ok bool) {
	page, ok := resp.ElementsOf(frame)
	if !ok || page.Len() != 2 {
		return 0, names, false
	}
	element, _ := page.Next()
	text, ok := resp.BulkOf(element)
	if !ok {
		return 0, names, false
	}
	if cursor, ok = parseCursor(text); !ok {
		return 0, names, false
	}
	if element, ok = page.Next(); !ok {
		return 0, names, false
	}
	names, ok = resp.ElementsOf(element)
	return cursor, names, ok
}

func formatCursor(n uint64) string { return strconv.FormatUint(n, 10) }

func appendPage(dst []byte, cursor uint64, names [][]byte) []byte {
	dst = resp.AppendArray(dst, 2)
	dst = resp.AppendBulk(dst, formatCursor(cursor))
	dst = resp.AppendArray(dst, len(names))
	for _, name := range names {
		dst = resp.AppendBulk(dst, name)
	}
	return dst
}
