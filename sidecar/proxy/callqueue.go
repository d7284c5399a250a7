package proxy

// call is one reply that an upstream connection owes.
type call struct {
	request *request // nil: part of the handshake
	part    int32    // of a join; else the step of the request or handshake
	sent    int64    // worker.now at that time
}

// callQueue is a FIFO of calls in a ring buffer. It shrinks again after a burst. The zero value is empty.
type callQueue struct {
	buf  []call // length is a power of two
	head int
	n    int
}

const keepCalls = 1024

func (q *callQueue) len() int { return q.n }

func (q *callQueue) push(c call) {
	if q.n == len(q.buf) {
		q.resize(max(16, 2*len(q.buf)))
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = c
	q.n++
}

// front returns the oldest call; the queue must not be empty.
func (q *callQueue) front() *call { return &q.buf[q.head] }

// pop takes the oldest call; the queue must not be empty.
func (q *callQueue) pop() call {
	c := q.buf[q.head]
	q.buf[q.head] = call{}
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	if q.n == 0 && len(q.buf) > keepCalls {
		q.buf, q.head = nil, 0
	}
	return c
}

func (q *callQueue) resize(size int) {
	grown := make([]call, size)
	for i := range q.n {
		grown[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
	}
	q.buf, q.head = grown, 0
}
