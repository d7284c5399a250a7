package topology

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"ringside/ring"
)

// Content is what a topology is made from: all of it, and nothing that follows from the rest.
// Its canonical JSON is what travels and what the digest is taken of.
type Content struct {
	Epoch     uint64      `json:"epoch"`
	Params    ring.Params `json:"params"`
	Caches    []Cache     `json:"caches"`
	Shards    []Shard     `json:"shards"`
	Overrides []Override  `json:"overrides"`
	ShardMap  PerVnode    `json:"shard_map"` // indexes into Shards
	Appointed PerVnode    `json:"appointed"` // epoch in which the vnode's cache owner was appointed
	Flush     PerVnode    `json:"flush"`     // flush generation of the shard vnode

	// While a change of the cache servers is being carried out:
	Former    *Former    `json:"former,omitempty"`    // what it replaces; nil: nothing is being handed over
	Handovers []Handover `json:"handovers,omitempty"` // who may still hold plain keys of others
	Handing   PerVnode   `json:"handing,omitzero"`    // by vnode: number of its hand-over, from 1; 0: none
}

// PerVnode is one number for each vnode: the distinct numbers, and which of them each vnode has. The zero value is 0 everywhere.
type PerVnode struct {
	Values []uint64 `json:"values"`
	// Index is base64 of 65,536 little-endian 16-bit indexes into Values; empty when there is at most one value.
	Index string `json:"index,omitempty"`
}

// Same is one number for all vnodes.
func Same(n uint64) PerVnode { return PerVnode{Values: []uint64{n}} }

// Each makes a PerVnode of ring.Vnodes numbers.
func Each[T uint16 | uint64](numbers []T) PerVnode {
	var p PerVnode
	at := map[T]uint16{}
	for _, n := range numbers {
		if _, ok := at[n]; !ok {
			at[n] = 0
			p.Values = append(p.Values, uint64(n))
		}
	}
	slices.Sort(p.Values)
	if len(p.Values) < 2 {
		return p
	}
	for i, n := range p.Values {
		at[T(n)] = uint16(i)
	}
	raw := make([]byte, 0, 2*ring.Vnodes)
	for _, n := range numbers {
		raw = binary.LittleEndian.AppendUint16(raw, at[n])
	}
	p.Index = base64.StdEncoding.EncodeToString(raw)
	return p
}

