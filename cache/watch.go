package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Health is what a cache server said when it was asked how it is.
type Health struct {
	// RunID is the process that answered.
	RunID string
	// Refuses is the first word of the error with which it refuses to write although it answers: READONLY (it is a replica), OOM, MISCONF and
	// so on. Empty: it takes writes.
	Refuses string
}

// Watcher asks one cache server how it is, over a connection of its own, whatever process is behind the address. Traffic never tells: it may
// be none, or go wrong for other reasons. It is for one goroutine.
type Watcher struct {
	servers *Servers
	name    string
	cfg     ServerConfig // that client was made from, without its RunID
	client  *redis.Client
	runID   string // of the process behind the connection
	role    string
	asked   time.Time // when the role was
}

// roleEvery is how often a watcher asks whether its server has become a replica: INFO costs the server more than the rest, and a replica that
// can be written to is rare.
const roleEvery = time.Second

// noKey is pushed to only if it is there, and it never is: so the server checks all that it checks before a write, and writes nothing.
const noKey = Prefix + "writable"

// Watch returns a Watcher of the server of that name, which need not be there yet. It must be closed.
func (s *Servers) Watch(name string) *Watcher { return &Watcher{servers: s, name: name} }

// Close closes the connection.
func (w *Watcher) Close() {
	if w.client != nil {
		_ = w.client.Close() // nobody is interested in how it ends
		w.client = nil
	}
}

// Look asks once. ctx bounds all of it, connecting included. The error says why the server could not be asked, or does not work: it is loading,
// does not let this sidecar in, or the like.
func (w *Watcher) Look(ctx context.Context) (Health, error) {
	srv := w.servers.acquire(w.name)
	if srv == nil {
		w.Close()
		return Health{}, fmt.Errorf("%w: %s", ErrUnknownServer, w.name)
	}
	cfg := srv.cfg
	w.servers.release(srv)
	cfg.RunID = ""
	if w.client == nil || cfg != w.cfg {
		w.connect(cfg)
	}
	h, err := w.ask(ctx)
	if err != nil {
		w.Close() // its pool would go on giving the same error for a while
		return Health{}, &ServerError{Server: w.name, Err: err}
	}
	return h, nil
}

// connect prepares a client of one connection; it is made with the first question.
func (w *Watcher) connect(cfg ServerConfig) {
	w.Close()
	w.cfg = cfg
	o := w.servers.options(cfg)
	// One connection. A pool that has failed to dial as often as it has places leaves a goroutine behind that goes on trying.
	o.PoolSize, o.MaxActiveConns = 2, 1
	o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute // the caller's context is what bounds an answer
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) (err error) {
		w.role, w.asked = "", time.Time{}
		if name := w.servers.cfg.Watcher; name != "" {
			if err := cn.ClientSetName(ctx, watcherPrefix+name).Err(); err != nil && !isReply(err) {
				return err // a server that does not allow it is watched all the same
			}
		}
		w.runID, err = askRunID(ctx, cn)
		return err
	}
	w.client = redis.NewClient(o)
}

func (w *Watcher) ask(ctx context.Context) (Health, error) {
	if refuses, err := takesWrites(ctx, w.client); err != nil || refuses != "" {
		return Health{RunID: w.runID, Refuses: refuses}, err
	}
	if time.Since(w.asked) >= roleEvery {
		info, err := w.client.Info(ctx, "replication").Result()
		if err != nil {
			return Health{}, fmt.Errorf("INFO replication: %w", err)
		}
		w.role, w.asked = infoField(info, "role"), time.Now()
	}
	if w.role != "master" {
		return Health{RunID: w.runID, Refuses: "READONLY"}, nil
	}
	return Health{RunID: w.runID}, nil
}

// watcherPrefix begins the names of the connections by which sidecars look after a server.
const watcherPrefix = "ringside-watch:"

// watcherIdle is how long a watcher may have been silent and still count: it asks several times a second.
const watcherIdle = time.Minute

// Watching returns the names of the sidecars that look after a server, by the server's own list of connections: also those that gossip does not
// reach. ctx bounds it.
func (s *Servers) Watching(ctx context.Context, server string) ([]string, error) {
	srv := s.acquire(server)
	if srv == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownServer, server)
	}
	defer s.release(srv)
	list, err := srv.client.ClientList(ctx).Result()
	if err != nil {
		return nil, &ServerError{Server: server, Err: err}
	}
	return watchers(list), nil
}

// watchers reads the answer to CLIENT LIST: a line for each connection, "id=7 ... name=... idle=0 ...".
func watchers(list string) []string {
	var out []string
	for line := range strings.Lines(list) {
		name, idle := "", time.Duration(0)
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "name":
				name = value
			case "idle":
				seconds, _ := strconv.Atoi(value) // 0 if it is no number
				idle = time.Duration(seconds) * time.Second
			}
		}
		if who, ok := strings.CutPrefix(name, watcherPrefix); ok && idle < watcherIdle {
			out = append(out, who)
		}
	}
	return out
}

// isReply reports whether an error is what the server answered, rather than that it did not.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// takesWrites asks a server for a write that changes nothing. It returns the first word with which it refuses all writes, empty if it takes them.
func takesWrites(ctx context.Context, c *redis.Client) (refuses string, err error) {
	err = c.RPushX(ctx, noKey, "").Err()
	if err == nil || !isReply(err) {
		return "", err
	}
	switch word, _, _ := strings.Cut(err.Error(), " "); word {
	case "READONLY", "OOM", "MISCONF", "NOREPLICAS":
		return word, nil
	case "WRONGTYPE":
		return "", nil // somebody has made such a key; the server is well
	}
	return "", err
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
