package membership

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Sizes. memberlist panics on node meta above 512 bytes, and meta lies in every alive message.
const (
	maxMeta      = 256
	maxName      = 128
	maxBoot      = 32
	maxMetaField = 112 // a Unix socket's path has at most 108
	maxCluster   = 200
	maxDigest    = 64
)

// Meta is what a sidecar says about itself. It holds no secret: memberlist logs it.
type Meta struct {
	// Boot is a random id of this process: two lives of one name differ in it. At most 32 bytes.
	Boot string
	// Started is when the process started, by its own clock, to the millisecond. Zero in New becomes the present.
	Started time.Time
	// Version is the program's version. At most 112 bytes, as are the addresses.
	Version string
	// Redis and Admin are the addresses (host:port) that the sidecar serves.
	Redis, Admin string
}

// Layout of node meta (version 1):
//
//	0      version
//	1      length of boot, then boot
//	..     started, unix milliseconds, 8 bytes big endian
//	..     length and bytes of: version, redis, admin
//
// Later versions append fields or change what follows boot; boot stays first in every version, since records are matched by it.
const metaVersion = 1

func (m Meta) encode() ([]byte, error) {
	if len(m.Boot) > maxBoot {
		return nil, fmt.Errorf("gossip: boot id %q is longer than %d bytes", m.Boot, maxBoot)
	}
	b := appendString([]byte{metaVersion}, m.Boot)
	var ms uint64
	if !m.Started.IsZero() {
		ms = uint64(max(0, m.Started.UnixMilli()))
	}
	b = binary.BigEndian.AppendUint64(b, ms)
	for _, f := range []struct{ what, value string }{{"version", m.Version}, {"redis address", m.Redis}, {"admin address", m.Admin}} {
		if len(f.value) > maxMetaField {
			return nil, fmt.Errorf("gossip: %s %q is longer than %d bytes", f.what, f.value, maxMetaField)
		}
		b = appendString(b, f.value)
	}
	if len(b) > maxMeta {
		return nil, fmt.Errorf("gossip: version, redis and admin address take %d bytes together with the boot id; at most %d are allowed", len(b), maxMeta)
	}
	return b, nil
}

// decodeMeta reads what it can: of a version that it does not know it takes the boot id alone, of garbage nothing.
func decodeMeta(b []byte) Meta {
	var m Meta
	r := reader{b: b}
	version := r.byte()
	boot := r.string(maxBoot)
	if r.bad || version == 0 {
		return m
	}
	m.Boot = boot
	if version != metaVersion {
		return m
	}
	ms := r.uint64()
	v, redis, admin := r.string(maxMetaField), r.string(maxMetaField), r.string(maxMetaField)
	if r.bad {
		return m
	}
	if ms != 0 && ms < 1<<53 {
		m.Started = time.UnixMilli(int64(ms))
	}
	m.Version, m.Redis, m.Admin = v, redis, admin
	return m
}
