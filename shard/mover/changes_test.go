package mover

import (
	"slices"
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

// Which of the changed rows must still be compared while writes wait.
func TestUnequal(t *testing.T) {
	type hashes = map[string]int64
	for name, c := range map[string]struct {
		here, there hashes
		want        []string
	}{
		"all are equal":              {hashes{"[1]": 10, "[2]": 20}, hashes{"[1]": 10, "[2]": 20}, nil},
		"deleted on both":            {hashes{"[1]": 10}, hashes{"[1]": 10}, nil},
		"other content":              {hashes{"[1]": 10, "[2]": 20}, hashes{"[1]": 10, "[2]": 21}, []string{"[2]"}},
		"not there yet":              {hashes{"[1]": 0, "[2]": 20}, hashes{"[2]": 20}, []string{"[1]"}},
		"not deleted there yet":      {hashes{}, hashes{"[2]": 20}, []string{"[2]"}},
		"a key is written otherwise": {hashes{"[1]": 10, "[2.0]": 20}, hashes{"[1]": 10, "[2.0]": 21}, []string{"[1]", "[2]"}},
	} {
		if got := unequal([]string{"[1]", "[2]"}, c.here, c.there); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
