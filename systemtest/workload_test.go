package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/resp"
)

// The workload: clients that read and write, and check every reply for what no failure may cause. Each key has one writer, and each value names
// its key and a number that rises with every write, so that a reply that belongs elsewhere, an older value and a lost write all show.

// item is a key of the workload.
type item struct {
	key    string
	id     int // of a row; 0: a plain key
	cache  string
	shard  string // "" for a plain key
	tried  atomic.Int64
	acked  atomic.Int64 // the last number whose write was acknowledged; -1: any value or none is allowed, its Redis has lost its memory
	forgot atomic.Int64 // how often its Redis has lost its memory
	gone   atomic.Bool  // a plain key that may have been lost with its Redis; but it is never older than what was acknowledged
}

func (it *item) value(seq int64) string { return it.key + "#" + strconv.FormatInt(seq, 10) }

// event is one command, or one pipeline, and what came of it.
type event struct {
	begun   time.Time
	took    time.Duration
	sidecar int
	items   []*item
	code    string // first word of the error; "" for an answer
	text    string
}

func (e *event) touches(server string) bool {
	for _, it := range e.items {
		if it.cache == server || it.shard == server {
			return true
		}
	}
	return false
}

// codeClosed is the code of an event whose connection ended, or could not be opened.
const codeClosed = "closed"

type workload struct {
	addrs  []string // of the sidecars
	items  []*item
	busy   [clients]atomic.Int64 // since when (Unix nanoseconds) each client waits for a reply; 0: it does not
	pace   atomic.Int64          // nanoseconds that a client thinks, on average: govern sets it
	stop   chan struct{}
	group  sync.WaitGroup
	mu     sync.Mutex // guards the following
	events []event
	wrong  []string // what may never happen
}

const (
	clients   = 100
	firstUser = 1000 // the rows of client i are firstUser + 2i and the one after it
	// think is the shortest time, on average, from a reply to the client's next command; longest, the longest.
	think   = (80 + 80*raceSlack) * time.Millisecond
	longest = 2 * time.Second
	// prompt: replies that take longer than this, in the middle, come from a machine that has too much to do.
	prompt = 10 * time.Millisecond
)

func newWorkload(t *testing.T, c *cluster) *workload {
	t.Helper()
	w := &workload{stop: make(chan struct{})}
	w.pace.Store(int64(think))
	for _, s := range c.Sidecars {
		w.addrs = append(w.addrs, s.Redis)
	}
	setUp := dial(t, w.addrs[0])
	for i := range clients {
		for j := range 4 {
			it := &item{}
			if j < 2 {
				it.id = firstUser + 2*i + j
				it.key = fmt.Sprintf("user:%d", it.id)
			} else {
				it.key = fmt.Sprintf("plain:%d:%d", i, j)
			}
			l := lookup(t, c.Sidecars[0], it.key)
			it.cache, it.shard = l.Cache, l.Shard
			w.items = append(w.items, it)
			setUp.want(t, "OK", it.write(0)...)
		}
	}
	return w
}

// write is the command that gives an item its value number seq.
func (it *item) write(seq int64) []string {
	switch {
	case it.id == 0:
		return []string{"SET", it.key, it.value(seq)}
	case seq%2 == 0:
		return []string{"SET", it.key, fmt.Sprintf(`{"name":%q,"visits":%d}`, it.value(seq), seq)}
	}
	return []string{"HSET", it.key, "name", it.value(seq), "visits", strconv.FormatInt(seq, 10)}
}

func (it *item) written(v resp.Value) bool {
	switch {
	case it.id != 0 && v.Kind == resp.KindInt:
		return v.Int == 0 // HSET of columns that are there
	}
	return v.Text == "OK"
}

func (w *workload) run() {
	for i := range clients {
		w.group.Go(func() { w.client(i) })
	}
	w.group.Go(w.govern)
}

