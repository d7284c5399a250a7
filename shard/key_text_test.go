package shard

import (
	"strings"
	"testing"
)

func TestLongKeysAreCutInMessages(t *testing.T) {
	for key, want := range map[string]string{
		"acme":                          `"acme"`,
		strings.Repeat("a", 80):         `"` + strings.Repeat("a", 80) + `"`,
		strings.Repeat("a", 81):         `"` + strings.Repeat("a", 80) + `"…`,
		strings.Repeat("a", 78) + "日本語": `"` + strings.Repeat("a", 78) + `"…`, // no half of a letter
		strings.Repeat("\xff", 100):     `"` + strings.Repeat(`\xff`, 80) + `"…`,
		"two\nlines":                    `"two\nlines"`,
	} {
		if got := QuoteKey(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}
