package proxy

import (
	"time"

	"ringside/internal/evloop"
	"ringside/resp"
)

// feed is one worker's connection to one cache server by which messages come. It speaks RESP3, in which they cannot be taken for replies.
// Lost, it is opened again, with growing pauses, as long as there are topics.
type feed struct {
	hub    *hub
	key    upstreamKey
	up     *upstream
	topics map[*topic]*standing
	live   bool // connected or connecting, and all topics have been asked for
	// owed counts, by topic, the confirmations that are still to come.
	owed  map[feedTopic]int
	pause time.Duration // before the next attempt to connect; 0 once a topic was confirmed
	timer *evloop.Timer // the next attempt to connect, or the next look whether the server is there
}

type feedTopic struct {
	scope scope
	name  string
}

// feedBeat is how often a server that says nothing is asked whether it is still there; a feed without topics is closed then.
const feedBeat = 10 * time.Second

// feedOf returns the feed from a cache server.
func (h *hub) feedOf(server uint16) *feed {
	c := &h.worker.route.topology.Caches[server]
	key := upstreamKey{c.Name, c.Addr, 3}
	f := h.feeds[key]
	if f == nil {
		f = &feed{hub: h, key: key, up: h.worker.newUpstream(key), topics: map[*topic]*standing{}, owed: map[feedTopic]int{}}
		f.up.feed, f.up.bare = f, true
		h.feeds[key] = f
	}
	return f
}

// add asks for a topic. It must not have been added before.
func (f *feed) add(t *topic) {
	st := &standing{}
	f.topics[t], t.at[f] = st, st
	if f.live {
		f.ask(t)
		f.check()
	}
}

// drop asks for a topic no longer.
func (f *feed) drop(t *topic) {
	delete(f.topics, t)
	delete(t.at, f)
	if f.live {
		f.up.post([]byte(unsubscribeWords[t.scope]), []byte(t.name))
	}
}

func (f *feed) ask(t *topic) {
	f.owed[feedTopic{t.scope, t.name}]++
	f.up.post([]byte(subscribeWords[t.scope]), []byte(t.name))
}

// check makes sure that the server's silence is noticed.
func (f *feed) check() {
	if f.up.calls.len() == 0 {
		f.up.sendCommand(nil, stepPing, []byte("PING"))
	}
}

// open connects, unless that is done, and asks for all topics. The error says why that cannot be tried yet.
func (f *feed) open() error {
	if f.live {
		return nil
	}
	if err := f.up.room(); err != nil {
		f.after(f.up.retryAt.Sub(f.hub.worker.loop.Now()))
		return err
	}
	f.live = true
	for t := range f.topics {
		f.ask(t)
	}
	f.check()
	f.after(feedBeat)
	return nil
}

// after sets the time of the next beat.
func (f *feed) after(d time.Duration) {
	if f.timer == nil {
		f.timer = f.hub.worker.loop.AfterFunc(max(d, 0), f.beat)
		return
	}
	f.timer.Reset(max(d, 0))
}

func (f *feed) beat() {
	f.hub.worker.turn()
	switch {
	case len(f.topics) == 0:
		f.forget()
		f.up.end(errNotNeeded)
	case f.live:
		f.check()
		f.after(feedBeat)
	default:
		_ = f.open() // failing, it has set the time of the next attempt
	}
}

// forget takes the feed out of use.
func (f *feed) forget() {
	f.up.feed, f.up.retired = nil, true
	delete(f.hub.feeds, f.key)
}

// lost is told that the connection has ended. Who waits to be told that it listens gets an error; who has been told listens again later.
func (f *feed) lost(err error) {
	f.live = false
	clear(f.owed)
	var waiters []*subscribing
	for t, st := range f.topics {
		st.confirmed = false
		if !st.leaving.IsZero() {
			f.drop(t) // what comes there was a last courtesy
			continue
		}
		waiters = append(waiters, t.waiters...)
	}
	for _, p := range waiters {
		p.fail(&CacheDownError{Server: f.key.name, Err: err})
	}
	if err == evloop.ErrLoopStopped {
		return
	}
	f.pause = min(max(2*f.pause, pauseMin), pauseMax)
	f.after(max(f.pause, f.up.retryAt.Sub(f.hub.worker.loop.Now())))
}

// pushed takes what the server says unasked: messages, and confirmations.
func (f *feed) pushed(frame []byte) {
	elements, _ := resp.ElementsOf(frame)
	word, name := nextBulk(&elements), nextBulk(&elements)
	for sc := range scope(scopes) {
		switch string(word) {
		case messageWords[sc]:
			if sc == patternScope && isOurs(nextBulk(&elements)) {
				return
			}
			f.hub.message(sc, name, frame)
		case subscribeWords[sc]:
			f.confirmed(sc, string(name))
		}
	}
}

func nextBulk(e *resp.Elements) []byte {
	frame, ok := e.Next()
	if !ok {
		return nil
	}
	text, _ := resp.BulkOf(frame)
	return text
}

// confirmed takes the server's word that a topic is listened to. Of one that was dropped and asked for again only the last counts.
func (f *feed) confirmed(sc scope, name string) {
	key := feedTopic{sc, name}
	if f.owed[key]--; f.owed[key] > 0 {
		return
	}
	delete(f.owed, key)
	t := f.hub.topics[sc][name]
	if t == nil || t.at[f] == nil {
		return
	}
	t.at[f].confirmed = true
	f.pause = 0
	t.told()
}