// govern lets the clients think longer while replies are slow, so that the load is one that the machine can bear, whatever else it does: what
// is not answered in time is then the doing of those who died.
func (w *workload) govern() {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	seen := 0
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		var took []time.Duration
		w.mu.Lock()
		for n := seen; n < len(w.events); n++ {
			if e := &w.events[n]; e.code == "" {
				took = append(took, e.took)
			}
		}
		seen = len(w.events)
		w.mu.Unlock()
		slices.Sort(took)
		pace := time.Duration(w.pace.Load())
		switch {
		case len(took) == 0 || took[len(took)/2] > prompt:
			pace = min(pace*3/2, longest)
		case took[len(took)/2] < prompt/2:
			pace = max(pace*9/10, think)
		}
		w.pace.Store(int64(pace))
	}
}

func (w *workload) end() {
	close(w.stop)
	w.group.Wait()
}

// forget says that a Redis has lost its plain keys, or all that was written to them since its last snapshot.
func (w *workload) forget(server string) {
	for _, it := range w.items {
		if it.cache == server && it.id == 0 {
			it.forgot.Add(1)
			it.acked.Store(-1)
		}
	}
}

func (w *workload) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// client is one client, with a connection of its own to each sidecar.
func (w *workload) client(i int) {
	conns := make([]*wire, len(w.addrs))
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.close()
			}
		}
	}()
	mine := w.items[4*i : 4*i+4]
	for n := 0; ; n++ {
		select {
		case <-w.stop:
			return
		case <-time.After(time.Duration(rand.Int64N(2 * w.pace.Load()))):
		}
		at := rand.IntN(len(conns))
		e := event{begun: time.Now(), sidecar: at}
		w.busy[i].Store(e.begun.UnixNano())
		var err error
		if conns[at] == nil {
			conns[at], err = open(w.addrs[at])
		}
		if err == nil {
			switch rand.IntN(10) {
			case 0, 1, 2, 3:
				err = w.writeOne(conns[at], &e, mine[rand.IntN(4)])
			case 4, 5, 6:
				err = w.readOne(conns[at], &e, w.items[rand.IntN(len(w.items))])
			case 7, 8:
				err = w.pipeline(conns[at], &e, i, n)
			case 9:
				err = w.readMany(conns[at], &e)
			}
		}
		e.took = time.Since(e.begun)
		w.busy[i].Store(0)
		if err != nil {
			if conns[at] != nil {
				conns[at].close()
			}
			conns[at] = nil
			e.code, e.text = codeClosed, err.Error()
			if _, broken := errors.AsType[*resp.ProtocolError](err); broken {
				w.fault("broken framing from sidecar %d: %v", at, err)
			}
		}
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
	}
}

// failed notes an error reply and reports whether it was one.
func (e *event) failed(v resp.Value) bool {
	if v.Kind != resp.KindError {
		return false
	}
	e.text = v.Text
	e.code, _, _ = strings.Cut(v.Text, " ")
	return true
}

func (w *workload) writeOne(c *wire, e *event, it *item) error {
	e.items = []*item{it}
	seq, forgot := it.tried.Add(1), it.forgot.Load()
	v, err := c.ask(it.write(seq))
	if err != nil || e.failed(v[0]) {
		return err
	}
	if !it.written(v[0]) {
		w.fault("%q was answered with %s", it.write(seq), show(v[0]))
	}
	if it.forgot.Load() == forgot {
		it.acked.Store(seq)
	}
	return nil
}

// floor is the oldest number that a read which begins now may give.
type floor struct{ acked, forgot int64 }

func (it *item) floor() floor {
	forgot := it.forgot.Load()
	return floor{it.acked.Load(), forgot}
}

