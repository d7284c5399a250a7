package evloop

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Loop is one event loop. See the package comment for who may call what.
type Loop struct {
	cfg   Config
	poll  *poller
	tasks taskQueue
	pool  bufferPool

	slots     []slot // by descriptor number
	conns     map[*Conn]struct{}
	listeners map[*Listener]struct{}
	couplings sync.WaitGroup // goroutines of DialFunc; added to on the loop only
	timers    timerHeap

	// What this turn still has to do at its end. A Conn is at most once in each; its own flags say whether it is.
	dirty   []*Conn // output to flush, or interest to bring up to date
	resumed []*Conn // input or an EOF to present again
	drained []*Conn // OnDrain to call
	closing []*Conn // OnClose to call, descriptor to close
	spare   [4][]*Conn

	// readBuffer is where every connection reads. Its first headroom bytes stay free, so that a short rest of earlier input can
	// be put in front of new input without moving that.
	readBuffer []byte

	base     time.Time // of the monotonic clock
	now      int64     // nanoseconds since base, taken once per turn
	yielded  int64     // when other goroutines were let run
	yieldNow bool      // set by Yield
	running  bool      // inside Run
	stopping bool      // from the beginning of shutdown on

	state   atomic.Int32
	stats   counters
	held    heldBytes
	iovecs  ioVectors
	lastGen uint32
}

// slot is what the loop knows about one descriptor number.
type slot struct {
	src source
	gen uint32
}

// source is whatever owns a registered descriptor: a Conn, a Listener or the wake-up descriptor.
type source interface {
	// ready handles the readiness that the poller reported in this turn.
	ready(ev readiness)
}

// heldBytes counts what connections hold in memory at present.
type heldBytes struct{ in, out int }

const (
	stateNew int32 = iota
	stateRunning
	stateEnded
)

// headroom is the largest rest of unconsumed input that is copied in front of new input, rather than new input being read behind
// it. It bounds the copying per read.
const headroom = 16 << 10

// maxShutdownRounds bounds how often shutdown closes connections that handlers opened while being told of the end.
const maxShutdownRounds = 16

// New makes a loop. Its descriptors are released when Run returns, or by Stop if Run is never called.
func New(cfg Config) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	poll, err := newPoller(cfg.MaxEvents)
	if err != nil {
		return nil, fmt.Errorf("evloop: creating the poller: %w", err)
	}
	l := &Loop{
		cfg:        cfg,
		poll:       poll,
		conns:      make(map[*Conn]struct{}),
		listeners:  make(map[*Listener]struct{}),
		readBuffer: make([]byte, headroom+cfg.ReadBuffer),
		base:       time.Now(),
	}
	l.timers.loop = l
	l.tasks.wake = poll.wake
	return l, nil
}

// Run serves until Stop, then closes every connection with ErrLoopStopped, closes the listeners and releases all descriptors. It
// returns nil after Stop, and an error only if the loop had ended before or the system's poller failed. It can be called once.
func (l *Loop) Run() error {
	if !l.state.CompareAndSwap(stateNew, stateRunning) {
		return ErrLoopStopped
	}
	l.running = true
	var err error
	for ending := false; err == nil && !ending; {
		ending, err = l.turn()
	}
	l.shutdown()
	l.state.Store(stateEnded)
	if err != nil {
		return fmt.Errorf("evloop: waiting for events: %w", err)
	}
	return nil
}

// Stop makes Run return after the turn it is in; it does not wait for that. Any goroutine, any number of times.
func (l *Loop) Stop() {
	l.tasks.stop()
	if l.state.CompareAndSwap(stateNew, stateEnded) {
		l.shutdown()
	}
}

// Submit has fn run on the loop in one of its next turns, after the tasks submitted before. Tasks that are submitted while
// others wait cost no wake-up of their own. It returns false once the loop is ending, and fn then never runs; true means that it
// will, if need be while the loop shuts down. A task that was submitted by a task runs in a later turn. Any goroutine.
func (l *Loop) Submit(fn func()) bool { return l.tasks.submit(fn) }

// Now is the time at which the present turn began to handle its events. It carries a monotonic reading.
func (l *Loop) Now() time.Time {
	l.clock()
	return l.base.Add(time.Duration(l.now))
}

// clock returns the turn's time. Outside Run there are no turns, so the clock is read.
func (l *Loop) clock() int64 {
	if !l.running {
		l.now = int64(time.Since(l.base))
	}
	return l.now
}

// turn waits for something to do and does it. The order matters: replies that arrive in a turn leave in it, because output is
// written after events, tasks, timers and resumed input alike; and descriptors are closed last, when nothing that was reported
// for them is left.
func (l *Loop) turn() (ending bool, err error) {
	n, err := l.wait()
	if err != nil {
		return true, err
	}
	l.now = int64(time.Since(l.base))
	for i := range n {
		l.dispatch(l.poll.event(i))
	}
	ending = l.tasks.run()
	l.timers.fire(l.now)
	l.presentResumed()
	l.flushDirty()
	if len(l.drained)+len(l.closing) > 0 {
		// What these calls write should not wait for the next turn; what that leads to does, so that a turn ends.
		l.tellDrained()
		l.reapClosed()
		l.flushDirty()
	}
	l.stats.publish(l)
	return ending, nil
}

