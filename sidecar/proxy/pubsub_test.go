package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
	"ringside/resp"
	"ringside/sidecar/topology"
)

// event is a message or a reply about subscriptions, in the form of a protocol.
func event(proto int, elements ...string) string {
	out := resp.AppendPush(nil, proto, len(elements))
	for _, e := range elements {
		if n, isInt := strings.CutPrefix(e, ":"); isInt {
			out = append(out, ":"+n+"\r\n"...)
		} else {
			out = resp.AppendBulk(out, e)
		}
	}
	return string(out)
}

func (w *wire) expect(replies ...string) {
	w.t.Helper()
	for _, want := range replies {
		if got := w.reply(); got != want {
			w.t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSubscriptionsAnswerAsOneRedis compares with one Redis what one client sees; what is published comes back in the same order.
func TestSubscriptionsAnswerAsOneRedis(t *testing.T) {
	b := start(t, 3, nil)
	direct := realredis.T(t)
	for _, proto := range []int{2, 3} {
		ours, theirs := b.dial(), dial(t, direct.Addr())
		for _, w := range []*wire{ours, theirs} {
			w.do(fmt.Sprintf("HELLO %d", proto))
		}
		for _, line := range []struct {
			command string
			replies int
		}{
			{"UNSUBSCRIBE", 1}, {"PUNSUBSCRIBE x", 1}, {"SUNSUBSCRIBE", 1}, {"SUBSCRIBE", 1}, {"SUBSCRIBE a b c a", 4}, {"PING", 1}, {"PING x", 1}, {"PING x y", 1},
			{"GET a", 1}, {"NOSUCH", 1}, {"GET", 1}, {"MULTI", 1}, {"PSUBSCRIBE n* m?", 2}, {"SSUBSCRIBE s1 s2", 2}, {"UNSUBSCRIBE b none", 2}, {"SUNSUBSCRIBE s1", 1},
			{"PUNSUBSCRIBE", 2}, {"UNSUBSCRIBE a c", 2}, {"CLIENT GETNAME", 1}, {"SUNSUBSCRIBE", 1}, {"CLIENT GETNAME", 1}, {"SUBSCRIBE a", 1}, {"RESET", 1}, {"PING", 1},
			{"SUBSCRIBE a", 1}, {"PUBLISH", 1}, {"UNSUBSCRIBE", 1}, {"DISCARD", 1},
		} {
			ours.send(line.command)
			theirs.send(line.command)
			if proto == 3 && line.command == "MULTI" {
				ours.send("DISCARD")
				theirs.send("DISCARD")
				line.replies++
			}
			var got, want []string
			for range line.replies {
				got, want = append(got, ours.reply()), append(want, theirs.reply())
			}
			if line.command == "PUNSUBSCRIBE" { // of several names, without naming them: in no order
				continue
			}
			if !slices.Equal(got, want) {
				t.Errorf("RESP%d %s: %q, want %q", proto, line.command, got, want)
			}
		}
	}
}

func TestMessages(t *testing.T) {
	b := start(t, 3, nil)
	for _, proto := range []int{2, 3} {
		w, second, other := b.dial(), b.dial(), b.dial()
		w.do(fmt.Sprintf("HELLO %d", proto))
		w.send("SUBSCRIBE a b c", "PSUBSCRIBE [ab]*", "SSUBSCRIBE a")
		w.expect(event(proto, "subscribe", "a", ":1"), event(proto, "subscribe", "b", ":2"), event(proto, "subscribe", "c", ":3"),
			event(proto, "psubscribe", "[ab]*", ":4"), event(proto, "ssubscribe", "a", ":1"))
		second.want("SUBSCRIBE c", event(2, "subscribe", "c", ":1"))
		for i := range 3 {
			text := fmt.Sprint("text ", i)
			if got := other.do("PUBLISH a '" + text + "'"); got != ":2\r\n" {
				t.Errorf("%q", got)
			}
			w.expectAnyOrder(event(proto, "message", "a", text), event(proto, "pmessage", "[ab]*", "a", text))
			other.want("SPUBLISH a "+fmt.Sprint(i), ":1\r\n")
			w.expect(event(proto, "smessage", "a", fmt.Sprint(i)))
			other.do("PUBLISH c x")
			w.expect(event(proto, "message", "c", "x"))
			second.expect(event(2, "message", "c", "x"))
		}
		other.want("PUBLISH nobody x", ":0\r\n")
		other.want("PUBSUB CHANNELS", "*3\r\n"+bulk("a")+bulk("b")+bulk("c"))
		other.want("PUBSUB CHANNELS [bc]", "*2\r\n"+bulk("b")+bulk("c"))
		other.want("PUBSUB SHARDCHANNELS", "*1\r\n"+bulk("a"))
		other.want("PUBSUB NUMSUB b none", "*4\r\n"+bulk("b")+":1\r\n"+bulk("none")+":0\r\n")
		other.want("PUBSUB NUMSUB", "*0\r\n")
		other.want("PUBSUB SHARDNUMSUB a", "*2\r\n"+bulk("a")+":1\r\n")
		other.want("PUBSUB NUMPAT", ":1\r\n")
		if proto == 3 { // goes on with other commands
			w.want("SET x 1", "+OK\r\n")
			w.want("MGET x none", "*2\r\n"+bulk("1")+"_\r\n")
		}
		w.want("UNSUBSCRIBE a", event(proto, "unsubscribe", "a", ":3"))
		other.do("PUBLISH a again")
		w.expect(event(proto, "pmessage", "[ab]*", "a", "again"))
		w.conn.Close()
		second.conn.Close()
		b.eventually("nobody is subscribed any more", func() bool {
			return other.do("PUBSUB CHANNELS") == "*0\r\n" && other.do("PUBSUB SHARDCHANNELS") == "*0\r\n" && other.do("PUBSUB NUMPAT") == ":0\r\n"
		})
	}
}

func (w *wire) expectAnyOrder(replies ...string) {
	w.t.Helper()
	var got []string
	for range replies {
		got = append(got, w.reply())
	}
	slices.Sort(got)
	slices.Sort(replies)
	if !slices.Equal(got, replies) {
		w.t.Errorf("%q, want %q", got, replies)
	}
}

// TestChannelsOfSidecarsAreHidden: those by which they tell each other of fills.
func TestChannelsOfSidecarsAreHidden(t *testing.T) {
	b := start(t, 1, nil)
	w, other, direct, listening := b.dial(), b.dial(), dial(t, b.caches[0].Addr()), dial(t, b.caches[0].Addr())
	listening.want("SUBSCRIBE rs:wake:x", event(2, "subscribe", "rs:wake:x", ":1"))
	w.want("PSUBSCRIBE *", event(2, "psubscribe", "*", ":1"))
	direct.want("PUBLISH rs:wake:x hint", ":2\r\n")
	listening.expect(event(2, "message", "rs:wake:x", "hint"))
	direct.want("PUBLISH news x", ":1\r\n")
	w.expect(event(2, "pmessage", "*", "news", "x")) // and not what was published before it
	other.want("PUBSUB CHANNELS", "*0\r\n")
	for _, command := range []string{"SUBSCRIBE a rs:wake:x", "SSUBSCRIBE rs:x", "PUBLISH rs:wake:x y", "SPUBLISH rs:x y"} {
		other.want(command, "-ERR channels that begin with rs: are ringside's own\r\n")
	}
}

// TestManySubscribersShareAConnection: what a cache server sees does not grow with the clients.
func TestManySubscribersShareAConnection(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.Loops = 1 })
	var all []*wire
	for range 50 {
		w := b.dial()
		w.want("SUBSCRIBE news", event(2, "subscribe", "news", ":1"))
		all = append(all, w)
	}
	b.dial().want("PUBLISH news x", ":1\r\n")
	for _, w := range all {
		w.expect(event(2, "message", "news", "x"))
	}
	if got := dial(t, b.caches[0].Addr()).do("PUBSUB NUMSUB news"); got != "*2\r\n"+bulk("news")+":1\r\n" {
		t.Errorf("%q", got)
	}
}

// TestServerIsLostAndMessagesComeAgain: what is published meanwhile is lost, nothing else.
func TestServerIsLostAndMessagesComeAgain(t *testing.T) {
	b := start(t, 2, nil)
	w, other, waiting := b.dial(), b.dial(), b.dial()
	here, there := b.keyOn("c1", 0), b.keyOn("c2", 0)
	w.send("SUBSCRIBE "+here+" "+there, "PSUBSCRIBE key:*")
	for range 3 {
		w.reply()
	}
	if err := b.caches[0].Kill(); err != nil {
		t.Fatal(err)
	}
	b.eventually("refused", func() bool { return strings.HasPrefix(other.do("PUBLISH "+here+" x"), "-CACHEDOWN c1 ") })
	other.do("PUBLISH " + there + " y")
	w.expectAnyOrder(event(2, "message", there, "y"), event(2, "pmessage", "key:*", there, "y"))
	if got := waiting.do("SUBSCRIBE " + there + " " + here); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
		t.Errorf("%q", got)
	}
	waiting.want("GET "+there, "$-1\r\n") // it is not subscribed to anything
	if err := b.caches[0].Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	direct := dial(t, b.caches[0].Addr())
	b.eventually("subscribed again", func() bool {
		return strings.Contains(direct.do("PUBSUB CHANNELS"), here) && direct.do("PUBSUB NUMPAT") == ":1\r\n"
	})
	direct.do("PUBLISH " + here + " z")
	w.expectAnyOrder(event(2, "message", here, "z"), event(2, "pmessage", "key:*", here, "z"))
}

