package admin

import (
	"testing"

	"ringside/sidecar/topology"
)

func TestBalance(t *testing.T) {
	rows := []serverRow{
		{State: topology.Active, Weight: 1, Vnodes: 16384},
		{State: topology.Active, Weight: 3, Vnodes: 32768},
		{State: topology.Draining, Weight: 4, Vnodes: 16384},
		{State: topology.Active, Weight: 0},
	}
	balance(rows)
	for i, want := range []serverRow{
		{Share: 0.25, Fair: 0.25, Bar: fullBar / 3, Tick: fullBar / 3},
		{Share: 0.5, Fair: 0.75, Bar: fullBar * 2 / 3, Tick: fullBar},
		{Share: 0.25, Bar: fullBar / 3},
		{},
	} {
		got := rows[i]
		if got.Share != want.Share || got.Fair != want.Fair || !near(got.Bar, want.Bar) || !near(got.Tick, want.Tick) {
			t.Errorf("row %d: %+v, want %+v", i, got, want)
		}
		if off := got.Off(); off != []string{"0.0%", "-33.3%", "to be emptied", ""}[i] {
			t.Errorf("row %d is off by %q", i, off)
		}
	}
	balance(nil)
	none := []serverRow{{State: topology.Down, Weight: 1}}
	if balance(none); none[0].Bar != 0 || none[0].Tick != 0 {
		t.Errorf("a fleet without any vnodes: %+v", none[0])
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func TestCompare(t *testing.T) {
	top := overridden(t)
	for _, test := range []struct {
		epoch  uint64
		digest string
		agrees bool
		want   string
	}{
		{7, top.Digest().String(), true, "the same"},
		{7, "0011223344556677", false, "differs at the same epoch"},
		{6, "0011223344556677", false, "behind by 1"},
		{9, "0011223344556677", false, "ahead by 2"},
		{0, "", false, "none yet"},
	} {
		if agrees, got := compare(Member{Epoch: test.epoch, Digest: test.digest}, top); agrees != test.agrees || got != test.want {
			t.Errorf("epoch %d: %v %q", test.epoch, agrees, got)
		}
	}
}

func TestPageOf(t *testing.T) {
	const self = "10.0.0.1:7946"
	for _, test := range []struct{ admin, addr, want string }{
		{"10.0.0.2:6381", "10.0.0.2:7946", "http://10.0.0.2:6381/ring"},
		{"[fd00::2]:6381", "[fd00::2]:7946", "http://[fd00::2]:6381/ring"},
		{"127.0.0.1:6382", "10.0.0.1:7947", "http://127.0.0.1:6382/ring"}, // on this machine
		{"127.0.0.1:6381", "10.0.0.2:7946", ""},                           // on its own
		{"127.0.0.1:6381", "", ""},
		{"0.0.0.0:6381", "10.0.0.2:7946", ""},
		{"javascript:alert(1)", "10.0.0.1:7946", ""},
		{"", "10.0.0.1:7946", ""},
	} {
		if got := pageOf(Member{Admin: test.admin, Addr: test.addr}, self); got != test.want {
			t.Errorf("%s at %s: %q, want %q", test.admin, test.addr, got, test.want)
		}
	}
}

func TestReadable(t *testing.T) {
	for text, want := range map[string]string{"user:42": "user:42", "müller": "müller", "": "", "a\x00b": `"a\x00b"`, "\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`} {
		if got := readable(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	for n, want := range map[float64]string{0.04: "0.0/s", 3.21: "3.2/s", 1234.6: "1,235/s"} {
		if got := rate(n); got != want {
			t.Errorf("%v: %s", n, got)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[any]string{0: "0", 999: "999", uint16(1000): "1,000", 65536: "65,536", uint64(1234567): "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%v: %s", n, got)
		}
	}
}
