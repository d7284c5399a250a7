package resp

// ProtocolError says that the peer broke the framing. What follows in the stream cannot be understood: send "-ERR " and the text to
// a client and close the connection; close an upstream connection and fail everything that waits on it.
type ProtocolError struct {
	// Text is what Redis would say, without the leading "ERR ".
	Text string
	// Limit is the one that the request went beyond, which may be well formed otherwise. NoLimit: the framing itself is broken.
	Limit Limit
}

func (e *ProtocolError) Error() string { return e.Text }

func protocolError(what string) *ProtocolError {
	return &ProtocolError{Text: "Protocol error: " + what}
}

func (e *ProtocolError) beyond(l Limit) *ProtocolError {
	e.Limit = l
	return e
}

// Refusal is the text of an error reply with its code ("ERR unknown command ..."), fit for AppendError. Nothing was run; the
// connection lives on.
type Refusal string

func (r Refusal) Error() string { return string(r) }
