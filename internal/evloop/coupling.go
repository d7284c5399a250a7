package evloop

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// A coupling makes a Conn of a stream that cannot be polled, such as one that is encrypted:
//
//	Conn <--- socket pair ---> two goroutines <---> stream
//
// What is on its way is bounded by the socket pair's buffers and one buffer in each goroutine: who does not read stops who writes,
// as with a socket. The first thing that ends either side ends both.
type coupling struct {
	ctx    context.Context // ends, with the cause, when either side has
	cancel context.CancelCauseFunc
}

// coupledBuffer is how much a goroutine of a coupling moves at a time. A TLS record holds 16 KiB.
const coupledBuffer = 32 << 10

// lastWords is how long a stream that takes no more may go on being read.
const lastWords = 100 * time.Millisecond

// errReleased ends the goroutines of a Conn that was closed.
var errReleased = errors.New("evloop: the connection was closed")

// DialFunc is Dial for a stream that dial makes, on a goroutine of its own; dial must obey its context, which ends after timeout
// and when the Conn is closed. addr is for RemoteAddr and error messages only. What ends the stream, dial's error included, is
// what OnClose is told, as it is; what has come before that is presented first, unless a write finds the stream ended. The stream is
// closed exactly once, on a goroutine, while it may be in Read and Write, and must make both return.
//
// It costs three goroutines and two more copies of each byte: Dial is for what can be polled.
func (l *Loop) DialFunc(addr string, timeout time.Duration, dial func(context.Context) (io.ReadWriteCloser, error), h Handler) *Conn {
	c := l.newConn(h)
	c.remote = dialAddr{"tcp", addr}
	if l.stopping {
		c.Close(ErrLoopStopped)
		return c
	}
	k := &coupling{}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	c.coupling = k
	l.couplings.Go(func() { k.run(c, timeout, dial) })
	return c
}

// run lasts as long as the coupling.
func (k *coupling) run(c *Conn, timeout time.Duration, dial func(context.Context) (io.ReadWriteCloser, error)) {
	stream, err := k.dial(timeout, dial)
	if err != nil {
		c.loop.Submit(func() { c.Close(err) }) // false: the loop has closed it
		return
	}
	near, far, err := pair()
	if err != nil {
		_ = stream.Close() // nothing was sent by it
		c.loop.Submit(func() { c.Close(err) })
		return
	}
	if !c.loop.Submit(func() { c.coupled(near) }) {
		closeDescriptor(near)
		k.cancel(ErrLoopStopped)
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { k.cancel(pump(far, stream)) })
	pumps.Go(func() {
		err := pump(stream, far)
		select { // why a peer went away is more often read than found out by writing
		case <-k.ctx.Done():
		case <-time.After(lastWords):
			k.cancel(err)
		}
	})
	<-k.ctx.Done()
	_ = stream.Close()
	_ = far.Close() // the cause is known; these only make the pumps return
	pumps.Wait()
}

func (k *coupling) dial(timeout time.Duration, dial func(context.Context) (io.ReadWriteCloser, error)) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithTimeout(k.ctx, timeout)
	defer cancel()
	return dial(ctx)
}

// pump copies until one side ends and returns what ended it: io.EOF if the source did so in order.
func pump(to io.Writer, from io.Reader) error {
	buf := make([]byte, coupledBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// pair returns a socket pair: one end for the loop, the other for goroutines.
func pair() (near int, far *os.File, err error) {
	fds, err := socketPair()
	if err != nil {
		return -1, nil, sysError("socketpair", err)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "socketpair"), nil // non-blocking, so the runtime polls it
}

// coupled opens the connection by its end of the socket pair.
func (c *Conn) coupled(fd int) {
	if c.state != connDialing {
		closeDescriptor(fd) // closed meanwhile
		return
	}
	c.fd = fd
	c.opened()
}

// reason returns what ended a connection of which err was seen: the stream's error rather than that of the socket pair before it.
func (c *Conn) reason(err error) error {
	if c.coupling == nil {
		return err
	}
	switch cause := context.Cause(c.coupling.ctx); cause {
	case nil, io.EOF:
		return err
	default:
		return cause
	}
}
