package origin

import (
	"strings"
	"testing"
	"time"

	"ringside/shard"
)

// Guards P3 against clocks that are set: the age of a shard's word is measured on the monotonic clock, so that setting
// the machine's clock back makes no old word count. (Set forward, it looks like a suspension:
// every shard is asked anew, see wasSuspended.)
func TestTheAgeOfAWordIsMonotonic(t *testing.T) {
	f := newFixture(t, Config{ViewTTL: 300 * time.Millisecond}, usersTable)
	f.run()
	confirmation := f.Confirmation("s1")
	seen := map[time.Time]bool{}
	for deadline := time.Now().Add(30 * time.Second); len(seen) < 5; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the shard is not asked")
		}
		view, asked := confirmation.View()
		if view == (shard.View{}) || seen[asked] {
			continue
		}
		seen[asked] = true
		if !strings.Contains(asked.String(), " m=") {
			t.Fatalf("asked at %v: a reading of the wall clock alone", asked)
		}
	}
}
