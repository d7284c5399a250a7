package ring

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// Vectors that SQL and other languages share: mmh3.hash(key, signed=False) in Python.
var sharedVectors = []struct {
	key  string
	hash uint32
}{
	{"", 0},
	{"4", 3778137224},
	{"42", 3159925814},
	{"hello", 613153351},
	{"0123456789abcdef", 919068895},
	{"0123456789abcdefg", 3803014761},
}

func TestHashVectors(t *testing.T) {
	h := NewHasher()
	for _, v := range sharedVectors {
		key := []byte(v.key)
		if got := h.Sum32(key); got != v.hash {
			t.Errorf("Hasher.Sum32(%q) = %d, want %d", v.key, got, v.hash)
		}
		if got := Hash(key); got != v.hash {
			t.Errorf("Hash(%q) = %d, want %d", v.key, got, v.hash)
		}
		want := uint16(v.hash >> 16)
		if got := h.Vnode(key); got != want {
			t.Errorf("Hasher.Vnode(%q) = %d, want %d", v.key, got, want)
		}
		if got := Vnode(key); got != want {
			t.Errorf("Vnode(%q) = %d, want %d", v.key, got, want)
		}
	}
}

// TestHashReference compares every length to a plain implementation, at every alignment, with one Hasher that is reused: nothing of a
// key may linger. It is most useful under -race, which checks the library's pointers.
func TestHashReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := NewHasher()
	for length := range 65 {
		for range 16 {
			buffer := make([]byte, 8+length)
			for i := range buffer {
				buffer[i] = byte(rng.Uint32())
			}
			for offset := range 8 {
				key := buffer[offset : offset+length]
				if got, want := h.Sum32(key), referenceHash(key); got != want {
					t.Fatalf("length %d, offset %d: %#x, want %#x", length, offset, got, want)
				}
			}
		}
	}
}

// referenceHash is murmur3_x86_32 as its author wrote it, seed 0.
func referenceHash(key []byte) uint32 {
	scramble := func(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
	var h uint32
	rest := key
	for len(rest) >= 4 {
		h ^= scramble(binary.LittleEndian.Uint32(rest))
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
		rest = rest[4:]
	}
	var k uint32
	for i := len(rest) - 1; i >= 0; i-- {
		k = k<<8 | uint32(rest[i])
	}
	h ^= scramble(k) ^ uint32(len(key))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

func TestIdentityTellsNamesAndSaltsApart(t *testing.T) {
	seen := make(map[uint64]string)
	for _, n := range fleet("identity", 20_000) {
		for _, salt := range []string{CacheSalt, ShardSalt} {
			id := identity(salt, n.Name)
			if other, ok := seen[id]; ok {
				t.Fatalf("%s/%s has the identity of %s", salt, n.Name, other)
			}
			seen[id] = salt + "/" + n.Name
		}
	}
	if identity("a", "bc") == identity("ab", "c") {
		t.Error("salt and name run into each other")
	}
}

func TestOwnerLookupDoesNotAllocate(t *testing.T) {
	p := mustPlace(t, fleet("alloc", 5), DefaultParams())
	h := NewHasher()
	key := []byte("{user:12345}:timeline:42")
	var owner uint16
	if n := testing.AllocsPerRun(100, func() { owner = p.Owner(h.Vnode(CacheKey(key))) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if int(owner) >= 5 {
		t.Errorf("owner %d of 5", owner)
	}
}
