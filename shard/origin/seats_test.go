package origin

import (
	"testing"
	"time"
)

// Guards P6: seats and doors are the budget, and the shares of all sidecars together never more than the seats.
func TestABudgetIsDividedAndNeverExceeded(t *testing.T) {
	for _, c := range []struct{ budget, seats, doors int }{{1, 1, 0}, {2, 1, 1}, {3, 2, 1}, {31, 30, 1}, {32, 30, 2}, {40, 38, 2}, {64, 60, 4}, {128, 120, 8}, {10_000, 9_992, 8}} {
		if s, d := Seats(c.budget), Doors(c.budget); s != c.seats || d != c.doors {
			t.Errorf("budget %d: %d seats and %d doors, want %d and %d", c.budget, s, d, c.seats, c.doors)
		}
	}
	for budget := 1; budget <= 300; budget++ {
		if Seats(budget)+Doors(budget) != budget {
			t.Fatalf("budget %d: %d seats, %d doors", budget, Seats(budget), Doors(budget))
		}
		for sidecars := 0; sidecars <= 400; sidecars++ {
			share := Share(budget, sidecars)
			if n := max(sidecars, 1); share*n > Seats(budget) || (share+1)*n <= Seats(budget) || (share == 0) != (n > Seats(budget)) {
				t.Fatalf("budget %d, %d sidecars: %d each", budget, sidecars, share)
			}
		}
	}
}

func TestWhoGivesWay(t *testing.T) {
	for _, c := range []struct {
		held, share int
		heldFor     time.Duration
		want        int
	}{
		{0, 0, time.Hour, 0},               // it has none
		{5, 5, 0, 1},                       // whatever gossip says, a sidecar without any comes first
		{2, 0, 0, 1},                       // likewise
		{1, 0, shortHold - 1, 0},           // not before it has done something with it
		{1, 0, shortHold, 1},               // by turns
		{1, -1, shortHold, 1},              // likewise
		{1, 1, shortHold, 0},               // there should be enough for all
		{1, 3, fairHold - time.Second, 0},  // likewise
		{1, 1, fairHold, 1},                // there are not: gossip is wrong
		{1, 39, fairHold + time.Second, 1}, // likewise
	} {
		if got := concede(c.held, c.share, c.heldFor); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
