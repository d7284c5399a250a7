package keyspace

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Set is the table keyspaces of a sidecar. Safe for concurrent use; the zero Set matches nothing. It can be replaced as a whole while it is used: every Match
// acts by the keyspaces of before or by those of after.
type Set struct{ now atomic.Pointer[table] }

type table struct {
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
	s := &table{keyspaces: slices.Clone(keyspaces)}
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
	set := &Set{}
	set.now.Store(s)
	return set, nil
}

// Replace makes the keyspaces those of next. A keyspace that is in both, and the same in everything, stays the same pointer. One call at a time.
func (s *Set) Replace(next *Set) {
	of := next.now.Load()
	t := &table{keyspaces: make([]*Keyspace, len(of.keyspaces))}
	for i, k := range of.keyspaces {
		if old := s.ByName(k.Name); old != nil && old.spec() == k.spec() {
			k = old
		}
		t.keyspaces[i] = k
		first := k.literals[0][0]
		t.byFirst[first] = append(t.byFirst[first], k)
	}
	s.now.Store(t)
}

// spec is what the keyspace was made of.
func (k *Keyspace) spec() Spec {
	return Spec{Name: k.Name, Pattern: k.Pattern, Table: k.Table, Value: k.Value, ShardBy: k.ShardBy, TTL: k.TTL, NegativeTTL: k.NegativeTTL}
}

// Keyspaces returns the keyspaces in the order given to NewSet. The caller must not change the slice.
func (s *Set) Keyspaces() []*Keyspace {
	if t := s.now.Load(); t != nil {
		return t.keyspaces
	}
	return nil
}

// ByName returns the keyspace of that name, or nil.
func (s *Set) ByName(name string) *Keyspace {
	for _, k := range s.Keyspaces() {
		if k.Name == name {
			return k
		}
	}
	return nil
}
