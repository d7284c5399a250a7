package config

import "testing"

func TestSolitude(t *testing.T) {
	for _, test := range []struct {
		join []string
		warn bool
	}{
		{nil, false},
		{[]string{"10.0.0.1:7946"}, true},
		{[]string{"h1:7946", "10.0.0.1:7946"}, true},
		{[]string{"10.0.0.1:7946", "10.0.0.2:7946"}, false},
	} {
		c := &Config{Gossip: Gossip{Listen: "10.0.0.1:7946", Advertise: "h1:7946", Join: test.join}}
		if got := c.Solitude(); (got != "") != test.warn {
			t.Errorf("%v: %q", test.join, got)
		}
	}
}
