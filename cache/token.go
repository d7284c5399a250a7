package cache

import (
	"crypto/rand"
	"encoding/binary"
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
