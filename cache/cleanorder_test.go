package cache

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// TestTheFormerCopyIsCleanedFirst (P3): the new copy is not touched after the commit before the former one is clean; and if the former one cannot be
// cleaned, the new one keeps its poison.
func TestTheFormerCopyIsCleanedFirst(t *testing.T) {
	former, present := realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), former, present)
	refs := []Ref{{Server: "c1", Name: "rs:1.0:k"}, {Server: "c2", Name: "rs:2.0:k"}}
	var committed bool
	var order []string
	watch := func(server string) {
		s.hook(server, tap{
			before: func(cmd redis.Cmder) bool {
				if committed && slices.Contains([]any{"evalsha", "EVALSHA", "eval", "EVAL"}, cmd.Args()[0]) {
					order = append(order, "to "+server)
				}
				return false
			},
			after: func(redis.Cmder) {
				if committed {
					order = append(order, "by "+server)
				}
			},
		})
	}
	watch("c1")
	watch("c2")
	commit := func(_ context.Context, poisoned func() error) error {
		err := poisoned()
		committed = true
		return err
	}
	if err := s.Write(ctxb, refs, commit); err != nil {
		t.Fatal(err)
	}
	// A script that the server does not know is sent twice.
	if got := slices.Compact(order); !slices.Equal(got, []string{"to c1", "by c1", "to c2", "by c2"}) && !slices.Equal(got, []string{"to c1", "by c1", "to c1", "by c1", "to c2", "by c2", "to c2", "by c2"}) {
		t.Errorf("cleaned in the order %v", got)
	}

	committed, order = false, nil
	err := s.Write(ctxb, refs, func(_ context.Context, poisoned func() error) error {
		err := poisoned()
		committed = true
		if err == nil {
			err = former.Pause()
			s.hurry()
		}
		return err
	})
	if resumed := former.Resume(); resumed != nil {
		t.Fatal(resumed)
	}
	clean, ok := errors.AsType[*CleanError](err)
	if !ok || len(clean.Refs) != 2 || slices.Contains(order, "to c2") {
		t.Errorf("%v; %v", err, order)
	}
	if entry, err := admin(t, present).Get(ctxb, "rs:2.0:k").Bytes(); err != nil || Kind(entry) != KindPoison {
		t.Errorf("the new copy holds %q, %v", entry, err)
	}
}
