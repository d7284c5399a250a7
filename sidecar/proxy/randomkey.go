package proxy

import (
	"math/rand/v2"

	"ringside/resp"
)

// randomKey is RANDOMKEY. Servers are drawn by how many names they have and then asked for a random one each, until one is a plain key: so
// each plain key is as likely as any other, however many entries of rows are among them. After so many draws without one, plain keys
// are rare, and it takes one of the first page of a scan that has some.
type randomKeyTask struct {
	r        *request
	proto    int
	deadline int64
	servers  []string
	sizes    []int64
	draws    []int // of the present round: places in servers
	found    [][]byte
	round    int
	waiting  int // replies
	err      error

	scanning int // how many servers have been scanned, the present one included; 0: none yet
	first    int // the one that was scanned first
}

const (
	drawsAtOnce = 16
	drawRounds  = 4
)

func (w *worker) randomKey(cl *client, c *command, _ resp.Command) bool {
	t := w.route.topology
	if t == nil {
		cl.refuse(w, errNoTopology)
		return true
	}
	k := &randomKeyTask{proto: cl.proto}
	for _, i := range w.route.owners {
		k.servers = append(k.servers, t.Caches[i].Name)
	}
	if len(k.servers) == 0 {
		cl.refuse(w, errNoCacheServer)
		return true
	}
	if !w.beginSweep(cl) {
		return true
	}
	k.deadline = w.sweepDeadline()
	k.sizes = make([]int64, len(k.servers))
	k.r = w.begin(cl, c, k)
	k.waiting = 1
	for i := range k.servers {
		k.ask(w, i, int32(i), "DBSIZE")
	}
	k.came(w)
	return true
}

// ask sends a command to a server; its reply will be waited for.
func (k *randomKeyTask) ask(w *worker, server int, part int32, args ...string) {
	u, err := w.upstreamOf(k.servers[server], k.proto)
	if err != nil {
		k.fail(err)
		return
	}
	k.waiting++
	words := make([][]byte, len(args))
	for i, a := range args {
		words[i] = []byte(a)
	}
	u.sendCommand(k.r, part, words...)
}

func (k *randomKeyTask) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *randomKeyTask) refused(w *worker, _ int32, err error) {
	k.fail(err)
	k.came(w)
}

func (k *randomKeyTask) replied(w *worker, _ *upstream, part int32, frame []byte) {
	switch {
	case frame[0] == '-':
		w.stats.passedErrors++
		k.fail(resp.Refusal(resp.ErrorText(frame)))
	case k.scanning > 0:
		k.page(w, frame)
		return
	case k.round == 0:
		n, ok := resp.IntOf(frame)
		if !ok {
			k.fail(errStrangeReply)
		}
		k.sizes[part] = n
	default:
		server := w.route.topology.CacheIndex(k.servers[k.draws[part]])
		if name, ok := resp.BulkOf(frame); ok && w.shows(name, server) {
			k.found[part] = append([]byte(nil), name...)
		}
	}
	k.came(w)
}

// came counts a reply, and goes on with the last one.
func (k *randomKeyTask) came(w *worker) {
	if k.waiting--; k.waiting > 0 {
		return
	}
	for _, name := range k.found {
		if name != nil && k.err == nil {
			w.endSweep(k.r, resp.AppendBulk(nil, name), nil)
			return
		}
	}
	var total int64
	for _, n := range k.sizes {
		total += n
	}
	switch {
	case k.err != nil:
		w.endSweep(k.r, nil, k.err)
	case total == 0 || k.r.client == nil:
		w.endSweep(k.r, resp.AppendNull(nil, k.proto), nil)
	case k.round == drawRounds:
		k.first = rand.IntN(len(k.servers))
		k.scan(w, 0)
	default:
		k.draw(w, total)
	}
}

// draw begins a round.
func (k *randomKeyTask) draw(w *worker, total int64) {
	k.round++
	k.draws, k.found = k.draws[:0], make([][]byte, drawsAtOnce)
	k.waiting = 1
	for i := range drawsAtOnce {
		k.draws = append(k.draws, drawn(k.sizes, rand.Int64N(total)))
		k.ask(w, k.draws[i], int32(i), "RANDOMKEY")
	}
	k.came(w)
}

// shows reports whether a name that a server has is a plain key that it owns or still has to hand over.
func (w *worker) shows(name []byte, server int) bool {
	return w.lists(name, server, false) || w.gate != nil && w.lists(name, server, true)
}

// drawn returns the place of the n-th of all names in the servers of these sizes.
func drawn(sizes []int64, n int64) int {
	for i, size := range sizes {
		if n -= size; n < 0 {
			return i
		}
	}
	return len(sizes) - 1
}

// scan asks for a page of the server that is being scanned, or of the next one when cursor is 0.
func (k *randomKeyTask) scan(w *worker, cursor uint64) {
	if cursor == 0 {
		k.scanning++
	}
	switch {
	case k.scanning > len(k.servers):
		w.endSweep(k.r, resp.AppendNull(nil, k.proto), nil)
		return
	case w.now > k.deadline:
		w.endSweep(k.r, nil, tooLong(w.server.live().SweepTimeout, ": plain keys are rare among the names"))
		return
	}
	k.ask(w, (k.first+k.scanning-1)%len(k.servers), 0, "SCAN", formatCursor(cursor), "COUNT", sliceCount)
	if k.err != nil {
		w.endSweep(k.r, nil, k.err)
	}
}

// page takes one of the plain keys on a page.
func (k *randomKeyTask) page(w *worker, frame []byte) {
	k.waiting--
	cursor, names, ok := pageOf(frame)
	if !ok {
		w.endSweep(k.r, nil, errStrangeReply)
		return
	}
	server := w.route.topology.CacheIndex(k.servers[(k.first+k.scanning-1)%len(k.servers)])
	var chosen []byte
	for n := 1; ; {
		element, more := names.Next()
		if !more {
			break
		}
		if name, ok := resp.BulkOf(element); ok && w.shows(name, server) {
			if rand.IntN(n) == 0 {
				chosen = name
			}
			n++
		}
	}
	switch {
	case chosen != nil:
		w.endSweep(k.r, resp.AppendBulk(nil, chosen), nil)
	case k.r.client == nil:
		w.endSweep(k.r, nil, errGone)
	default:
		k.scan(w, cursor)
	}
}
