package sidecar

import (
	"fmt"
	"net/http"
	"testing"

	"ringside/internal/realredis"
)

func TestProfilesAreServedIfAskedFor(t *testing.T) {
	addr := realredis.T(t).Addr()
	for setting, want := range map[string]int{"": http.StatusNotFound, ", pprof: false": http.StatusNotFound, ", pprof: true": http.StatusOK} {
		s := run(t, fmt.Sprintf("admin: { listen: \"127.0.0.1:0\"%s }\ncaches: [{ name: c1, addr: %q }]\n", setting, addr))
		answer, err := http.Get("http://" + s.admin.Addr() + "/debug/pprof/goroutine")
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		if answer.StatusCode != want {
			t.Errorf("admin with %q: status %d, want %d", setting, answer.StatusCode, want)
		}
	}
}
