package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestWaitSaysWhatIsLost: a server that dies while it is drained takes what was not carried with it, and the command that waits for it fails.
func TestWaitSaysWhatIsLost(t *testing.T) {
	s := serve(t, 2, "secret")
	c2 := s.servers[1]
	if err := c2.Pause(); err != nil { // nothing can be carried from it
		t.Fatal(err)
	}
	waited := make(chan result, 1)
	go func() {
		waited <- ringside(t, s.env, "cache", "drain", "c2", "--wait", "--wait-limit=2m", "--admin", s.admin)
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if ring := ringside(t, s.env, "ring", "--admin", s.admin); strings.Contains(ring.stdout, "draining") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("c2 is not drained: %v", ring)
		}
	}
	if err := c2.Kill(); err != nil {
		t.Fatal(err)
	}
	got := <-waited
	if got.code != 1 || got.stdout != "" || !strings.HasSuffix(got.stderr, "ringside: c2 went down before all its plain keys were carried over: those are lost\n") {
		t.Errorf("%v", got)
	}
	if again := s.cache(t, "drain", "c2", "--wait", "--wait-limit=2m"); again.code != 0 {
		t.Errorf("what was lost before counts: %v", again)
	}
}

func TestWhatWasLostSinceAnEpoch(t *testing.T) {
	var p progressAnswer
	if err := json.Unmarshal([]byte(`{"lost":[{"from":"c1","since":1,"epoch":3},{"from":"c2","since":4,"epoch":5},{"from":"c2","since":3,"epoch":5},{"from":"c3","epoch":6}]}`), &p); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[uint64]string{
		6: "",
		5: "c3 went down before all its plain keys were carried over: those are lost",
		3: "c2, c3 went down before all their plain keys were carried over: those are lost",
	} {
		if err := p.lost(since); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("since %d: %v, want %q", since, err, want)
		}
	}
}
