package membership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// checkKeys reports everything that is wrong with keys. A key is a secret: only its place and size are named.
func checkKeys(keys [][]byte) error {
	var errs []error
	for i, key := range keys {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			errs = append(errs, fmt.Errorf("gossip: key %d has %d bytes; it must have 16, 24 or 32", i+1, n))
		}
		for j := range i {
			if bytes.Equal(key, keys[j]) {
				errs = append(errs, fmt.Errorf("gossip: key %d is the same as key %d", i+1, j+1))
			}
		}
	}
	return errors.Join(errs...)
}

// newKeyring is nil when there are no keys, or wrong ones, which Run reports.
func newKeyring(keys [][]byte) *memberlist.Keyring {
	if len(keys) == 0 || checkKeys(keys) != nil {
		return nil
	}
	keys = cloneKeys(keys)
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil // cannot be: they were checked
	}
	return ring
}

func cloneKeys(keys [][]byte) [][]byte {
	out := make([][]byte, len(keys))
	for i, key := range keys {
		out[i] = slices.Clone(key)
	}
	return out
}

// SetKeys replaces the keys: the first encrypts, all decrypt. The package comment says in which order the keys of a running cluster are
// changed. Wrong keys, none, and any for a sidecar that began without encryption are refused, and then nothing has changed.
func (g *Gossip) SetKeys(keys [][]byte) error {
	switch {
	case g.keyring == nil:
		return errors.New("gossip: this sidecar began without encryption keys, or with wrong ones; encryption is switched on by starting it with keys")
	case len(keys) == 0:
		return errors.New("gossip: at least one key is needed; encryption cannot be switched off while running")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	if slices.EqualFunc(g.keyring.GetKeys(), keys, bytes.Equal) {
		return nil
	}
	if err := changeKeys(g.keyring, cloneKeys(keys)); err != nil {
		return fmt.Errorf("gossip: keys: %w", err)
	}
	g.met.keyChanges.Inc()
	g.log.Info("gossip keys changed", "keys", len(keys))
	return nil
}

// changeKeys makes want the ring's keys while others use it. At every moment a key encrypts that is the first one of before or after. The
// ring gives out its own list, and RemoveKey moves what is behind the removed key in that list, under the eyes of those who decrypt; so a
// key is removed only when it is the last one. What is to stay and lies behind one to go is taken off with it and added again, and
// for that moment a packet under it is lost as if by the network.
func changeKeys(ring *memberlist.Keyring, want [][]byte) error {
	if err := ring.AddKey(want[0]); err != nil {
		return err
	}
	if err := ring.UseKey(want[0]); err != nil {
		return err
	}
	have := ring.GetKeys()
	keep := 1 // the first one
	for keep < len(have) && slices.ContainsFunc(want, func(key []byte) bool { return bytes.Equal(key, have[keep]) }) {
		keep++
	}
	for _, key := range slices.Backward(have[keep:]) {
		if err := ring.RemoveKey(key); err != nil {
			return err
		}
	}
	for _, key := range want {
		if err := ring.AddKey(key); err != nil { // does nothing for those that are there
			return err
		}
	}
	return nil
}

func (g *Gossip) countKeys() int {
	if g.keyring == nil {
		return 0
	}
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	return len(g.keyring.GetKeys())
}
