package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/resp"
	"ringside/systemtest/history"
)

// The load of a proof: clients that read many rows at a time and clients that write one after the other, all on the same few hundred rows, so that
// reads, fills and writes of one row meet. Each notes what it did and saw.

const (
	proofReaders = 12
	proofWriters = 40
	proofBatch   = 14 // commands in one write
	// The rows that the load is on: some that are there from the start and some that are not.
	proofThere, proofMissing = 240, 60
	// Of which the last of each are also written past ringside.
	proofOthers = 20
	readThink   = 20 * time.Millisecond
	writeThink  = 80 * time.Millisecond
	// proofPatience bounds the wait for a reply. Sidecars are stopped for about as long.
	proofPatience = 6 * time.Second
	// seenLate is after how long at the latest a write of unknown outcome is seen, or never will be: as long as its transaction can last, its
	// poison, and room for a busy machine.
	seenLate = 12*time.Second + poisonLife + 8*time.Second
	// longPatience is longer than a change of the ring takes.
	longPatience = 40 * time.Second
)

// row is one row of a proof and what was done with it.
type row struct {
	id     int
	key    string
	shard  string
	others bool // it is also written past ringside

	mu    sync.Mutex // guards the following
	ops   []history.Op
	texts map[string]string // one copy of each value
}

func (r *row) note(o history.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept, ok := r.texts[o.Value]; ok {
		o.Value = kept
	} else {
		r.texts[o.Value] = o.Value
	}
	r.ops = append(r.ops, o)
}

// proof is a cluster under load, and the record of it.
type proof struct {
	t        *testing.T
	c        *cluster
	rig      *rig
	addrs    []string // of the sidecars
	rows     []*row
	begun    time.Time
	patience time.Duration // of the clients
	weak     bool          // nothing is concluded from reads: they may show a write that is under way, and not show it again
	journal  *journal
	stop     chan struct{}
	group    sync.WaitGroup
	writes   atomic.Int64 // the last number given to one
	counted  struct{ reads, acknowledged, unknown, refused atomic.Int64 }

	mu      sync.Mutex // guards the following
	codes   map[string]int
	wrong   []string
	answers map[string]string // to writes that were not acknowledged, by mark
}

// newProof prepares a proof on a cluster whose shards note the writes. Proofs with different numbers use different rows.
func newProof(t *testing.T, c *cluster, r *rig, number int) *proof {
	t.Helper()
	p := &proof{t: t, c: c, rig: r, begun: time.Now(), patience: proofPatience, journal: &journal{}, stop: make(chan struct{}), codes: map[string]int{}, answers: map[string]string{}}
	for _, s := range c.Sidecars {
		p.addrs = append(p.addrs, s.Redis)
	}
	add := func(first, n int) {
		for i := range n {
			r := &row{id: first + i, key: fmt.Sprintf("user:%d", first+i), others: i >= n-proofOthers, texts: map[string]string{}}
			if r.others {
				r.shard = lookup(t, c.Sidecars[0], r.key).Shard
			}
			p.rows = append(p.rows, r)
		}
	}
	add(1+number*proofThere, proofThere)
	add(rows+1+number*proofMissing, proofMissing)
	rand.Shuffle(len(p.rows), func(i, j int) { p.rows[i], p.rows[j] = p.rows[j], p.rows[i] })
	return p
}

// elapsed is the clock of the record.
func (p *proof) elapsed() time.Duration { return time.Since(p.begun) }

func (p *proof) run() {
	for range proofReaders {
		p.group.Go(p.reader)
	}
	for range proofWriters {
		p.group.Go(p.writer)
	}
	p.group.Go(p.other)
}

func (p *proof) end() {
	close(p.stop)
	p.group.Wait()
}

// pause waits about as long as d; false: it is over.
func (p *proof) pause(d time.Duration) bool {
	select {
	case <-p.stop:
		return false
	case <-time.After(d/2 + rand.N(d)):
		return true
	}
}

// row draws one of them, some far more often than others.
func (p *proof) row(z *rand.Zipf) *row { return p.rows[z.Uint64()] }

func (p *proof) zipf() *rand.Zipf {
	return rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), 1.1, 10, uint64(len(p.rows)-1))
}

// fault notes what may never happen and shows in one reply.
func (p *proof) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

func (p *proof) count(code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code]++
}

// failed counts an error reply and reports whether it was one.
func (p *proof) failed(what string, v resp.Value) bool {
	if v.Kind != resp.KindError {
		return false
	}
	code, _, _ := strings.Cut(v.Text, " ")
	p.count(what + " " + code)
	return true
}

