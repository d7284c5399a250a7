package gauge

import "testing"

func TestParseResident(t *testing.T) {
	got, err := parseResident([]byte("Name:\tx\nVmHWM:\t   20000 kB\nVmRSS:\t   12345 kB\n"))
	if err != nil || got != 12345 {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := parseResident([]byte("Name:\tx\n")); err == nil {
		t.Error("no VmRSS is no error")
	}
}