func TestSubscriptionsFollowTheRing(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 2, nil)
	w, other := b.dial(), b.dial()
	channel := b.keyOn("c1", 0)
	w.send("SUBSCRIBE "+channel, "PSUBSCRIBE *", "SSUBSCRIBE "+channel)
	for range 3 {
		w.reply()
	}
	content := b.holder.Current().Content()
	content.Epoch++
	content.Caches[0].State = topology.Draining
	b.publish(content)
	old, now := dial(t, b.caches[0].Addr()), dial(t, b.caches[1].Addr())
	b.eventually("the new owner is asked", func() bool {
		return strings.Contains(now.do("PUBSUB CHANNELS"), channel) && strings.Contains(now.do("PUBSUB SHARDCHANNELS"), channel)
	})
	other.do("PUBLISH " + channel + " x")
	w.expectAnyOrder(event(2, "message", channel, "x"), event(2, "pmessage", "*", channel, "x"))
	old.do("PUBLISH " + channel + " late") // by somebody who has not heard
	w.expectAnyOrder(event(2, "message", channel, "late"), event(2, "pmessage", "*", channel, "late"))
	other.do("SPUBLISH " + channel + " x")
	w.expect(event(2, "smessage", channel, "x"))
	deadline := time.Now().Add(leaveAfter + time.Minute)
	for old.do("PUBSUB CHANNELS") != "*0\r\n" || old.do("PUBSUB NUMPAT") != ":0\r\n" {
		if time.Now().After(deadline) {
			t.Fatal("the old owner is still listened to")
		}
		time.Sleep(20 * time.Millisecond)
	}
	old.do("PUBLISH " + channel + " nobody")
	other.do("PUBLISH " + channel + " y")
	w.expectAnyOrder(event(2, "message", channel, "y"), event(2, "pmessage", "*", channel, "y"))
}