// reader reads through one sidecar for a while, then through another one.
func (p *proof) reader() {
	z := p.zipf()
	for p.pause(readThink) {
		at := rand.IntN(len(p.addrs))
		w, err := open(p.addrs[at])
		if err != nil {
			p.count("read " + codeClosed)
			p.pause(4 * readThink)
			continue
		}
		for range 20 + rand.IntN(100) {
			if err = p.readBatch(w, z, int16(at+1)); err != nil || !p.pause(readThink) {
				break
			}
		}
		if err != nil {
			p.count("read " + codeClosed)
			p.broken(err)
		}
		w.close()
	}
}

// broken notes replies that are no Redis protocol.
func (p *proof) broken(err error) {
	if _, ok := errors.AsType[*resp.ProtocolError](err); ok {
		p.fault("broken framing: %v", err)
	}
}

// readBatch sends reads of several kinds in one write.
func (p *proof) readBatch(w *wire, z *rand.Zipf, by int16) error {
	var commands [][]string
	var of [][]*row
	for range proofBatch {
		r := p.row(z)
		switch rand.IntN(6) {
		case 0:
			commands, of = append(commands, []string{"HMGET", r.key, "name", "visits"}), append(of, []*row{r})
		case 1:
			command, several := []string{"MGET"}, []*row(nil)
			for range proofBatch {
				r := p.row(z)
				command, several = append(command, r.key), append(several, r)
			}
			commands, of = append(commands, command), append(of, several)
		default:
			commands, of = append(commands, []string{"GET", r.key}), append(of, []*row{r})
		}
	}
	begin := p.elapsed()
	if err := w.send(p.patience, commands...); err != nil {
		return err
	}
	for i, command := range commands {
		v, err := w.reply()
		if err != nil {
			return err
		}
		if p.failed("read", v) {
			continue
		}
		span := history.Op{Begin: begin, End: p.elapsed(), Outcome: history.Acknowledged, By: by}
		switch command[0] {
		case "GET":
			p.noteRead(of[i][0], span, p.valueOf(of[i][0], v))
		case "HMGET":
			p.noteRead(of[i][0], span, p.valueOfFields(of[i][0], v))
		case "MGET":
			if len(v.Elems) != len(of[i]) {
				p.fault("%q was answered with %s", command, show(v))
				continue
			}
			for n, r := range of[i] {
				if !p.failed("read", v.Elems[n]) {
					p.noteRead(r, span, p.valueOf(r, v.Elems[n]))
				}
			}
		}
	}
	return nil
}

// seen is what a reply says of a row, as the record calls it. Not ok: it is another row, or none.
type seen struct {
	value string
	ok    bool
}

var nothing = seen{history.Absent, true}

func (p *proof) noteRead(r *row, span history.Op, s seen) {
	if !s.ok {
		return
	}
	p.counted.reads.Add(1)
	span.Value, span.Weak = s.value, r.others || p.weak
	r.note(span)
}

// valueOf reads the reply to GET. The value is made of the columns that writes change.
func (p *proof) valueOf(r *row, v resp.Value) seen {
	if v.Null {
		return nothing
	}
	var got struct {
		ID     int
		Name   *string
		Visits *int64
	}
	if err := json.Unmarshal([]byte(v.Text), &got); err != nil || got.ID != r.id {
		p.fault("GET %s gave %s", r.key, show(v))
		return seen{}
	}
	return seen{valueText(got.Name, got.Visits), true}
}

// valueOfFields reads the reply to HMGET of the same columns.
func (p *proof) valueOfFields(r *row, v resp.Value) seen {
	if len(v.Elems) != 2 {
		p.fault("HMGET of %s gave %s", r.key, show(v))
		return seen{}
	}
	if v.Elems[0].Null && v.Elems[1].Null {
		return nothing
	}
	var name *string
	if !v.Elems[0].Null {
		name = &v.Elems[0].Text
	}
	visits, err := strconv.ParseInt(v.Elems[1].Text, 10, 64)
	if err != nil {
		p.fault("HMGET of %s gave %s", r.key, show(v))
		return seen{}
	}
	return seen{valueText(name, &visits), true}
}

func valueText(name *string, visits *int64) string {
	n, v := "null", int64(-1)
	if name != nil {
		n = *name
	}
	if visits != nil {
		v = *visits
	}
	return n + "|" + strconv.FormatInt(v, 10)
}

