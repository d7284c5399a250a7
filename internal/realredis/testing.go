package realredis

import "context"

// TB is what T needs of *testing.T, *testing.B and *testing.F. It is an interface so that the demo, which uses this package too,
// does not link testing.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// T starts a server for one test and stops it at the end of that test. The arguments are redis-server's.
func T(t TB, args ...string) *Server {
	t.Helper()
	s, err := Start(context.Background(), Options{Args: args})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop redis-server: %v", err)
		}
	})
	return s
}
