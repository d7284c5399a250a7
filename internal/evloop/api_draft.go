package evloop

import (
	"io/fs"
	"net"
	"time"
)

// Handler receives the events of one connection. All calls come on the loop's goroutine and must not block.
type Handler interface {
	// OnOpen comes first: at once for an adopted connection, when it is established for a dialled one.
	OnOpen(c *Conn)
	// OnData is given all input not consumed yet and returns how many bytes of it are done with. The rest is presented again
	// together with what follows. The slice is valid during the call only.
	OnData(c *Conn, in []byte) (consumed int)
	// OnDrain comes when unread output has fallen to the low-water mark after it was above the high-water mark.
	OnDrain(c *Conn)
	// OnEOF comes when the peer has shut down its writing side and all input has been presented. Output still goes out; the
	// handler decides when to close.
	OnEOF(c *Conn)
	// OnClose is the last call, exactly once, at the end of a turn.
	OnClose(c *Conn, err error)
}

// Loop ...
type Loop struct{}

// New ...
func New(cfg Config) (*Loop, error) { panic("draft") }

// Run ...
func (l *Loop) Run() error { panic("draft") }

// Stop ... any goroutine
func (l *Loop) Stop() { panic("draft") }

// Submit ... any goroutine
func (l *Loop) Submit(fn func()) bool { panic("draft") }

// Now ...
func (l *Loop) Now() time.Time { panic("draft") }

// AfterFunc ...
func (l *Loop) AfterFunc(d time.Duration, fn func()) *Timer { panic("draft") }

// Stats ... any goroutine
func (l *Loop) Stats() Stats { panic("draft") }

// Stats ...
type Stats struct {
	Turns, Wakeups, Accepted, AcceptPauses uint64
	Conns, Input, Output                   int64
}

// Timer ...
type Timer struct{}

// Stop ...
func (t *Timer) Stop() bool { panic("draft") }

// Reset ...
func (t *Timer) Reset(d time.Duration) { panic("draft") }

// ListenConfig ...
type ListenConfig struct {
	Network string      // "tcp" or "unix"
	Addr    string      // numeric host:port, or a path
	Mode    fs.FileMode // of a unix socket, default 0o600
	Backlog int         // default 4096
}

// Listener ...
type Listener struct{}

// Listen ...
func (l *Loop) Listen(cfg ListenConfig, accept func(*Accepted)) (*Listener, error) { panic("draft") }

// Addr ...
func (n *Listener) Addr() net.Addr { panic("draft") }

// Close ...
func (n *Listener) Close() error { panic("draft") }

// Accepted is a connection that no loop owns yet. Adopt it on any loop (through that loop's Submit), or Close it.
type Accepted struct{}

// RemoteAddr ...
func (a *Accepted) RemoteAddr() net.Addr { panic("draft") }

// Close ... any goroutine; a no-op once adopted
func (a *Accepted) Close() { panic("draft") }

// Adopt ... the descriptor is closed if it fails
func (l *Loop) Adopt(a *Accepted, h Handler) (*Conn, error) { panic("draft") }

// Dial ...
func (l *Loop) Dial(network, addr string, timeout time.Duration, h Handler) *Conn { panic("draft") }

// Conn ...
type Conn struct{}

// Write copies p.
func (c *Conn) Write(p []byte) { panic("draft") }

// Out returns the output buffer, to append at most about n bytes to; hand the result to SetOut before any other call to c.
func (c *Conn) Out(n int) []byte { panic("draft") }

// SetOut takes back what Out gave.
func (c *Conn) SetOut(b []byte) { panic("draft") }

// WriteOwned queues p without copying; it is the connection's from now on.
func (c *Conn) WriteOwned(p []byte) { panic("draft") }

// Want ...
func (c *Conn) Want(n int) { panic("draft") }

// PauseRead ...
func (c *Conn) PauseRead() { panic("draft") }

// ResumeRead ...
func (c *Conn) ResumeRead() { panic("draft") }

// Buffered ...
func (c *Conn) Buffered() int { panic("draft") }

// Full says that unread output passed the high-water mark and has not fallen to the low one since.
func (c *Conn) Full() bool { panic("draft") }

// SetWatermarks ...
func (c *Conn) SetWatermarks(low, high int) { panic("draft") }

// CloseAfterFlush ...
func (c *Conn) CloseAfterFlush(linger time.Duration) { panic("draft") }

// Close ...
func (c *Conn) Close(err error) { panic("draft") }

// Closed ...
func (c *Conn) Closed() bool { panic("draft") }

// Loop ...
func (c *Conn) Loop() *Loop { panic("draft") }

// RemoteAddr ...
func (c *Conn) RemoteAddr() net.Addr { panic("draft") }

// LocalAddr ...
func (c *Conn) LocalAddr() net.Addr { panic("draft") }