// TestSubscribingToASilentServer: who waits to be told is told in time, and may leave meanwhile.
func TestSubscribingToASilentServer(t *testing.T) {
	s := fake(t, func(args []string) string {
		if args[0] == "HELLO" || args[0] == "INFO" {
			return ""
		}
		return silence
	})
	b := before(t, func(c *Config) { c.Loops, c.ReplyTimeout = 1, 300*time.Millisecond }, s.addr)
	w, leaves := b.dial(), b.dial()
	leaves.send("SUBSCRIBE a")
	w.send("SUBSCRIBE b a", "PING")
	time.Sleep(50 * time.Millisecond)
	leaves.conn.Close()
	if got := w.reply(); !strings.HasPrefix(got, "-CACHEDOWN c1 no reply in time") {
		t.Errorf("%q", got)
	}
	w.expect("+PONG\r\n")
	if sum := b.server.gather(); sum.subscriptions != 0 {
		t.Errorf("%d subscriptions", sum.subscriptions)
	}
}

// TestServerRefusesASubscription: its reason is passed on, and those who may listen go on.
func TestServerRefusesASubscription(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.Loops = 1 })
	dial(t, b.caches[0].Addr()).want("ACL SETUSER default resetchannels &ok*", "+OK\r\n")
	may, mayNot := b.dial(), b.dial()
	may.want("SUBSCRIBE ok1", event(2, "subscribe", "ok1", ":1"))
	for range 3 {
		if got := mayNot.do("SUBSCRIBE secret"); !strings.HasPrefix(got, "-CACHEDOWN c1 NOPERM ") {
			t.Errorf("%q", got)
		}
	}
	b.eventually("it listens again", func() bool { return b.dial().do("PUBLISH ok1 x") == ":1\r\n" })
	may.expect(event(2, "message", "ok1", "x"))
}

