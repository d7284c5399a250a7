package proxy

import (
	"slices"
	"time"

	"ringside/resp"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// Messages come to a worker by one connection to each cache server, its feed, whatever the number of its clients that listen: ten
// thousand sidecars must not use up what a server can hold. A channel lives on the server where a key of its name would, and is published
// there; patterns are subscribed on all servers. So each message comes once, from one server, and the worker hands it to its clients.
//
// A channel moves as keys do: who publishes goes to the former owner until that has handed its keys over. Who listens does so at the new owner
// too from when it hears of the change, and says so by the names of its feeds once that has been confirmed (topology.Caller): the server does
// not hand over before. So no message is lost while sidecars hear of it one after the other, unless one takes so long that its feed is ended.
//
// What it costs: PUBLISH and PUBSUB NUMSUB count these connections, not clients. Delivery is at most once, as in Redis: messages are lost
// while a feed is lost, which is asked for again by itself, and may be lost when a server goes down.

// scope is a kind of name that clients subscribe to.
type scope uint8

const (
	channelScope scope = iota
	patternScope
	shardScope
	scopes = 3
)

// The words of a scope: of the commands, their replies and the messages.
var (
	subscribeWords   = [scopes]string{"subscribe", "psubscribe", "ssubscribe"}
	unsubscribeWords = [scopes]string{"unsubscribe", "punsubscribe", "sunsubscribe"}
	messageWords     = [scopes]string{"message", "pmessage", "smessage"}
)

// topic is a name that clients of this worker listen to.
type topic struct {
	scope     scope
	name      string
	vnode     uint16
	listeners map[*client]bool // true: the client has been told that it listens
	at        map[*feed]*standing
	waiters   []*subscribing // what waits until it is ready
}

// standing is how a topic stands with one feed.
type standing struct {
	confirmed bool
	// leaving: since when another server owns the channel. The old one is listened to for a while: publishers may not know yet.
	leaving time.Time
}

// leaveAfter is how long a channel that has moved is listened to at its old place.
const leaveAfter = 5 * time.Second

// hub is all that the clients of one worker listen to.
type hub struct {
	worker *worker
	topics [scopes]map[string]*topic
	feeds  map[upstreamKey]*feed
	epoch  uint64 // of the topology by which all topics are listened to
}

func newHub(w *worker) *hub {
	h := &hub{worker: w, feeds: map[upstreamKey]*feed{}}
	for i := range h.topics {
		h.topics[i] = map[string]*topic{}
	}
	return h
}

// ready reports whether a message that is published from now on will come.
func (t *topic) ready() bool {
	asked := false
	for _, st := range t.at {
		if st.leaving.IsZero() {
			if !st.confirmed {
				return false
			}
			asked = true
		}
	}
	return asked
}

// listen makes cl a listener. It hears nothing before it has been told so: see subscribing.
func (h *hub) listen(cl *client, sc scope, name string) (*topic, error) {
	t := h.topics[sc][name]
	if t == nil {
		t = &topic{scope: sc, name: name, listeners: map[*client]bool{}, at: map[*feed]*standing{}}
		t.vnode = h.worker.hasher.Vnode(ring.CacheKey([]byte(name)))
		h.topics[sc][name] = t
	}
	t.listeners[cl] = false
	err := h.settle(t)
	if err != nil {
		h.unlisten(cl, t)
	}
	return t, err
}

// unlisten ends that.
func (h *hub) unlisten(cl *client, t *topic) {
	delete(t.listeners, cl)
	if len(t.listeners) > 0 {
		return
	}
	delete(h.topics[t.scope], t.name)
	for f := range t.at {
		f.drop(t)
	}
}

// wanted returns the feeds by which a topic's messages come.
func (h *hub) wanted(t *topic) ([]*feed, error) {
	w := h.worker
	if t.scope != patternScope {
		i, err := w.ownerOf(t.vnode)
		if err != nil {
			return nil, err
		}
		feeds := []*feed{h.feedOf(i)}
		if to := w.route.topology.CacheOf(t.vnode); to != i && to != ring.None {
			feeds = append(feeds, h.feedOf(to)) // it is handed over
		}
		return feeds, nil
	}
	if len(w.route.owners) == 0 {
		return nil, errNoCacheServer
	}
	var feeds []*feed
	for _, i := range w.route.owners {
		feeds = append(feeds, h.feedOf(i))
	}
	return feeds, nil
}

// settle has a topic listened to where it lives now. The error says why that cannot be asked for at present; it will be tried again
// as long as anybody listens.
func (h *hub) settle(t *topic) error {
	feeds, err := h.wanted(t)
	if err != nil {
		return err
	}
	for f, st := range t.at {
		if !slices.Contains(feeds, f) && st.leaving.IsZero() {
			st.leaving = h.worker.loop.Now()
		}
	}
	for _, f := range feeds {
		if st := t.at[f]; st != nil {
			st.leaving = time.Time{}
		} else {
			f.add(t)
		}
		if e := f.open(); e != nil {
			err = e
		}
	}
	return err
}

// ringChanged has every topic follow its owner.
func (h *hub) ringChanged() {
	some := false
	for _, topics := range h.topics {
		for _, t := range topics {
			some = true
			err := h.settle(t)
			for _, p := range slices.Clone(t.waiters) {
				if err != nil {
					p.fail(err)
				}
			}
			t.told()
		}
	}
	if some {
		h.worker.loop.AfterFunc(leaveAfter, h.sweep)
	}
}

// sweep leaves the places that topics have moved away from.
func (h *hub) sweep() {
	now := h.worker.loop.Now()
	for _, topics := range h.topics {
		for _, t := range topics {
			for f, st := range t.at {
				if !st.leaving.IsZero() && now.Sub(st.leaving) >= leaveAfter {
					f.drop(t)
				}
			}
		}
	}
}

// nameFeeds tells the servers, once all topics are listened to where they live by the worker's topology, that they are.
func (h *hub) nameFeeds() {
	if h.epoch == h.worker.epoch() {
		return
	}
	for _, topics := range h.topics {
		for _, t := range topics {
			if !t.ready() {
				return
			}
		}
	}
	h.epoch = h.worker.epoch()
	for _, f := range h.feeds {
		f.up.rename()
	}
}

// callerAt is what a feed says of itself. It sends no keys, so it holds up no hand-over that it has heard of.
func (h *hub) callerAt(server string) topology.Caller {
	c := topology.Caller{Sidecar: h.worker.server.cfg.Name, Epoch: h.epoch}
	for _, one := range h.worker.route.topology.Handovers {
		if one.From == server && one.Since <= h.epoch {
			c.Held = append(c.Held, one.Since)
		}
	}
	slices.Sort(c.Held)
	return c
}

// told lets go on what has waited for the topic, if it is ready.
func (t *topic) told() {
	if len(t.waiters) == 0 || !t.ready() {
		return
	}
	waiters := t.waiters
	t.waiters = nil
	for _, p := range waiters {
		p.missing--
		if p.missing == 0 {
			p.complete()
		}
	}
}

// message hands a message to those who listen.
func (h *hub) message(sc scope, name, frame []byte) {
	t := h.topics[sc][string(name)]
	if t == nil {
		return
	}
	for cl, told := range t.listeners {
		if told {
			cl.deliver(frame)
		}
	}
}

// deliver sends the client a message, a push of RESP3, whenever it comes: it is no reply.
func (cl *client) deliver(frame []byte) {
	w := cl.worker
	w.stats.messages++
	if cl.proto == 3 {
		cl.conn.Write(frame)
	} else {
		cl.conn.SetOut(append(append(cl.conn.Out(len(frame)), byte(resp.KindArray)), frame[1:]...))
	}
	if cl.conn.Buffered() > min(w.server.cfg.OutputMessages, w.server.live().OutputHard) {
		w.stats.cutOutput++
		cl.conn.Close(errOutput)
	}
}
