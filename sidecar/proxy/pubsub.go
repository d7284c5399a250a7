package proxy

import (
	"bytes"
	"maps"
	"slices"

	"ringside/resp"
)

// pubsubHandler returns the handler of a command about messages, or nil.
func pubsubHandler(name string) handler {
	for sc := range scope(scopes) {
		switch name {
		case subscribeWords[sc]:
			return subscribe(sc)
		case unsubscribeWords[sc]:
			return unsubscribe(sc)
		}
	}
	switch name {
	case "publish", "spublish":
		return (*worker).publish
	case "pubsub|channels", "pubsub|shardchannels", "pubsub|numsub", "pubsub|shardnumsub", "pubsub|numpat":
		return whenOpen((*worker).owners, (*worker).pubsub)
	}
	return nil
}

// pubsubCall asks all servers what is subscribed. All of them know all patterns; a channel is known where it lives.
type pubsubCall struct {
	request *request
	names   []string // of NUMSUB
	waiting int
	err     error
	most    map[string]int64 // by channel, or "" for patterns: the largest count
}

// pubsub is PUBSUB.
func (w *worker) pubsub(cl *client, c *command, cmd resp.Command) bool {
	var ups []*upstream
	for _, i := range w.route.owners {
		u := w.route.upstreams[i][cl.proto-2]
		if err := u.room(); err != nil {
			cl.refuse(w, err)
			return true
		}
		ups = append(ups, u)
	}
	if len(ups) == 0 {
		cl.refuse(w, errNoCacheServer)
		return true
	}
	t := &pubsubCall{waiting: len(ups), most: map[string]int64{}}
	if c.info.Name == "pubsub|numsub" || c.info.Name == "pubsub|shardnumsub" {
		t.names = []string{}
		for _, a := range cmd.Args[2:] {
			t.names = append(t.names, string(a))
		}
	}
	t.request = w.begin(cl, c, t)
	for _, u := range ups {
		u.sendCommand(t.request, 0, cmd.Args...)
	}
	return true
}

// replied implements task.
func (t *pubsubCall) replied(w *worker, _ *upstream, _ int32, frame []byte) {
	v, _, err := resp.Decode(frame)
	switch {
	case err != nil:
		t.err = err
	case v.Kind == resp.KindError:
		t.err = resp.Refusal(bytes.TrimRight(frame[1:], "\r\n"))
	case v.Kind == resp.KindInt:
		t.count("", v.Int)
	case t.names == nil:
		for _, e := range v.Elems {
			if !isOurs([]byte(e.Text)) {
				t.count(e.Text, 0)
			}
		}
	default:
		for i := 0; i+1 < len(v.Elems); i += 2 {
			t.count(v.Elems[i].Text, v.Elems[i+1].Int)
		}
	}
	t.done(w, v.Kind == resp.KindInt)
}

func (t *pubsubCall) count(name string, n int64) { t.most[name] = max(t.most[name], n) }

// refused implements task.
func (t *pubsubCall) refused(w *worker, _ int32, err error) {
	t.err = err
	t.done(w, false)
}

func (t *pubsubCall) done(w *worker, number bool) {
	t.waiting--
	if t.waiting > 0 {
		return
	}
	var out []byte
	switch {
	case t.err != nil:
		w.fail(t.request, t.err)
		return
	case number:
		out = resp.AppendInt(out, t.most[""])
	case t.names != nil:
		out = resp.AppendArray(out, 2*len(t.names))
		for _, name := range t.names {
			out = resp.AppendInt(resp.AppendBulk(out, name), t.most[name])
		}
	default:
		names := slices.Sorted(maps.Keys(t.most))
		out = resp.AppendArray(out, len(names))
		for _, name := range names {
			out = resp.AppendBulk(out, name)
		}
	}
	w.finish(t.request, out)
}
