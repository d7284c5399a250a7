package proxy

import (
	"bytes"
	"errors"

	"ringside/resp"
	"ringside/ring"
	"ringside/shard/keyspace"
)

// groups sorts the keys of one command by the server that owns them. It is reused from command to command.
type groups struct {
	of   []int32 // by key: its group; rowKey: a row that the cache cannot be asked for
	each []group
	args [][]byte  // of one group's command
	shut *upstream // of a plain key, whose handshake is not over; nil: there is none
}

type group struct {
	upstream *upstream
	names    [][]byte // keys, and names of entries; of MSET values too
}

const rowKey int32 = -1

// add puts a name into the group of its server and returns the group's number.
func (g *groups) add(u *upstream, name []byte) int32 {
	for i := range g.each {
		if g.each[i].upstream == u {
			g.each[i].names = append(g.each[i].names, name)
			return int32(i)
		}
	}
	// Reslicing rather than appending keeps the inner slices of the groups of earlier commands.
	if len(g.each) < cap(g.each) {
		g.each = g.each[:len(g.each)+1]
	} else {
		g.each = append(g.each, group{})
	}
	last := &g.each[len(g.each)-1]
	last.upstream, last.names = u, append(last.names[:0], name)
	return int32(len(g.each) - 1)
}

// done empties g once its command has been dealt with. The names alias the client's input, which must not be kept alive by them, and
// the lists that a large command has left are let go.
func (g *groups) done() {
	const keep = 16 << 10
	if len(g.of) > keep {
		*g = groups{}
		return
	}
	for i := range g.each {
		clear(g.each[i].names)
		g.each[i].upstream = nil
	}
	clear(g.args[:cap(g.args)])
	g.of, g.each, g.shut = g.of[:0], g.each[:0], nil
}

// joinKind is how the parts of a join make one reply.
type joinKind uint8

const (
	joinValues joinKind = iota // MGET: the values in the order of the keys
	joinSum                    // DEL, UNLINK, EXISTS, TOUCH: the sum
	joinOK                     // MSET: OK
)

// join is a request that is answered in parts. Its reply is an error if any part fails: a value that could not be asked for must not
// look like nil, nor a deletion that did not happen like a key that was not there (P7).
type join struct {
	kind    joinKind
	proto   int
	waiting int // parts still to come
	err     error
	sum     int64

	part  []int32 // joinValues: by key, the part that brings its value; rowKey: rows has it
	parts []gathered
	rows  []joinRow
	write bool
	named map[string]bool // the keys of rows, once somebody asks for more than a few
}

// joinRow is one row of a join.
type joinRow struct {
	index  int // of the key
	key    keyspace.Key
	at     entryAt // MGET: where its entry was asked for
	entry  []byte  // MGET: what the cache had; aliases a part
	usable bool
	row    Row

	distrusted bool // what the cache had does not count
}

// names reports whether one of the join's rows has this key.
func (j *join) names(key []byte) bool {
	const few = 8
	if len(j.rows) <= few {
		for i := range j.rows {
			if bytes.Equal(j.rows[i].key.Text, key) {
				return true
			}
		}
		return false
	}
	if j.named == nil {
		j.named = make(map[string]bool, len(j.rows))
		for i := range j.rows {
			j.named[string(j.rows[i].key.Text)] = true
		}
	}
	return j.named[string(key)]
}

// mget reads plain keys and rows, from as many servers as they lie on, in one request to each.
func (w *worker) mget(cl *client, c *command, cmd resp.Command) bool {
	keys := cmd.Args[1:]
	g := &w.groups
	defer g.done()
	var rows []joinRow
	for i, key := range keys {
		w.sample(key)
		isRow, err := w.server.keyspaces.Match(w.hasher, key, &w.key)
		switch {
		case err != nil:
		case isRow:
			if cl.holdsWrite(w.key.Text) {
				return false
			}
			rows = append(rows, joinRow{index: i, key: w.key.Clone()})
			if u, ok := w.entry(&w.key, cl.proto, &rows[len(rows)-1].at); ok {
				g.of = append(g.of, g.add(u, bytes.Clone(w.name)))
			} else {
				g.of = append(g.of, rowKey)
			}
			continue
		default:
			err = w.group(cl, key)
		}
		if err != nil {
			cl.refuse(w, err)
			return true
		}
	}
	if g.shut != nil {
		return w.await(cl, c, g.shut)
	}
	if len(rows) == 0 && len(g.each) == 1 {
		w.pass(cl, c, cmd, g.each[0].upstream)
		return true
	}
	j := &join{kind: joinValues, proto: cl.proto, rows: rows, part: append([]int32(nil), g.of...), parts: make([]gathered, len(g.each))}
	for i := range g.each {
		j.parts[i].left = len(g.each[i].names)
	}
	w.sendParts(cl, c, j, "MGET")
	return true
}

// group puts a plain key into the group of its owner.
func (w *worker) group(cl *client, key []byte) error {
	if err := checkPlain(key); err != nil {
		return err
	}
	_, u, err := w.owner(w.hasher.Vnode(ring.CacheKey(key)), cl.proto)
	if err != nil {
		return err
	}
	if !u.ready {
		w.groups.shut = u
	}
	w.groups.of = append(w.groups.of, w.groups.add(u, key))
	return nil
}

