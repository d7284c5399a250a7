package proxy

import (
	"fmt"
	"maps"
	"slices"

	"ringside/cache"
	"ringside/resp"
	"ringside/ring"
)

// errOurChannel refuses channels by which sidecars speak to each other. Patterns do not see them.
const errOurChannel = resp.Refusal("ERR channels that begin with " + cache.Prefix + " are ringside's own")

// subscriptions is what one client listens to.
type subscriptions struct {
	topics  [scopes]map[string]*topic
	pending *subscribing
}

func (s *subscriptions) count() int {
	return len(s.topics[channelScope]) + len(s.topics[patternScope]) + len(s.topics[shardScope])
}

// told is the count in the replies: shard channels count by themselves.
func (s *subscriptions) told(sc scope) int64 {
	if sc == shardScope {
		return int64(len(s.topics[shardScope]))
	}
	return int64(len(s.topics[channelScope]) + len(s.topics[patternScope]))
}

// subscribing is a SUBSCRIBE whose reply waits until every server concerned has confirmed: what is published after the reply comes.
type subscribing struct {
	request *request
	client  *client
	added   []*topic
	missing int // of added, those that are not ready
	reply   []byte
}

// subscribe returns the handler of SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE. It waits until nothing is owed, since messages may come as soon as
// it has been answered, and all that follows waits for it.
func subscribe(sc scope) handler {
	return func(w *worker, cl *client, c *command, cmd resp.Command) bool {
		if cl.owed > 0 {
			return false
		}
		subs := &cl.needSession().subs
		p := &subscribing{client: cl}
		for _, arg := range cmd.Args[1:] {
			name := string(arg)
			if subs.topics[sc][name] == nil {
				t, err := w.subscribeOne(cl, sc, name)
				if err != nil {
					p.undo()
					cl.refuse(w, err)
					return true
				}
				p.added = append(p.added, t)
			}
			p.reply = appendSubscription(p.reply, cl.proto, subscribeWords[sc], &name, subs.told(sc))
		}
		p.request = w.newRequest(cl, c.index, kindAway)
		cl.hold()
		subs.pending = p
		for _, t := range p.added {
			if !t.ready() {
				t.waiters = append(t.waiters, p)
				p.missing++
			}
		}
		if p.missing == 0 {
			p.complete()
		}
		return true
	}
}

func (w *worker) subscribeOne(cl *client, sc scope, name string) (*topic, error) {
	subs := &cl.session.subs
	if sc != patternScope && isOurs([]byte(name)) {
		return nil, errOurChannel
	}
	if limit := w.server.cfg.Subscriptions; subs.count() >= limit {
		return nil, resp.Refusal(fmt.Sprintf("ERR too many subscriptions: one client may have %d", limit))
	}
	t, err := w.hub.listen(cl, sc, name)
	if err != nil {
		return nil, err
	}
	if subs.topics[sc] == nil {
		subs.topics[sc] = map[string]*topic{}
	}
	subs.topics[sc][name] = t
	return t, nil
}

// complete tells the client that it listens.
func (p *subscribing) complete() {
	cl := p.client
	for _, t := range p.added {
		t.listeners[cl] = true
	}
	p.over()
	cl.worker.finish(p.request, p.reply)
}

// fail takes back what was begun. It may be called again.
func (p *subscribing) fail(err error) {
	if p.client.session == nil || p.client.session.subs.pending != p {
		return
	}
	p.undo()
	p.over()
	p.client.worker.fail(p.request, err)
}

func (p *subscribing) undo() {
	for _, t := range p.added {
		t.waiters = slices.DeleteFunc(t.waiters, func(other *subscribing) bool { return other == p })
		delete(p.client.session.subs.topics[t.scope], t.name)
		p.client.worker.hub.unlisten(p.client, t)
	}
}

func (p *subscribing) over() {
	p.client.session.subs.pending = nil
	p.client.worker.endHold(p.client)
}

// endSubscriptions is for a client that leaves or resets.
func (cl *client) endSubscriptions(s *session) {
	if p := s.subs.pending; p != nil {
		for _, t := range p.added {
			t.waiters = slices.DeleteFunc(t.waiters, func(other *subscribing) bool { return other == p })
		}
		cl.worker.finish(p.request, nil) // its client has gone
	}
	for _, topics := range s.subs.topics {
		for _, t := range topics {
			cl.worker.hub.unlisten(cl, t)
		}
	}
	s.subs = subscriptions{}
}

// unsubscribe returns the handler of UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE: of the names given, or of all.
func unsubscribe(sc scope) handler {
	return answer(func(cl *client, cmd resp.Command, dst []byte) []byte {
		var none subscriptions
		subs := &none
		if cl.session != nil {
			subs = &cl.session.subs
		}
		names := make([]string, 0, len(cmd.Args))
		for _, arg := range cmd.Args[1:] {
			names = append(names, string(arg))
		}
		if len(names) == 0 {
			names = slices.Sorted(maps.Keys(subs.topics[sc]))
		}
		for _, name := range names {
			if t := subs.topics[sc][name]; t != nil {
				delete(subs.topics[sc], name)
				cl.worker.hub.unlisten(cl, t)
			}
			dst = appendSubscription(dst, cl.proto, unsubscribeWords[sc], &name, subs.told(sc))
		}
		if len(names) == 0 {
			dst = appendSubscription(dst, cl.proto, unsubscribeWords[sc], nil, subs.told(sc))
		}
		return dst
	})
}

// appendSubscription appends the reply about one name; nil: about none.
func appendSubscription(dst []byte, proto int, word string, name *string, count int64) []byte {
	dst = resp.AppendBulk(resp.AppendPush(dst, proto, 3), word)
	if name == nil {
		dst = resp.AppendNull(dst, proto)
	} else {
		dst = resp.AppendBulk(dst, *name)
	}
	return resp.AppendInt(dst, count)
}

// publish is PUBLISH and SPUBLISH: to the server that owns the channel, where all sidecars listen for it.
func (w *worker) publish(cl *client, c *command, cmd resp.Command) bool {
	if isOurs(cmd.Args[1]) {
		cl.refuse(w, errOurChannel)
		return true
	}
	_, u, err := w.owner(w.hasher.Vnode(ring.CacheKey(cmd.Args[1])), cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	if !u.ready {
		return w.await(cl, c, u)
	}
	w.pass(cl, c, cmd, u)
	return true
}

// subscribed begins a request of a client that listens and speaks RESP2, in which it can do little else: a reply could be taken for a message.
func (w *worker) subscribed(cl *client, c *command, cmd resp.Command) bool {
	if c.info.Name == "ping" {
		return answer(func(_ *client, cmd resp.Command, dst []byte) []byte {
			text := []byte(nil)
			switch len(cmd.Args) {
			case 1:
			case 2:
				text = cmd.Args[1]
			default:
				return resp.AppendError(dst, string(resp.WrongArity("ping")))
			}
			return resp.AppendBulk(resp.AppendBulk(resp.AppendArray(dst, 2), "pong"), text)
		})(w, cl, c, cmd)
	}
	if !c.listening {
		cl.refuse(w, resp.Refusal(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", c.info.Name)))
		return true
	}
	return c.run(w, cl, c, cmd)
}

// isForListeners reports whether a client that listens may use a command in RESP2.
func isForListeners(name string) bool {
	return slices.Contains(subscribeWords[:], name) || slices.Contains(unsubscribeWords[:], name) || name == "quit" || name == "reset"
}
