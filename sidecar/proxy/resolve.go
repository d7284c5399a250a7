package proxy

import (
	"context"
	"net"
	"time"
)

// resolve turns host:port into a numeric address, within the timeout. Of several it takes each in turn, by attempt: "localhost" may be
// ::1 first where the server listens on 127.0.0.1 only.
func resolve(ctx context.Context, addr string, timeout time.Duration, attempt int) (string, error) {
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
	return net.JoinHostPort(ips[attempt%len(ips)], port), nil
}