// dispatch hands a report to the descriptor's owner, if that is still who it was reported for.
func (l *Loop) dispatch(ev event) {
	if uint(ev.fd) >= uint(len(l.slots)) {
		return
	}
	if s := &l.slots[ev.fd]; s.src != nil && s.gen == ev.gen {
		s.src.ready(ev.ready)
	}
}

// wait blocks until there is something to do. It asks the kernel once and in a way the runtime knows of, so that other
// goroutines get the processor if it blocks; asking first without blocking was measured and costs more than it saves.
func (l *Loop) wait() (int, error) {
	now := l.yield()
	if l.pending() {
		return l.poll.poll()
	}
	timeout := time.Duration(-1)
	if at, ok := l.timers.next(); ok {
		if timeout = time.Duration(at - now); timeout <= 0 {
			return l.poll.poll()
		}
	}
	if !l.tasks.sleep() {
		return l.poll.poll()
	}
	n, err := l.poll.wait(timeout)
	l.tasks.awake()
	return n, err
}

// Yield has other goroutines run at the end of this turn, for a Handler that has just given one something to do. The runtime
// takes the processor from a loop only some time after it has blocked, and from a busy one after 10 ms; with as many loops as
// processors nobody else would run until then.
func (l *Loop) Yield() { l.yieldNow = true }

// yield lets other goroutines run when that was asked for, and every cfg.YieldEvery. Doing so each turn costs a fifth of all
// processor time, because the runtime wakes a thread to look for work each time. It returns the time.
func (l *Loop) yield() int64 {
	now := int64(time.Since(l.base))
	if l.yieldNow || now-l.yielded >= int64(l.cfg.YieldEvery) {
		l.yieldNow = false
		l.yielded = now
		runtime.Gosched()
		now = int64(time.Since(l.base))
	}
	return now
}

// pending says that the end of the last turn left something to do.
func (l *Loop) pending() bool {
	return len(l.dirty)+len(l.resumed)+len(l.drained)+len(l.closing) > 0
}

// The lists are swapped for an empty one before they are walked, because what the walk calls may add to them. Each has a spare,
// so that this allocates nothing.

func (l *Loop) presentResumed() {
	if len(l.resumed) == 0 {
		return
	}
	list := l.resumed
	l.resumed = l.spare[0]
	for i, c := range list {
		list[i] = nil
		c.resumeQueued = false
		c.present()
	}
	l.spare[0] = list[:0]
}

func (l *Loop) flushDirty() {
	if len(l.dirty) == 0 {
		return
	}
	list := l.dirty
	l.dirty = l.spare[1]
	for i, c := range list {
		list[i] = nil
		c.dirtyQueued = false
		c.flush()
	}
	l.spare[1] = list[:0]
}

func (l *Loop) tellDrained() {
	list := l.drained
	l.drained = l.spare[2]
	for i, c := range list {
		list[i] = nil
		c.drainQueued = false
		if c.state == connOpen && !c.draining {
			c.handler.OnDrain(c)
		}
	}
	l.spare[2] = list[:0]
}

func (l *Loop) reapClosed() {
	list := l.closing
	l.closing = l.spare[3]
	for i, c := range list {
		list[i] = nil
		c.handler.OnClose(c, c.err)
		c.release()
	}
	l.spare[3] = list[:0]
}

// register enters a descriptor and tells the poller of it.
func (l *Loop) register(fd int, src source, in interest) (gen uint32, err error) {
	for fd >= len(l.slots) {
		l.slots = append(l.slots, slot{})
	}
	l.lastGen++
	if err := l.poll.add(fd, l.lastGen, in); err != nil {
		return 0, err
	}
	l.slots[fd] = slot{src: src, gen: l.lastGen}
	return l.lastGen, nil
}

// closeFD takes a descriptor out of the poller and closes it. The explicit removal matters when a child that was just forked
// still holds the same open file: closing alone would leave it in epoll.
func (l *Loop) closeFD(fd int, registered bool, in interest) {
	if registered {
		_ = l.poll.remove(fd, in) // it is being closed: there is nothing to do about a failure
	}
	if fd < len(l.slots) {
		l.slots[fd].src = nil
	}
	closeDescriptor(fd)
}

// shutdown ends everything. It runs on the goroutine of Run, or on that of Stop when Run was never called.
func (l *Loop) shutdown() {
	l.stopping = true
	l.tasks.close()
	for n := range l.listeners {
		n.Close()
	}
	l.flushDirty()
	for range maxShutdownRounds {
		for c := range l.conns {
			c.Close(ErrLoopStopped)
		}
		if len(l.closing) == 0 {
			break
		}
		l.reapClosed()
	}
	for _, c := range l.closing { // opened by handlers that cannot stop; nobody is told any more
		c.release()
	}
	l.closing, l.dirty, l.resumed, l.drained = nil, nil, nil, nil
	l.timers.clear()
	l.stats.publish(l)
	l.tasks.waitWakers()
	l.couplings.Wait()
	l.poll.close()
	l.pool = bufferPool{}
}

// errUse is the text of the panics for calls that no correct program makes.
func errUse(text string) error { return errors.New("evloop: " + text) }
