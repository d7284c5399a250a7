package keyspace

import (
	"testing"
	"time"

	"ringside/ring"
)

// TestASetIsReplacedWhileItIsUsed: what is the same stays the same pointer, what was added matches, what was changed is new.
func TestASetIsReplacedWhileItIsUsed(t *testing.T) {
	set := func(specs ...Spec) *Set {
		t.Helper()
		var all []*Keyspace
		for _, s := range specs {
			k, err := Compile(s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, k)
		}
		s, err := NewSet(all)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	user := Spec{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute}
	item := Spec{Name: "item", Pattern: "item:{id:int}", Table: "items", TTL: time.Minute}
	longer := item
	longer.TTL = time.Hour
	s := set(user, item)
	before := map[string]*Keyspace{"user": s.ByName("user"), "item": s.ByName("item")}
	matches := func(key string) *Keyspace {
		var k Key
		if ok, err := s.Match(ring.NewHasher(), []byte(key), &k); err != nil || !ok {
			return nil
		}
		return k.Keyspace
	}
	if matches("new:1") != nil {
		t.Error("a key matches a keyspace that is not there yet")
	}
	s.Replace(set(Spec{Name: "new", Pattern: "new:{id:int}", Table: "news", TTL: time.Minute}, longer, user))
	if k := matches("user:1"); k == nil || k != before["user"] {
		t.Error("a keyspace that is the same is another one")
	}
	if k := matches("item:1"); k == nil || k == before["item"] || k.TTL != time.Hour {
		t.Errorf("a keyspace that was changed is %+v", k)
	}
	if k := matches("new:1"); k == nil || k != s.ByName("new") || len(s.Keyspaces()) != 3 {
		t.Errorf("a keyspace that was added is %+v", k)
	}
	var empty Set
	if ok, err := empty.Match(ring.NewHasher(), []byte("user:1"), &Key{}); ok || err != nil || empty.Keyspaces() != nil || empty.ByName("user") != nil {
		t.Error("an empty set has something")
	}
}
