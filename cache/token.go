package cache

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// tokens makes tokens that no other process and no other call makes: 64 random bits for the process, then a counter.
type tokens struct {
	process [8]byte
	n       atomic.Uint64
}

func newTokens() *tokens {
	t := new(tokens)
	rand.Read(t.process[:]) // never fails
	return t
}

func (t *tokens) next() (tok Token) {
	copy(tok[:8], t.process[:])
	binary.BigEndian.PutUint64(tok[8:], t.n.Add(1))
	return tok
}

// awaited returns a lease as it stands there when readers wait for its end: with a bit set that no counter of tokens ever reaches.
func awaited(lease []byte) []byte {
	out := slices.Clone(lease)
	out[awaitedByte] |= 0x80
	return out
}

const (
	leaseHeader = 2               // bytes before a lease's token
	awaitedByte = leaseHeader + 8 // where that bit is: in the first byte of the token's counter
)
