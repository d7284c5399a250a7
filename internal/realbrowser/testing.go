package realbrowser

// TB is what T needs of *testing.T and *testing.B.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// T starts a browser for a test and ends it with it.
func T(t TB) *Browser {
	t.Helper()
	b, err := Start()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("ending the browser: %v", err)
		}
	})
	return b
}
