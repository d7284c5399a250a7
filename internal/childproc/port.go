package childproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are drawn from below the range that Linux and macOS give to outgoing connections, so that a server which is down for a
// while does not find its port taken by somebody's client when it returns.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens now. Somebody else may take it before the caller does:
// a server that fails to start on it should be tried on another one.
func FreePort() (int, error) {
	var last error
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("free port: %w", err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("no free port of 127.0.0.1 in %d tries: %w", portTries, last)
}
