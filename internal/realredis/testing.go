package realredis

import (
	"context"
	"net"
	"strconv"

	"ringside/internal/childproc"
)

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

// TLS starts a server that speaks TLS as well, at the address returned, with a certificate for these hosts. Clients must show a
// certificate of the same authority unless the arguments say "--tls-auth-clients", "no".
func TLS(t TB, a *Authority, hosts []string, args ...string) (s *Server, addr string) {
	t.Helper()
	own, err := a.Issue("redis-server", hosts...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	port, err := childproc.FreePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	number := strconv.Itoa(port)
	s = T(t, append([]string{"--tls-port", number, "--tls-cert-file", own.Cert, "--tls-key-file", own.Key, "--tls-ca-cert-file", a.CA}, args...)...)
	return s, net.JoinHostPort("127.0.0.1", number)
}
