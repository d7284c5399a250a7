package proxy

import (
	"testing"
	"time"
)

// Guards P6: however many requests are slow, a loop writes so many lines a second, and says how many it has left out.
func TestSlowLinesAreBounded(t *testing.T) {
	var l slowLines
	written := 0
	for i := range 1000 {
		if _, ok := l.take(5*int64(time.Second) + int64(i)); ok {
			written++
		}
	}
	if written != mostSlowLines {
		t.Errorf("%d lines in a second", written)
	}
	if leftOut, ok := l.take(6 * int64(time.Second)); !ok || leftOut != 1000-mostSlowLines {
		t.Errorf("in the next second: %v, %d left out", ok, leftOut)
	}
	if leftOut, ok := l.take(6 * int64(time.Second)); !ok || leftOut != 0 {
		t.Errorf("then: %v, %d left out", ok, leftOut)
	}
}
