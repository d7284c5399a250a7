package cache

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringside/internal/realredis"
)

// TestAWriteThatIsRememberedCleansWhatItCan: of two entries one cannot be poisoned; the commit goes on because it has made sure that this is not
// forgotten.
func TestAWriteThatIsRememberedCleansWhatItCan(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	reg := new(row)
	here, lost := Ref{Server: "c1", Name: "rs:1.0:k"}, Ref{Server: "c9", Name: "rs:1.0:k"}
	for what, refs := range map[string][]Ref{"the former one": {lost, here}, "the new one": {here, lost}} {
		v, err := s.Read(ctxb, here, aMinute, 0, reg.loader)
		wantVersion(t, v, err, reg.version)
		var unreachable *ServerError
		err = s.Write(ctxb, refs, func(_ context.Context, poisoned func() error) error {
			if err := poisoned(); !errors.As(err, &unreachable) || unreachable.Server != "c9" {
				t.Errorf("%s: %v", what, err)
			}
			if b, _ := db.Get(ctxb, here.Name).Bytes(); Kind(b) != KindPoison {
				t.Errorf("%s: what can be reached is not poisoned before the commit: %q", what, b)
			}
			reg.commit()
			return ErrRemembered
		})
		if !errors.Is(err, ErrRemembered) {
			t.Errorf("%s: %v", what, err)
		}
		if n := db.Exists(ctxb, here.Name).Val(); n != 0 {
			t.Errorf("%s: what was poisoned is left", what)
		}
	}
	if n := testutil.ToFloat64(s.metrics.writesRemembered); n != 2 {
		t.Errorf("%v writes were remembered", n)
	}
}
