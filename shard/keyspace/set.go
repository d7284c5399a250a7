package keyspace

import (
	"fmt"
	"slices"
)

// Set is the table keyspaces of a sidecar. Immutable, safe for concurrent use; the zero Set matches nothing.
type Set struct {
	keyspaces []*Keyspace
	// byFirst finds the keyspaces by the first byte of their first literal, so that most plain keys cost one table access.
	byFirst [256][]*Keyspace
}

// AmbiguousError says that one key could belong to two keyspaces.
type AmbiguousError struct {
	First, Second *Keyspace
	Example       string // a key that both claim
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("keyspaces %s and %s both claim keys such as %q: begin their patterns differently", e.First, e.Second, e.Example)
}

// NewSet refuses keyspaces with equal names, and with patterns that could claim one key (*AmbiguousError).
func NewSet(keyspaces []*Keyspace) (*Set, error) {
	s := &Set{keyspaces: slices.Clone(keyspaces)}
	for i, k := range s.keyspaces {
		for _, earlier := range s.keyspaces[:i] {
			if earlier.Name == k.Name {
				return nil, fmt.Errorf("two keyspaces are named %q", k.Name)
			}
			if example, ok := overlap(earlier, k); ok {
				return nil, &AmbiguousError{earlier, k, example}
			}
		}
		first := k.literals[0][0]
		s.byFirst[first] = append(s.byFirst[first], k)
	}
	return s, nil
}

// Keyspaces returns the keyspaces in the order given to NewSet. The caller must not change the slice.
func (s *Set) Keyspaces() []*Keyspace { return s.keyspaces }

// ByName returns the keyspace of that name, or nil.
func (s *Set) ByName(name string) *Keyspace {
	for _, k := range s.keyspaces {
		if k.Name == name {
			return k
		}
	}
	return nil
}