func TestDrainClosesSubscribers(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.want("SUBSCRIBE a", event(2, "subscribe", "a", ":1"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.server.Drain(ctx); err != nil {
		t.Error(err)
	}
	w.closed()
}

func TestSlowSubscriberIsCut(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.OutputMessages = 1 << 20 })
	slow, other := b.dial(), b.dial()
	slow.want("SUBSCRIBE news", event(2, "subscribe", "news", ":1"))
	text := strings.Repeat("x", 100<<10)
	b.eventually("cut", func() bool { return other.do("PUBLISH news "+text) == ":0\r\n" })
	if sum := b.server.gather(); sum.cutOutput != 1 || sum.messages == 0 {
		t.Errorf("%d cut, %d messages", sum.cutOutput, sum.messages)
	}
}

func TestSubscriptionsAreBounded(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.Subscriptions = 3 })
	w := b.dial()
	if got := w.do("SUBSCRIBE a b c d"); !strings.HasPrefix(got, "-ERR too many subscriptions") {
		t.Errorf("%q", got)
	}
	w.want("GET a", "$-1\r\n")
	w.send("SUBSCRIBE a b", "PSUBSCRIBE c")
	w.expect(event(2, "subscribe", "a", ":1"), event(2, "subscribe", "b", ":2"), event(2, "psubscribe", "c", ":3"))
	if got := w.do("SSUBSCRIBE d"); !strings.HasPrefix(got, "-ERR too many subscriptions") {
		t.Errorf("%q", got)
	}
}

// TestLargeRepliesAndMessagesDoNotMix: a value that is passed on in pieces must not have a message in its middle.
func TestLargeRepliesAndMessagesDoNotMix(t *testing.T) {
	b := start(t, 1, nil)
	w, other := b.dial(), b.dial()
	value := strings.Repeat("v", 1<<20)
	other.do("SET big " + value)
	w.do("HELLO 3")
	w.want("SUBSCRIBE news", event(3, "subscribe", "news", ":1"))
	const times = 10
	for range times {
		w.send("GET big")
		other.do("PUBLISH news x")
	}
	values, messages := 0, 0
	for range 2 * times {
		switch got := w.reply(); got {
		case bulk(value):
			values++
		case event(3, "message", "news", "x"):
			messages++
		default:
			t.Fatalf("%.60q (%d bytes)", got, len(got))
		}
	}
	if values != times || messages != times {
		t.Errorf("%d values, %d messages", values, messages)
	}
}

func TestSubscribingByGoRedis(t *testing.T) {
	b := start(t, 3, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, proto := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: b.addr, Protocol: proto})
		defer c.Close()
		sub := c.Subscribe(ctx, "one", "two")
		defer sub.Close()
		if err := sub.PSubscribe(ctx, "p*"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := sub.Ping(ctx); err != nil {
			t.Error(err)
		}
		if _, err := sub.Receive(ctx); err != nil {
			t.Error(err)
		}
		for i := range 100 {
			channel := []string{"one", "two", "p3"}[i%3]
			if err := c.Publish(ctx, channel, i).Err(); err != nil {
				t.Fatal(err)
			}
			m, err := sub.ReceiveMessage(ctx)
			if err != nil || m.Channel != channel || m.Payload != fmt.Sprint(i) {
				t.Fatalf("%v, %v", m, err)
			}
		}
	}
}
