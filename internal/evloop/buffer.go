package evloop

import "math/bits"

// bufferPool keeps a loop's buffers between uses, in four sizes. It holds at most maxIdleBytes of each size, and nothing larger
// than maxPooled: a burst or a large value leaves nothing behind that the garbage collector could not have.
type bufferPool struct {
	free [bufferClasses][][]byte
}

const (
	minPooled     = 1 << 10
	maxPooled     = 64 << 10
	bufferClasses = 4 // 1, 4, 16 and 64 KiB
	maxIdleBytes  = 1 << 20
)

// bufferClass returns the smallest class whose buffers hold n bytes; n <= maxPooled.
func bufferClass(n int) int {
	if n <= minPooled {
		return 0
	}
	return (bits.Len(uint(n-1)) - 9) / 2
}

func classSize(class int) int { return minPooled << (2 * class) }

// get returns an empty buffer with room for n bytes or more. Above maxPooled it is allocated to measure.
func (p *bufferPool) get(n int) []byte {
	if n > maxPooled {
		return make([]byte, 0, n)
	}
	class := bufferClass(n)
	list := p.free[class]
	if len(list) == 0 {
		return make([]byte, 0, classSize(class))
	}
	last := len(list) - 1
	b := list[last]
	list[last] = nil
	p.free[class] = list[:last]
	return b[:0]
}

// put takes a buffer that nobody uses any more; of any origin, since only those of a pooled size are kept.
func (p *bufferPool) put(b []byte) {
	if cap(b) < minPooled || cap(b) > maxPooled {
		return
	}
	class := bufferClass(cap(b))
	if cap(b) != classSize(class) || len(p.free[class]) >= maxIdleBytes/classSize(class) {
		return
	}
	p.free[class] = append(p.free[class], b)
}