// check looks at the text of a value that a read gave.
func (w *workload) check(it *item, least floor, null bool, text, how string) {
	if it.forgot.Load() != least.forgot {
		return // its Redis lost its memory meanwhile
	}
	if null {
		if least.acked >= 0 && !it.gone.Load() {
			w.fault("%s of %s gave nothing; number %d was acknowledged", how, it.key, least.acked)
		}
		return
	}
	number, ok := strings.CutPrefix(text, it.key+"#")
	seq, err := strconv.ParseInt(number, 10, 64)
	switch {
	case !ok || err != nil:
		w.fault("%s of %s gave %q, which is another's", how, it.key, text)
	case seq < least.acked:
		w.fault("%s of %s (on %s, %s) gave number %d after %d was acknowledged", how, it.key, it.cache, it.shard, seq, least.acked)
	case seq > it.tried.Load():
		w.fault("%s of %s gave number %d, which was never written", how, it.key, seq)
	}
}

// checkGet looks at the reply to GET.
func (w *workload) checkGet(it *item, least floor, v resp.Value, how string) {
	if v.Null || it.id == 0 {
		if v.Kind != resp.KindBulk && v.Kind != resp.KindNull {
			w.fault("%s of %s gave %s", how, it.key, show(v))
		}
		w.check(it, least, v.Null, v.Text, how)
		return
	}
	var row struct {
		ID     int
		Name   string
		Visits int64
	}
	if err := json.Unmarshal([]byte(v.Text), &row); err != nil || row.ID != it.id || row.Name != it.value(row.Visits) {
		w.fault("%s of %s gave %s", how, it.key, show(v))
		return
	}
	w.check(it, least, false, row.Name, how)
}

func (w *workload) readOne(c *wire, e *event, it *item) error {
	e.items = []*item{it}
	least := it.floor()
	v, err := c.ask([]string{"GET", it.key})
	if err != nil || e.failed(v[0]) {
		return err
	}
	w.checkGet(it, least, v[0], "GET")
	return nil
}

// pipeline sends commands of different kinds in one write; each reply must be in its place.
func (w *workload) pipeline(c *wire, e *event, i, n int) error {
	plain, row := w.items[4*rand.IntN(clients)+2+rand.IntN(2)], w.items[4*rand.IntN(clients)+rand.IntN(2)]
	e.items = []*item{plain, row}
	token := fmt.Sprintf("token %d of client %d", n, i)
	least := []floor{plain.floor(), row.floor()}
	v, err := c.ask([]string{"GET", plain.key}, []string{"ECHO", token}, []string{"HGET", row.key, "name"}, []string{"STRLEN", plain.key}, []string{"GET", row.key}, []string{"PING"})
	if err != nil {
		return err
	}
	if v[1].Text != token || v[5].Text != "PONG" {
		w.fault("a pipeline's replies are not in order: %s", show(resp.Value{Kind: resp.KindArray, Elems: v}))
	}
	if !e.failed(v[0]) {
		w.checkGet(plain, least[0], v[0], "GET in a pipeline")
	}
	if !e.failed(v[2]) {
		w.check(row, least[1], v[2].Null, v[2].Text, "HGET in a pipeline")
	}
	if !e.failed(v[3]) && v[3].Kind != resp.KindInt {
		w.fault("STRLEN gave %s", show(v[3]))
	}
	if !e.failed(v[4]) {
		w.checkGet(row, least[1], v[4], "GET in a pipeline")
	}
	return nil
}

func (w *workload) readMany(c *wire, e *event) error {
	command := []string{"MGET"}
	var least []floor
	for range 4 {
		it := w.items[rand.IntN(len(w.items))]
		e.items = append(e.items, it)
		least = append(least, it.floor())
		command = append(command, it.key)
	}
	v, err := c.ask(command)
	if err != nil || e.failed(v[0]) {
		return err
	}
	if len(v[0].Elems) != len(e.items) {
		w.fault("MGET of %d keys gave %s", len(e.items), show(v[0]))
		return nil
	}
	for i, it := range e.items {
		w.checkGet(it, least[i], v[0].Elems[i], "MGET")
	}
	return nil
}
