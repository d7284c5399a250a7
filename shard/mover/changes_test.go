package mover

import (
	"strconv"
	"testing"
)

// Guards P6: of rows that change while all are compared no more are remembered than can be compared while writes wait. With more the part counts as not compared.
func TestTooManyChangedRowsAreNotRemembered(t *testing.T) {
	changed := func(from, n int) map[int]map[string]struct{} {
		keys := map[string]struct{}{}
		for i := range n {
			keys["["+strconv.Itoa(from+i)+"]"] = struct{}{}
		}
		return map[int]map[string]struct{}{0: keys}
	}
	p := &part{compared: true}
	p.remember(changed(0, 10))
	if p.touched != nil || !p.compared {
		t.Error("rows are remembered though nothing has been compared")
	}
	p.touched = map[touch]struct{}{}
	p.remember(changed(0, maxTouched))
	p.remember(changed(100, 1000)) // the same ones
	if len(p.touched) != maxTouched || !p.compared {
		t.Errorf("%d rows are remembered, compared: %v", len(p.touched), p.compared)
	}
	p.remember(changed(maxTouched, 1))
	if p.touched != nil || p.compared {
		t.Errorf("%d rows are remembered, compared: %v", len(p.touched), p.compared)
	}
}
