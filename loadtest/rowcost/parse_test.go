package main

import "testing"

func TestParseRate(t *testing.T) {
	const out = "transaction type: <builtin: select only>\nlatency average = 0.119 ms\ntps = 33512.804 (without initial connection time)\n"
	if rate, err := parseRate(out); err != nil || rate != 33512.804 {
		t.Errorf("%v, %v", rate, err)
	}
	for _, bad := range []string{"", "tps = 0.0\n", "latency average = 0.119 ms\n"} {
		if rate, err := parseRate(bad); err == nil {
			t.Errorf("%q gave %v", bad, rate)
		}
	}
}

func TestIsRow(t *testing.T) {
	if err := isRow([]byte("$9\r\n{\"id\":42,\"name\":1}\r\n"), 42); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"$-1\r\n", "$9\r\n{\"id\":421}\r\n", "-ERR no\r\n", ""} {
		if isRow([]byte(bad), 42) == nil {
			t.Errorf("%q is taken for user:42", bad)
		}
	}
}
