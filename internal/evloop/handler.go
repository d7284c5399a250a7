package evloop

// Handler receives the events of one connection and carries its state. All calls come on the loop's goroutine and must not
// block. Two implementations exist wherever this is used: the side that faces clients and the side that faces servers.
type Handler interface {
	// OnOpen is the first call: within Adopt for an accepted connection, when it is established for a dialled one.
	OnOpen(c *Conn)
	// OnData is given all input that is not consumed yet and returns how many bytes of it are done with. The rest is kept and
	// presented again together with what follows, or after ResumeRead; consume as much as can be. A Handler that knows how much
	// it needs says so with Conn.Want. The slice is valid during the call only. Input that is neither consumed nor paused
	// grows without limit: a Handler bounds what it waits for.
	OnData(c *Conn, in []byte) (consumed int)
	// OnDrain comes, at the end of a turn, when unread output has fallen to the low-water mark or below it after it was above
	// the high-water mark.
	OnDrain(c *Conn)
	// OnEOF comes once, when the peer has shut down its writing side and reading is not paused; all input has been presented
	// then, and what is left of it stays for a ResumeRead after a PauseRead. Output still goes out; the Handler decides when
	// to close.
	OnEOF(c *Conn)
	// OnClose is the last call. It comes exactly once, at the end of the turn in which the connection was closed by either side
	// or could not be established. err is what Close was given, or what went wrong, or nil after CloseAfterFlush.
	OnClose(c *Conn, err error)
}