// sendParts sends each group's command and begins the request that joins the replies.
func (w *worker) sendParts(cl *client, c *command, j *join, name string) {
	r := w.newRequest(cl, c.index, kindJoin)
	r.join = j
	j.waiting = len(w.groups.each)
	for i := range w.groups.each {
		p := &w.groups.each[i]
		args := append(append(w.groups.args[:0], []byte(name)), p.names...)
		p.upstream.sendCommand(r, int32(i), args...)
		w.groups.args = args
	}
	if j.waiting == 0 {
		w.joined(r)
	}
}

// mset writes plain keys on as many servers as they lie on. Unlike on one server it is not atomic across servers.
func (w *worker) mset(cl *client, c *command, cmd resp.Command) bool {
	args := cmd.Args[1:]
	if len(args)%2 != 0 {
		cl.refuse(w, resp.WrongArity("mset"))
		return true
	}
	g := &w.groups
	defer g.done()
	for i := 0; i < len(args); i += 2 {
		w.sample(args[i])
		isRow, err := w.server.keyspaces.Match(w.hasher, args[i], &w.key)
		if err == nil && isRow {
			err = w.senseless(c)
		}
		if err == nil {
			err = w.group(cl, args[i])
		}
		if err != nil {
			cl.refuse(w, err)
			return true
		}
		last := &g.each[g.of[len(g.of)-1]]
		last.names = append(last.names, args[i+1])
	}
	if g.shut != nil {
		return w.await(cl, c, g.shut)
	}
	if len(g.each) == 1 {
		w.pass(cl, c, cmd, g.each[0].upstream)
		return true
	}
	w.sendParts(cl, c, &join{kind: joinOK, proto: cl.proto}, "MSET")
	return true
}

// countKeys runs DEL, UNLINK, EXISTS and TOUCH, whose reply is a number of keys.
func (w *worker) countKeys(cl *client, c *command, cmd resp.Command) bool {
	keys := cmd.Args[1:]
	write := c.info.Name == "del" || c.info.Name == "unlink"
	g := &w.groups
	defer g.done()
	var rows []joinRow
	for i, key := range keys {
		w.sample(key)
		isRow, err := w.server.keyspaces.Match(w.hasher, key, &w.key)
		switch {
		case err != nil:
		case isRow:
			if cl.holdsWrite(w.key.Text) || write && cl.holdsRead(w.key.Text) {
				return false
			}
			rows = append(rows, joinRow{index: i, key: w.key.Clone()})
			continue
		default:
			err = w.group(cl, key)
		}
		if err != nil {
			cl.refuse(w, err)
			return true
		}
	}
	if g.shut != nil {
		return w.await(cl, c, g.shut)
	}
	switch {
	case len(rows) == 0 && len(g.each) == 1:
		w.pass(cl, c, cmd, g.each[0].upstream)
		return true
	case len(rows) == 1 && len(keys) == 1 && !write:
		return w.row(cl, c, cmd)
	}
	j := &join{kind: joinSum, proto: cl.proto, rows: rows, write: write && len(rows) > 0}
	if j.write {
		cl.writes++
	}
	w.sendParts(cl, c, j, spoken(c.info.Name))
	return true
}

// joinReplied takes one part's reply.
func (w *worker) joinReplied(r *request, frame []byte) {
	j := r.join
	j.waiting--
	switch {
	case frame[0] == '-':
		j.fail(resp.Refusal(bytes.TrimRight(frame[1:], "\r\n")))
	case j.kind == joinValues:
		j.fail(errStrangeReply) // what is expected has been gathered
	case j.kind == joinSum:
		n, ok := resp.IntOf(frame)
		if !ok {
			j.fail(errStrangeReply)
		}
		j.sum += n
	}
	if j.waiting == 0 {
		w.joined(r)
	}
}

// joinRefused takes the failure of one part. Rows can still be asked of their shard; a plain key cannot.
func (w *worker) joinRefused(r *request, part int32, err error) {
	j := r.join
	j.waiting--
	if j.kind != joinValues || j.holdsPlain(part) {
		j.fail(err)
	}
	if j.kind == joinValues {
		j.parts[part] = gathered{} // what came of it was not judged
	}
	if j.waiting == 0 {
		w.joined(r)
	}
}

// judge makes those rows of a part misses whose entries do not count (any more). The part itself stays, and its elements in their places,
// because the values of plain keys and of other rows are among them.
func (w *worker) judge(j *join, u *upstream, part int32) {
	for i := range j.rows {
		if row := &j.rows[i]; j.part[row.index] == part && !w.trusted(u, &row.at) {
			row.distrusted = true
		}
	}
}

func (j *join) holdsPlain(part int32) bool {
	n := 0
	for _, p := range j.part {
		if p == part {
			n++
		}
	}
	for i := range j.rows {
		if j.part[j.rows[i].index] == part {
			n--
		}
	}
	return n > 0
}

// fail keeps the first error.
func (j *join) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

var errStrangeReply = errors.New("the cache server's reply is not what the command returns")
