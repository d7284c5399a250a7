package resp

import "testing"

func TestArrayHeader(t *testing.T) {
	for _, c := range []struct {
		head        string
		count, next int
	}{
		{"*3\r\n$1\r\na", 3, 4},
		{"*12345678\r\n", 12345678, 11},
		{"*1\r\n", 1, 4},
		{"*0\r\n", 0, 0},
		{"*-1\r\n", 0, 0},
		{"*3\r", 0, 0},
		{"*3", 0, 0},
		{"*", 0, 0},
		{"", 0, 0},
		{"*x\r\n", 0, 0},
		{"*3\n", 0, 0},
		{"~3\r\n", 0, 0},
		{"$3\r\nabc\r\n", 0, 0},
		{"*000000000000000000000000000000000001\r\n", 0, 0},
	} {
		if count, next := ArrayHeader([]byte(c.head)); count != c.count || next != c.next {
			t.Errorf("%q: %d elements from %d on, want %d from %d on", c.head, count, next, c.count, c.next)
		}
	}
}
