package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// An entry, as it stands in Redis:
//
//	byte 0       kind: 'V' value, 'A' absent, 'L' lease, 'P' poison
//	byte 1       format version, 1
//	value, absent:
//	  2..9       written-at, milliseconds since 1970, big endian
//	  10..17     soft expiry, likewise: from then on a reader may refresh the entry early; or, with the highest bit set, the token of one
//	             who is doing so (refresh.go)
//	  18..       value: the row's JSON; absent: nothing
//	lease:
//	  2..17      token; the highest bit of byte 10 says that readers wait for the end of the lease (listener.go)
//	poison, for each writer (at least one; scripts.go makes and reads these):
//	  +0..15     token; zero stands for writers that there was no room for
//	  +16..23    when the writer's poison ends, milliseconds since 1970 by the clock of the cache server, big endian
//
// The body is a suffix, so that a reply can be sent from the bytes that Redis sent.
const (
	// HeaderSize is how many bytes stand before the body.
	HeaderSize = 18

	formatVersion = 1
	poisonHeader  = 2
	writerSize    = 24
)

// EntryKind is what an entry says about its row.
type EntryKind uint8

// The kinds. A malformed entry counts as a miss that must be cleaned.
const (
	KindMalformed EntryKind = 0
	KindValue     EntryKind = 'V' // the row
	KindAbsent    EntryKind = 'A' // there is no such row
	KindLease     EntryKind = 'L' // a reader is about to fill the entry
	KindPoison    EntryKind = 'P' // writers are at work: nobody may fill the entry
)

func (k EntryKind) String() string {
	switch k {
	case KindValue:
		return "value"
	case KindAbsent:
		return "absent"
	case KindLease:
		return "lease"
	case KindPoison:
		return "poison"
	}
	return "malformed"
}

// Token tells one lease or writer from every other one, in all sidecars.
type Token [16]byte

// Writer is one writer in poison.
type Writer struct {
	Token   Token
	Expires time.Time // by the clock of the cache server: not to be compared with any other
}

// Entry is a decoded entry. Body aliases the bytes that were decoded and must not be changed.
type Entry struct {
	Kind        EntryKind
	WrittenAt   time.Time // value, absent: by the clock of the sidecar that wrote it
	SoftExpires time.Time // value, absent, unless it is claimed
	Claim       uint64    // value, absent: the token of who refreshes it; 0: nobody does
	Token       Token     // lease
	Writers     []Writer  // poison: one or more, in the order in which they came
	Body        []byte    // value
}

// ErrMalformed says that bytes are not an entry of this format.
var ErrMalformed = errors.New("malformed cache entry")

// Kind returns the kind of an entry, KindMalformed if Decode would refuse it. It neither allocates nor keeps b: an event loop asks
// this on every hit, and sends Body(b) if it is a value.
func Kind(b []byte) EntryKind {
	if len(b) < HeaderSize || b[1] != formatVersion {
		return KindMalformed
	}
	switch k := EntryKind(b[0]); k {
	case KindValue:
		return k
	case KindAbsent, KindLease:
		if len(b) == HeaderSize {
			return k
		}
	case KindPoison:
		if len(b)%writerSize == poisonHeader {
			return k
		}
	}
	return KindMalformed
}

// Body returns the body of an entry whose kind is KindValue; it aliases b.
func Body(b []byte) []byte { return b[HeaderSize:] }

// Decode reads an entry. The error is ErrMalformed with what is wrong; such an entry was not written by this format of ringside.
func Decode(b []byte) (Entry, error) {
	e := Entry{Kind: Kind(b)}
	switch e.Kind {
	case KindValue, KindAbsent:
		e.WrittenAt = time.UnixMilli(int64(binary.BigEndian.Uint64(b[2:])))
		if soft := binary.BigEndian.Uint64(b[softAt:]); soft&claimBit != 0 {
			e.Claim = soft
		} else {
			e.SoftExpires = time.UnixMilli(int64(soft))
		}
		if e.Kind == KindValue {
			e.Body = b[HeaderSize:]
		}
		return e, nil
	case KindLease:
		copy(e.Token[:], b[2:])
		return e, nil
	case KindPoison:
		for w := range slices.Chunk(b[poisonHeader:], writerSize) {
			ms := int64(binary.BigEndian.Uint64(w[len(Token{}):]))
			e.Writers = append(e.Writers, Writer{Token(w[:len(Token{})]), time.UnixMilli(ms)})
		}
		return e, nil
	}
	if len(b) < HeaderSize {
		return e, fmt.Errorf("%w: %d bytes, at least %d are needed", ErrMalformed, len(b), HeaderSize)
	}
	return e, fmt.Errorf("%w: kind %q, version %d, %d bytes", ErrMalformed, b[0], b[1], len(b))
}

// AppendValue appends a value entry to dst. Times are kept in milliseconds.
func AppendValue(dst []byte, writtenAt, softExpires time.Time, body []byte) []byte {
	return append(appendHeader(dst, KindValue, writtenAt, softExpires), body...)
}

// AppendAbsent appends an entry that says that there is no row.
func AppendAbsent(dst []byte, writtenAt, softExpires time.Time) []byte {
	return appendHeader(dst, KindAbsent, writtenAt, softExpires)
}

// AppendLease appends a lease.
func AppendLease(dst []byte, t Token) []byte {
	return append(append(dst, byte(KindLease), formatVersion), t[:]...)
}

// AppendPoison appends poison of one writer whose time is over: readers keep away from it while the entry is there, the next writer
// drops it. It is for tests of those who read entries. What writers put there is made on the server, by whose clock it ends.
func AppendPoison(dst []byte, t Token) []byte {
	return appendWriters(dst, Writer{Token: t, Expires: time.UnixMilli(0)})
}

func appendWriters(dst []byte, writers ...Writer) []byte {
	dst = append(dst, byte(KindPoison), formatVersion)
	for _, w := range writers {
		dst = append(dst, w.Token[:]...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(w.Expires.UnixMilli()))
	}
	return dst
}

func appendHeader(dst []byte, k EntryKind, writtenAt, softExpires time.Time) []byte {
	dst = append(dst, byte(k), formatVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(writtenAt.UnixMilli()))
	return binary.BigEndian.AppendUint64(dst, uint64(softExpires.UnixMilli()))
}
