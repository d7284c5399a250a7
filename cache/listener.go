package cache

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reader that meets somebody else's lease is told when it is gone. It listens to a channel of that lease's own, sets a bit in the lease that
// says so (script await), and whoever takes away a lease with that bit, by a fill, a release or a write, publishes on the channel. Nothing is
// published where nobody waits, and nobody listens before he has to wait.
//
// A message is a hint to ask again; nothing is concluded from it. One that is lost (the connection breaks, the lease expires or is evicted)
// is made good by the end of the reader's time for waiting.

// wakePrefix begins the names of those channels; the awaited token follows.
const wakePrefix = Prefix + "wake:"

// listenAgain is how long nobody tries to listen to a server after that has failed: readers ask again and again instead.
const listenAgain = 5 * time.Second

var errNotListening = errors.New("the cache server could not be listened to")

// listener is the one connection by which this process listens to a cache server. It is opened when it is needed first, and closed when it has
// not been for a while.
type listener struct {
	client *redis.Client
	idle   time.Duration

	// mu guards the following. It is not held while anything is sent, which may take as long as connecting does.
	mu      sync.Mutex
	retired bool
	conn    *redis.PubSub   // nil: there is none
	living  context.Context // of conn, which ends it
	stop    context.CancelFunc
	failed  time.Time // when it last could not be listened
	topics  map[string]*topic
	unsent  []order // in the order of the books
	sending bool    // somebody sends them over conn
}

// order is what the server is to be told.
type order struct {
	leave    bool // the channels, or listen to them
	channels []string
}

// topic is a channel.
type topic struct {
	owed    int           // confirmations that are still to come
	ready   chan struct{} // closed with the last of them, or with the connection
	waiters []*flight
}

func newListener(client *redis.Client, idle time.Duration) *listener {
	return &listener{client: client, idle: idle, topics: make(map[string]*topic)}
}

// join has flights hear of the end of the leases that they have met. When it returns nil the server has confirmed that for all of them; after an
// error none of them hears anything.
func (l *listener) join(ctx context.Context, flights []*flight) error {
	conn, ready, err := l.subscribe(flights)
	for _, r := range ready {
		select {
		case <-r:
		case <-ctx.Done():
			l.drop(conn, true)
			return context.Cause(ctx)
		}
	}
	if err == nil && !l.has(conn) {
		err = errNotListening
	}
	return err
}

// subscribe asks for the channels of flights, and returns what is closed when each is confirmed.
func (l *listener) subscribe(flights []*flight) (*redis.PubSub, []<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired || time.Since(l.failed) < listenAgain {
		return nil, nil, errNotListening
	}
	if l.conn == nil {
		living, stop := context.WithCancel(context.Background())
		conn := l.client.Subscribe(living) // it connects with the first channel
		l.conn, l.living, l.stop, l.sending = conn, living, stop, true
		go func() { // until the connection is dropped
			if l.send(living, conn) {
				l.listen(conn)
			}
		}()
	}
	var ready []<-chan struct{}
	var fresh []string
	for _, f := range flights {
		t := l.topics[f.channel]
		if t == nil {
			t = &topic{}
			l.topics[f.channel] = t
		}
		if len(t.waiters) == 0 {
			if t.owed++; t.owed == 1 {
				t.ready = make(chan struct{})
			}
			fresh = append(fresh, f.channel)
		}
		t.waiters = append(t.waiters, f)
		ready = append(ready, t.ready)
	}
	l.tell(order{channels: fresh})
	return l.conn, ready, nil
}

// tell has the server told of something, after what it has not been told yet. It needs mu.
func (l *listener) tell(o order) {
	if len(o.channels) == 0 || l.conn == nil {
		return
	}
	l.unsent = append(l.unsent, o)
	if !l.sending {
		l.sending = true
		go l.send(l.living, l.conn)
	}
}

// send sends all that is unsent, one caller at a time. It returns false if the connection is not the one in use any more, or cannot be used.
func (l *listener) send(living context.Context, conn *redis.PubSub) bool {
	for {
		l.mu.Lock()
		switch {
		case l.conn != conn:
			l.mu.Unlock()
			return false
		case len(l.unsent) == 0:
			l.sending = false
			l.mu.Unlock()
			return true
		}
		next := l.unsent[0]
		l.unsent = l.unsent[1:]
		l.mu.Unlock()
		say := conn.Subscribe
		if next.leave {
			say = conn.Unsubscribe
		}
		if err := say(living, next.channels...); err != nil {
			l.drop(conn, true)
			return false
		}
	}
}

// leave ends what join began.
func (l *listener) leave(flights []*flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []string
	for _, f := range flights {
		t := l.topics[f.channel]
		if t == nil {
			continue // the connection was dropped
		}
		t.waiters = slices.DeleteFunc(t.waiters, func(other *flight) bool { return other == f })
		if len(t.waiters) == 0 {
			gone = append(gone, f.channel)
			if t.owed == 0 {
				delete(l.topics, f.channel)
			}
		}
	}
	l.tell(order{true, gone})
}

// listen hands out what the server says, until the connection ends or is not needed any more.
func (l *listener) listen(conn *redis.PubSub) {
	for {
		said, err := conn.ReceiveTimeout(context.Background(), l.idle)
		if err != nil {
			timeout, ok := errors.AsType[net.Error](err)
			l.drop(conn, !ok || !timeout.Timeout())
			return
		}
		l.mu.Lock()
		switch said := said.(type) {
		case *redis.Subscription:
			if said.Kind == "subscribe" && l.conn == conn {
				l.confirmed(said.Channel)
			}
		case *redis.Message:
			if t := l.topics[said.Channel]; t != nil && l.conn == conn {
				t.wake()
			}
		}
		l.mu.Unlock()
	}
}

// confirmed needs mu.
func (l *listener) confirmed(channel string) {
	t := l.topics[channel]
	if t == nil || t.owed == 0 {
		return
	}
	if t.owed--; t.owed > 0 {
		return // it was left and joined again: only the last confirmation counts
	}
	close(t.ready)
	if len(t.waiters) == 0 {
		delete(l.topics, channel)
	}
}

// wake needs the listener's mu.
func (t *topic) wake() {
	for _, f := range t.waiters {
		f.told.Store(true)
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
}

func (l *listener) has(conn *redis.PubSub) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn == conn
}

// drop closes a connection. Who waits asks again, since nobody knows what was missed.
func (l *listener) drop(conn *redis.PubSub, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(conn, failed)
}

func (l *listener) dropLocked(conn *redis.PubSub, failed bool) {
	if l.conn != conn || conn == nil {
		return
	}
	l.stop()
	go conn.Close() // it waits for who is sending; nobody is interested in how it ends
	l.conn, l.unsent, l.sending = nil, nil, false
	if failed && !l.retired {
		l.failed = time.Now()
	}
	for _, t := range l.topics {
		if t.owed > 0 {
			close(t.ready)
		}
		t.wake()
	}
	clear(l.topics)
}

// retire closes it for good.
func (l *listener) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	l.dropLocked(l.conn, false)
}
