package ring

import (
	"hash"

	"github.com/spaolacci/murmur3"
)

const (
	// Bits is the number of bits of a vnode.
	Bits = 16
	// Vnodes is the number of vnodes of the ring, and the length of every table.
	Vnodes = 1 << Bits
	// None stands in a table for "nobody".
	None uint16 = 65535
)

// Hasher computes hashes without allocating. It is not safe for concurrent use: each loop owns one.
//
// It wraps the streaming digest of murmur3, reset before each use. The one-shot murmur3.Sum32 keeps a pointer in a uintptr and
// dies under the race detector, so it is called nowhere.
type Hasher struct {
	digest hash.Hash32
}

// NewHasher returns a Hasher for the ring's hash: murmur3, x86, 32 bit, seed 0.
func NewHasher() *Hasher { return newSeededHasher(0) }

func newSeededHasher(seed uint32) *Hasher {
	return &Hasher{digest: murmur3.New32WithSeed(seed)}
}

// Sum32 returns the hash of exactly these bytes. It does not keep key.
func (h *Hasher) Sum32(key []byte) uint32 {
	h.digest.Reset()
	h.digest.Write(key) // a digest's Write never fails
	return h.digest.Sum32()
}

// Vnode returns the vnode of exactly these bytes. For the vnode of a cache key pass CacheKey(key).
func (h *Hasher) Vnode(key []byte) uint16 { return uint16(h.Sum32(key) >> (32 - Bits)) }

// Hash returns the hash of exactly these bytes. It allocates; code that hashes often owns a Hasher.
func Hash(key []byte) uint32 { return NewHasher().Sum32(key) }

// Vnode returns the vnode of exactly these bytes: the top 16 bits of the hash. It allocates; code that hashes often owns a Hasher.
func Vnode(key []byte) uint16 { return NewHasher().Vnode(key) }

// identity returns 64 bits that stand for a node's name within one fleet. One 32-bit hash would be too narrow: among a
// thousand names two equal ones turn up once in ten thousand fleets, and such a pair would always want the same vnodes.
func identity(salt, name string) uint64 {
	const secondSeed = 0x9e3779b9 // any value but the first seed; fixed for good
	b := make([]byte, 0, len(salt)+1+len(name))
	b = append(b, salt...)
	b = append(b, 0)
	b = append(b, name...)
	return uint64(newSeededHasher(0).Sum32(b))<<32 | uint64(newSeededHasher(secondSeed).Sum32(b))
}
