package loadtest

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"ringside/loadtest/gauge"
	"ringside/resp"
)

// NamedServer is a cache server.
type NamedServer struct{ Name, Addr string }

// ModuloRival is the rival whose fleet changes as ringside's does.
type ModuloRival struct {
	Rival
	fleet *moduloFleet
}

// Follow makes events of those steps that add or drain a cache server; the others are not the fleet's.
func (r *ModuloRival) Follow(steps []Step, keys int) {
	n := len(*r.fleet.used.Load())
	for _, s := range steps {
		if len(s.Words) < 3 || s.Words[0] != "cache" {
			continue
		}
		var change func(name string) error
		then := n
		switch s.Words[1] {
		case "add":
			change, then = r.fleet.add, n+1
		case "drain", "remove":
			change, then = r.fleet.remove, max(n-1, 1)
		default:
			continue
		}
		r.Target.Notes = append(r.Target.Notes, fmt.Sprintf("%s: %d servers become %d, and %d of %d rows get another one", s.Name(), n, then, Rerouted(keys, n, then), keys))
		n = then
		name := s.Words[2]
		r.Events = append(r.Events, Event{At: s.At, Name: s.Name(), Do: func(context.Context) error { return change(name) }})
	}
}

// moduloFleet is the servers, and which of them are used now.
type moduloFleet struct {
	servers []NamedServer
	shards  *shardMap
	used    atomic.Pointer[[]int] // indexes of servers
}

func (f *moduloFleet) use(servers []NamedServer) {
	var list []int
	for i, s := range f.servers {
		if slices.Contains(servers, s) {
			list = append(list, i)
		}
	}
	f.used.Store(&list)
}

func (f *moduloFleet) index(name string) int {
	return slices.IndexFunc(f.servers, func(s NamedServer) bool { return s.Name == name })
}

// add lets a server join behind the others.
func (f *moduloFleet) add(name string) error {
	i, used := f.index(name), *f.used.Load()
	if i < 0 || slices.Contains(used, i) {
		return fmt.Errorf("there is no server %s to be added", name)
	}
	used = append(slices.Clone(used), i)
	f.used.Store(&used)
	return nil
}

func (f *moduloFleet) remove(name string) error {
	i, used := f.index(name), *f.used.Load()
	left := slices.DeleteFunc(slices.Clone(used), func(j int) bool { return j == i })
	if len(left) == len(used) || len(left) == 0 {
		return fmt.Errorf("there is no server %s to be taken away", name)
	}
	f.used.Store(&left)
	return nil
}

// Route is the position of an id's server among n of them.
func Route(id uint32, n int) int {
	return int(crc32.ChecksumIEEE(strconv.AppendUint(nil, uint64(id), 10)) % uint32(n))
}

// Rerouted is how many of the ids from 1 to keys get another server when n become m.
func Rerouted(keys, n, m int) int {
	moved := 0
	for id := 1; id <= keys; id++ {
		if Route(uint32(id), n) != Route(uint32(id), m) {
			moved++
		}
	}
	return moved
}

func (f *moduloFleet) client() *moduloClient {
	return &moduloClient{shardClient: f.shards.client(), fleet: f, conns: make([]*gauge.Conn, len(f.servers))}
}

const (
	moduloDatabase = "1"
	moduloPrefix   = "modulo:"
	moduloLife     = 10 * time.Minute // as the demo's rows have
)

// moduloClient is used by one goroutine.
type moduloClient struct {
	*shardClient
	fleet *moduloFleet
	conns []*gauge.Conn // by server
}

// ask sends a command to the server of an id.
func (c *moduloClient) ask(ctx context.Context, id uint32, args ...string) ([]byte, error) {
	used := *c.fleet.used.Load()
	i := used[Route(id, len(used))]
	if c.conns[i] == nil {
		conn, err := gauge.Dial(ctx, c.fleet.servers[i].Addr)
		if err != nil {
			return nil, fmt.Errorf("CONNECT %w", err)
		}
		if _, err := conn.Ask("SELECT", moduloDatabase); err != nil {
			conn.Hangup()
			return nil, err
		}
		c.conns[i] = conn
	}
	reply, err := c.conns[i].Ask(args...)
	if err != nil {
		c.conns[i].Hangup()
		c.conns[i] = nil
	}
	return reply, err
}

// Read looks into the cache, and asks the shard if the row is not there.
func (c *moduloClient) Read(ctx context.Context, id uint32) (value []byte, found, hit bool, err error) {
	key := moduloPrefix + strconv.FormatUint(uint64(id), 10)
	reply, err := c.ask(ctx, id, "GET", key)
	if err != nil {
		return nil, false, false, err
	}
	if body, ok := resp.BulkOf(reply); ok {
		return body, true, true, nil
	}
	value, found, err = c.load(ctx, id)
	if err != nil || !found {
		return nil, false, false, err
	}
	_, err = c.ask(ctx, id, "SET", key, string(value), "EX", strconv.Itoa(int(moduloLife/time.Second)))
	return value, true, false, err
}

// Write writes the row and deletes its cached copy.
func (c *moduloClient) Write(ctx context.Context, id uint32, version int64, filling string) error {
	if err := c.shardClient.Write(ctx, id, version, filling); err != nil {
		return err
	}
	_, err := c.ask(ctx, id, "DEL", moduloPrefix+strconv.FormatUint(uint64(id), 10))
	return err
}

// Close ends all connections.
func (c *moduloClient) Close() {
	c.shardClient.Close()
	for _, conn := range c.conns {
		if conn != nil {
			conn.Hangup()
		}
	}
}

// warm reads every row once.
func (f *moduloFleet) warm(ctx context.Context, plan Plan) error {
	const clients = 8
	keys, err := ParseKeys(plan.Pattern, plan.Keys)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for w := range clients {
		group.Go(func() error {
			c := f.client()
			defer c.Close()
			for id := 1 + w; id <= plan.Keys && ctx.Err() == nil; id += clients {
				_, found, _, err := c.Read(ctx, uint32(id))
				if err == nil && !found {
					err = noRow(plan, keys.Name(uint32(id)))
				}
				if err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// flush empties the database that it uses on every server.
func (f *moduloFleet) flush(ctx context.Context) error {
	for _, s := range f.servers {
		c, err := gauge.Dial(ctx, s.Addr)
		if err != nil {
			return err
		}
		if _, err = c.Ask("SELECT", moduloDatabase); err == nil {
			_, err = c.Ask("FLUSHDB")
		}
		c.Hangup()
		if err != nil {
			return fmt.Errorf("emptying database %s of %s: %w", moduloDatabase, s.Name, err)
		}
	}
	return nil
}
