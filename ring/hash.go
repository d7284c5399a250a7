package ring

import (
	"encoding/binary"
	"math/bits"
)

const (
	// Bits is the number of bits of a vnode.
	Bits = 16
	// Vnodes is the number of vnodes of the ring, and the length of every table.
	Vnodes = 1 << Bits
	// None stands in a table for "nobody".
	None uint16 = 65535
)

// Hasher computes the ring's hash: murmur3, x86, 32 bit, seed 0.
type Hasher struct{}

// NewHasher returns a Hasher. It may be shared.
func NewHasher() *Hasher { return &Hasher{} }

// Sum32 returns the hash of exactly these bytes. It neither allocates nor keeps key.
func (h *Hasher) Sum32(key []byte) uint32 { return murmur3(key, 0) }

// murmur3 is MurmurHash3_x86_32. Every request hashes its key, so it is all in one place: through the interface of a digest it takes twice
// as long.
func murmur3(key []byte, seed uint32) uint32 {
	h := seed
	rest := key
	for ; len(rest) >= 4; rest = rest[4:] {
		h = bits.RotateLeft32(h^scramble(binary.LittleEndian.Uint32(rest)), 13)*5 + 0xe6546b64
	}
	var k uint32
	switch len(rest) {
	case 3:
		k = uint32(rest[2])<<16 | uint32(rest[1])<<8 | uint32(rest[0])
	case 2:
		k = uint32(rest[1])<<8 | uint32(rest[0])
	case 1:
		k = uint32(rest[0])
	}
	h ^= scramble(k) ^ uint32(len(key))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

func scramble(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }

// Vnode returns the vnode of exactly these bytes. For the vnode of a cache key pass CacheKey(key).
func (h *Hasher) Vnode(key []byte) uint16 { return uint16(h.Sum32(key) >> (32 - Bits)) }

// Hash returns the hash of exactly these bytes.
func Hash(key []byte) uint32 { return murmur3(key, 0) }

// Vnode returns the vnode of exactly these bytes: the top 16 bits of the hash.
func Vnode(key []byte) uint16 { return uint16(Hash(key) >> (32 - Bits)) }

// identity returns 64 bits that stand for a node's name within one fleet. One 32-bit hash would be too narrow: among a
// thousand names two equal ones turn up once in ten thousand fleets, and such a pair would always want the same vnodes.
func identity(salt, name string) uint64 {
	const secondSeed = 0x9e3779b9 // any value but the first seed; fixed for good
	b := make([]byte, 0, len(salt)+1+len(name))
	b = append(b, salt...)
	b = append(b, 0)
	b = append(b, name...)
	return uint64(murmur3(b, 0))<<32 | uint64(murmur3(b, secondSeed))
}
