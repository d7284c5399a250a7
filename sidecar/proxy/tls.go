package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"

	"ringside/internal/evloop"
)

// dialTLS connects to a cache server that speaks TLS: crypto/tls blocks, so it runs on goroutines that are coupled with the loop. addr
// is numeric; the certificate must be for the name in the configuration, or else for the host by which the topology knows the server.
func (u *upstream) dialTLS(addr string, cfg *tls.Config) *evloop.Conn {
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(u.addr) // it has been split before; what has no host fails the handshake
	}
	w := u.worker
	timeout := w.server.live().ConnectTimeout
	return w.loop.DialFunc(addr, 2*timeout, func(ctx context.Context) (io.ReadWriteCloser, error) {
		d := net.Dialer{Timeout: timeout}
		raw, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, cfg)
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake's error says more
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		return tlsStream{c, raw}, nil
	}, u)
}

// tlsStream is a TLS connection that closes at once.
type tlsStream struct {
	*tls.Conn
	raw net.Conn
}

// Close leaves out the last alert, for which a server that does not read could be waited for. Redis needs none: requests and replies
// tell where they end.
func (s tlsStream) Close() error { return s.raw.Close() }
