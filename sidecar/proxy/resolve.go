package proxy

import (
	"context"
	"net"
	"time"
)

// resolve turns host:port into a numeric address, within the timeout.
func resolve(ctx context.Context, addr string, timeout time.Duration) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(ips[0], port), nil
}