// writer writes some rows at a time, each time through any sidecar, and reads what was acknowledged through another one at once.
func (p *proof) writer() {
	z := p.zipf()
	conns := make([]*wire, len(p.addrs))
	// on lets f ask a sidecar, and closes the connection if that fails.
	on := func(at int, f func(w *wire) error) error {
		var err error
		if conns[at] == nil {
			if conns[at], err = open(p.addrs[at]); err != nil {
				p.count("write " + codeClosed)
				return err
			}
		}
		if err = f(conns[at]); err != nil {
			p.count("write " + codeClosed)
			p.broken(err)
			conns[at].close()
			conns[at] = nil
		}
		return err
	}
	for p.pause(writeThink) {
		at := rand.IntN(len(p.addrs))
		var done []*row
		_ = on(at, func(w *wire) (err error) { // what it did not do is noted
			done, err = p.writeSome(w, z, int16(at+1))
			return err
		})
		next := (at + 1 + rand.IntN(len(p.addrs)-1)) % len(p.addrs)
		if len(done) > 0 {
			_ = on(next, func(w *wire) error { return p.readBack(w, done, int16(next+1)) })
		}
	}
	for _, w := range conns {
		if w != nil {
			w.close()
		}
	}
}

// readBack reads rows.
func (p *proof) readBack(w *wire, rows []*row, by int16) error {
	begin := p.elapsed()
	commands := make([][]string, len(rows))
	for i, r := range rows {
		commands[i] = []string{"GET", r.key}
	}
	if err := w.send(p.patience, commands...); err != nil {
		return err
	}
	for _, r := range rows {
		v, err := w.reply()
		if err != nil {
			return err
		}
		if !p.failed("read", v) {
			p.noteRead(r, history.Op{Begin: begin, End: p.elapsed(), Outcome: history.Acknowledged, By: by}, p.valueOf(r, v))
		}
	}
	return nil
}

// mostWrites is how many writes a client sends at once.
const mostWrites = 4

// writeSome writes some rows at once, and returns those whose writes were acknowledged.
func (p *proof) writeSome(w *wire, z *rand.Zipf, by int16) (done []*row, err error) {
	var commands [][]string
	var of []*row
	var ops []history.Op
	for n := 1 + rand.IntN(mostWrites); len(of) < n; {
		r := p.row(z)
		if slices.Contains(of, r) {
			n--
			continue
		}
		command, mark := p.command(r)
		commands, of = append(commands, command), append(of, r)
		ops = append(ops, history.Op{Begin: p.elapsed(), Write: true, Outcome: history.Acknowledged, Mark: mark, By: by})
	}
	err = w.send(p.patience, commands...)
	for i := range ops {
		var v resp.Value
		if err == nil {
			v, err = w.reply()
		}
		ops[i].End = p.elapsed()
		if p.noteWrite(of[i], commands[i][0], ops[i], v, err) {
			done = append(done, of[i])
		}
	}
	return done, err
}

// command draws a write of a row. It tells its write from others by its mark, but for a sum, which is known by the answer only.
func (p *proof) command(r *row) (command []string, mark string) {
	mark = fmt.Sprintf("w%d", p.writes.Add(1))
	switch rand.IntN(10) {
	case 0:
		return []string{"DEL", r.key}, markDeleted
	case 1, 2:
		return []string{"HINCRBY", r.key, "visits", "1"}, ""
	case 3, 4, 5:
		return []string{"HSET", r.key, "name", mark}, mark
	case 6:
		return []string{"SET", r.key, fmt.Sprintf(`{"name":%q}`, mark), "XX"}, mark
	}
	return []string{"SET", r.key, fmt.Sprintf(`{"name":%q}`, mark)}, mark
}

// noteWrite notes what became of a write, and reports whether it was acknowledged.
func (p *proof) noteWrite(r *row, name string, o history.Op, v resp.Value, err error) bool {
	switch {
	case err != nil:
		o.Outcome = history.Unknown
	case p.failed("write", v):
		p.mu.Lock()
		p.answers[o.Mark] = v.Text
		p.mu.Unlock()
		o.Outcome = history.Refused
		if strings.Contains(v.Text, "may have been made") {
			o.Outcome = history.Unknown
		}
	case name == "HINCRBY":
		o.Mark = markOfSum(v.Int)
	case name == "DEL" && v.Int == 0, v.Null: // there was nothing
		p.noteRead(r, history.Op{Begin: o.Begin, End: o.End, Outcome: history.Acknowledged, By: o.By}, nothing)
		return false
	}
	if o.Outcome != history.Acknowledged && o.Mark == markDeleted {
		o.Mark = "" // which deletion it is cannot be told
	}
	switch o.Outcome {
	case history.Acknowledged:
		p.counted.acknowledged.Add(1)
	case history.Unknown:
		o.Until = o.Begin + seenLate
		p.counted.unknown.Add(1)
	case history.Refused:
		p.counted.refused.Add(1)
	}
	r.note(o)
	return o.Outcome == history.Acknowledged
}

// send sends commands in one write, whose replies are then to be read in time.
func (w *wire) send(patience time.Duration, commands ...[]string) error {
	var out []byte
	for _, c := range commands {
		out = resp.AppendCommandString(out, c...)
	}
	if err := w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	n, err := w.conn.Write(out)
	if err == nil && n < len(out) {
		err = io.ErrShortWrite
	}
	return err
}