func (p PerVnode) check(what string) error {
	if p.Index == "" {
		if len(p.Values) > 1 {
			return fmt.Errorf("%s: %d values and no index", what, len(p.Values))
		}
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(p.Index)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if len(raw) != 2*ring.Vnodes {
		return fmt.Errorf("%s: %d bytes of index, %d needed", what, len(raw), 2*ring.Vnodes)
	}
	for i := 0; i < len(raw); i += 2 {
		if int(binary.LittleEndian.Uint16(raw[i:])) >= len(p.Values) {
			return fmt.Errorf("%s: vnode %d has no value", what, i/2)
		}
	}
	return nil
}

// expand must only be called on what check has passed.
func (p PerVnode) expand() []uint64 {
	out := make([]uint64, ring.Vnodes)
	if p.Index == "" {
		if len(p.Values) == 1 {
			for v := range out {
				out[v] = p.Values[0]
			}
		}
		return out
	}
	raw, _ := base64.StdEncoding.DecodeString(p.Index)
	for v := range out {
		out[v] = p.Values[binary.LittleEndian.Uint16(raw[2*v:])]
	}
	return out
}

func (p PerVnode) expand16() []uint16 {
	out := make([]uint16, ring.Vnodes)
	for v, n := range p.expand() {
		out[v] = uint16(n)
	}
	return out
}

func (c Content) clone() Content {
	c.Caches = append([]Cache{}, c.Caches...)
	c.Shards = append([]Shard{}, c.Shards...)
	c.Overrides = append([]Override{}, c.Overrides...)
	c.Handovers = slices.Clone(c.Handovers)
	return c
}

func (c Content) check() error {
	if c.Epoch == 0 {
		return errors.New("topology without an epoch")
	}
	if err := c.Params.Validate(); err != nil {
		return err
	}
	addrs := map[string]string{}
	for _, s := range c.Caches {
		switch s.State {
		case Joining, Active, Draining, Down:
		default:
			return fmt.Errorf("cache server %s is in unknown state %q", s.Name, s.State)
		}
		if other, taken := addrs[s.Addr]; taken {
			return fmt.Errorf("cache servers %s and %s have the same address %s", other, s.Name, s.Addr)
		}
		addrs[s.Addr] = s.Name
	}
	names := map[string]bool{}
	for i, s := range c.Shards {
		if s.Name == "" || names[s.Name] {
			return fmt.Errorf("shard name %q is empty or used twice", s.Name)
		}
		if i > 0 && c.Shards[i-1].Name > s.Name {
			return fmt.Errorf("shards are not sorted by name: %s", s.Name)
		}
		names[s.Name] = true
	}
	for _, o := range c.Overrides {
		if !names[o.Shard] {
			return fmt.Errorf("override of %q names unknown shard %q", o.ShardKey, o.Shard)
		}
	}
	for what, p := range map[string]PerVnode{"shard_map": c.ShardMap, "appointed": c.Appointed, "flush": c.Flush, "handing": c.Handing} {
		if err := p.check(what); err != nil {
			return err
		}
	}
	for _, n := range c.ShardMap.Values {
		if n != uint64(ring.None) && n >= uint64(len(c.Shards)) {
			return fmt.Errorf("shard_map names shard %d of %d", n, len(c.Shards))
		}
	}
	if c.Former != nil {
		if err := c.Former.Appointed.check("former appointed"); err != nil {
			return err
		}
		if c.Former.Epoch >= c.Epoch {
			return fmt.Errorf("former placement is of epoch %d, the topology of %d", c.Former.Epoch, c.Epoch)
		}
	}
	for _, n := range c.Handing.Values {
		if n > uint64(len(c.Handovers)) {
			return fmt.Errorf("handing names hand-over %d of %d", n, len(c.Handovers))
		}
	}
	for _, h := range c.Handovers {
		if indexOf(c.Caches, h.From) < 0 {
			return fmt.Errorf("hand-over from unknown cache server %q", h.From)
		}
	}
	return nil
}

// Digest is the first 8 bytes of the SHA-256 of a topology's canonical JSON.
type Digest [8]byte

func (d Digest) String() string           { return hex.EncodeToString(d[:]) }
func (d Digest) compare(other Digest) int { return bytes.Compare(d[:], other[:]) }

func (c Content) encode() ([]byte, Digest) {
	body, err := json.Marshal(c)
	if err != nil {
		panic("topology content cannot fail to encode: " + err.Error()) // only numbers and strings
	}
	sum := sha256.Sum256(body)
	return body, Digest(sum[:8])
}

// JSON is the canonical encoding, the one that the digest is taken of. It is shared: read only.
func (t *Topology) JSON() []byte { return t.body }

// Encode returns the form that is stored and sent: the canonical JSON, compressed. It is made once and shared: read only.
func (t *Topology) Encode() []byte { return t.encoded() }

// compress takes little time rather than little room: it is in the way of whoever is served while the ring changes.
func (t *Topology) compress() []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // a level that there is
	_, _ = z.Write(t.body)                            // a bytes.Buffer does not fail
	_ = z.Close()
	return out.Bytes()
}

// maxBody bounds what Decode unpacks: far more than 65,534 servers need, far less than what harms.
const maxBody = 64 << 20

// Decode reads what Encode has written, on this sidecar or another. It is quicker beside known topologies, some of which may be nil, that place the cache
// servers as it does. The error says what is wrong with it.
func Decode(encoded []byte, known ...*Topology) (*Topology, error) {
	z, err := gzip.NewReader(bytes.NewReader(encoded))
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(z, maxBody))
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	var c Content
	dec := json.NewDecoder(bytes.NewReader(body))
	// A field that this version does not know would be dropped and the digest would differ from the sender's for ever.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t, err := newBeside(c, known...)
	if err == nil && bytes.Equal(body, t.body) {
		kept := bytes.Clone(encoded) // not made anew
		t.encoded = func() []byte { return kept }
	}
	return t, err
}
