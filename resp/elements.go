package resp

// Elements walks over the elements of an aggregate reply without decoding them, such as the values in the answer to an MGET.
type Elements struct {
	rest []byte
	left int
	scan Scanner
}

// ElementsOf begins a walk over a whole reply as Scanner.Next delimits it. A map has two elements per pair. False when frame is not an
// aggregate or is a null array.
func ElementsOf(frame []byte) (Elements, bool) {
	switch KindOf(frame) {
	case KindArray, KindMap, KindSet, KindPush:
	default:
		return Elements{}, false
	}
	n, next, ok := frameHeader(frame)
	if !ok || n < 0 {
		return Elements{}, false
	}
	if KindOf(frame) == KindMap {
		n *= 2
	}
	return Elements{rest: frame[next:], left: n, scan: Scanner{MaxReply: len(frame)}}, true
}

// Len returns how many elements are still to come.
func (e *Elements) Len() int { return e.left }

// Next returns the next element with its framing, aliasing the reply; false when there are no more.
func (e *Elements) Next() ([]byte, bool) {
	if e.left == 0 {
		return nil, false
	}
	n, err := e.scan.Next(e.rest)
	if err != nil || n == 0 {
		e.left = 0
		return nil, false
	}
	element := e.rest[:n:n]
	e.rest = e.rest[n:]
	e.left--
	return element, true
}

// ArrayHeader reads the first line of an array: how many elements follow, and where they begin. Next is 0 when head is not an array with
// elements or its first line is not there as a whole.
func ArrayHeader(head []byte) (count, next int) {
	if KindOf(head) != KindArray {
		return 0, 0
	}
	n, next, ok := frameHeader(head[:min(len(head), maxHeader)])
	if !ok || n <= 0 {
		return 0, 0
	}
	return n, next
}

// maxHeader is longer than the first line of any aggregate.
const maxHeader = 32
