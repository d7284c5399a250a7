package cache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Stranger is a server that is not one of the cluster's yet.
type Stranger struct {
	RunID string
	Mode  string // standalone, cluster or sentinel
	Role  string // master or slave
	// Sidecar: it is a ringside sidecar, and nothing else was asked.
	Sidecar bool
	// Refuses is the first word of the error with which it refuses to write; see Health. Asked, as Keys is, only of a master that runs alone.
	Refuses string
	// Keys is how many there are that are not ringside's own; counted no further than a few hundred.
	Keys int64
}

// strangerKeys bounds how many keys of a stranger are looked at one by one.
const strangerKeys = 500

// What Meet says of something that is no Redis server.
var (
	// ErrNotRedis says that something answered, and not as a Redis server does.
	ErrNotRedis = errors.New("it does not speak the Redis protocol")
	// ErrNoAnswer says that the connection was ended without an answer, as servers do that speak another protocol, or none without TLS.
	ErrNoAnswer = errors.New("it ends the connection without an answer")
)

// IsNotAllowed reports whether a server refused what the user may not do there that it was asked as.
func IsNotAllowed(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// Meet asks a server that is about to become one of the cluster's what it is, and all that a Watcher asks. ctx bounds it.
func (s *Servers) Meet(ctx context.Context, addr, username, password string, tlsConfig *tls.Config) (Stranger, error) {
	if err := s.greet(ctx, addr, tlsConfig); err != nil {
		return Stranger{}, err
	}
	c := ServerConfig{Name: addr, Addr: addr, Username: username, Password: password, TLS: tlsConfig}
	client := redis.NewClient(s.options(c))
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return Stranger{}, fmt.Errorf("INFO server: %w", err)
	}
	met := Stranger{RunID: infoField(info, "run_id"), Mode: infoField(info, "redis_mode")}
	if met.RunID == "" {
		return Stranger{}, errors.New("INFO server: no run_id in the answer")
	}
	if info, err = client.Info(ctx, "ringside").Result(); err != nil {
		return Stranger{}, fmt.Errorf("INFO ringside: %w", err)
	}
	if met.Sidecar = strings.Contains(info, "# Ringside"); met.Sidecar {
		return met, nil
	}
	if info, err = client.Info(ctx, "replication").Result(); err != nil {
		return Stranger{}, fmt.Errorf("INFO replication: %w", err)
	}
	if met.Role = infoField(info, "role"); met.Role != "master" || met.Mode != "" && met.Mode != "standalone" {
		return met, nil // what it answers to the rest says no more
	}
	if met.Refuses, err = takesWrites(ctx, client); err != nil {
		return Stranger{}, fmt.Errorf("RPUSHX: %w", err)
	}
	if met.Keys, err = client.DBSize(ctx).Result(); err != nil || met.Keys > strangerKeys {
		return met, err
	}
	// Few: what ringside itself has left there does not count.
	met.Keys = 0
	it := client.Scan(ctx, 0, "", strangerKeys).Iterator()
	for it.Next(ctx) {
		if !strings.HasPrefix(it.Val(), Prefix) {
			met.Keys++
		}
	}
	return met, it.Err()
}

// greet connects once and finds out whether a Redis server is there, whomever it lets in.
func (s *Servers) greet(ctx context.Context, addr string, tlsConfig *tls.Config) error {
	dialer := net.Dialer{Timeout: s.cfg.ConnectTimeout}
	dial := dialer.DialContext
	if tlsConfig != nil {
		dial = (&tls.Dialer{NetDialer: &dialer, Config: tlsConfig}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends the read below
	defer stop()
	first := make([]byte, 1)
	if _, err = io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err == nil {
		_, err = io.ReadFull(conn, first)
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("it takes the connection and does not answer")
	case err != nil:
		return ErrNoAnswer
	case first[0] != '+' && first[0] != '-': // PONG, or that a password is wanted first
		return ErrNotRedis
	}
	return nil
}
