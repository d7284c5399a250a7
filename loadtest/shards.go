package loadtest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"

	"ringside/ring"
)

// Database is the shards, for clients that speak to them past ringside.
type Database struct {
	Admin     string            // admin address of a sidecar, which knows where rows are
	DSNs      map[string]string // by name of the shard
	Table     string
	KeyColumn string
}

// mostSessions bounds how many clients have sessions on every shard, which bears few.
const mostSessions = 50

// shardMap knows where rows are. It is read once: rows must not move meanwhile.
type shardMap struct {
	dsns        []string
	owners      []byte // by vnode, little-endian 16-bit indexes into dsns
	read, write string
}

func (d Database) open(ctx context.Context, plan Plan) (*shardMap, error) {
	if !identifier(d.Table) || !identifier(d.KeyColumn) {
		return nil, errors.New("--table and --key-column must be names: letters, digits and _")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Admin+"/ring", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking where the rows are: %w", err)
	}
	defer res.Body.Close()
	var answer struct {
		Shards []struct {
			Name string `json:"name"`
		} `json:"shards"`
		Owners struct {
			Shard string `json:"shard"`
		} `json:"owners"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("asking where the rows are: %w", err)
	}
	m := &shardMap{
		read:  fmt.Sprintf("select row_to_json(t)::text from %s t where %s = $1", d.Table, d.KeyColumn),
		write: fmt.Sprintf("update %s set %s = $2, %s = $3 where %s = $1", d.Table, plan.VersionColumn, plan.TextColumn, d.KeyColumn),
	}
	for _, s := range answer.Shards {
		dsn := d.DSNs[s.Name]
		if dsn == "" {
			return nil, fmt.Errorf("shard %s is in the ring, but its address is not known here", s.Name)
		}
		m.dsns = append(m.dsns, dsn)
	}
	m.owners, err = base64.StdEncoding.DecodeString(answer.Owners.Shard)
	if err != nil || len(m.owners) != 2*ring.Vnodes {
		return nil, errors.New("asking where the rows are: the sidecar's answer is not understood")
	}
	return m, nil
}

// shard is the index of the shard of a row.
func (m *shardMap) shard(id uint32) (int, error) {
	vnode := ring.Vnode(strconv.AppendUint(nil, uint64(id), 10))
	i := int(binary.LittleEndian.Uint16(m.owners[2*int(vnode):]))
	if i >= len(m.dsns) {
		return 0, fmt.Errorf("no shard owns vnode %d", vnode)
	}
	return i, nil
}

func (m *shardMap) client() *shardClient {
	return &shardClient{m: m, conns: make([]*pgx.Conn, len(m.dsns))}
}

// shardClient has a connection to every shard that it has needed. It is used by one goroutine.
type shardClient struct {
	m     *shardMap
	conns []*pgx.Conn
}

func (c *shardClient) conn(ctx context.Context, id uint32) (*pgx.Conn, error) {
	i, err := c.m.shard(id)
	if err != nil {
		return nil, err
	}
	if c.conns[i] == nil || c.conns[i].IsClosed() {
		if c.conns[i], err = pgx.Connect(ctx, c.m.dsns[i]); err != nil {
			return nil, fmt.Errorf("CONNECT %w", err)
		}
	}
	return c.conns[i], nil
}

func (c *shardClient) load(ctx context.Context, id uint32) (value []byte, found bool, err error) {
	conn, err := c.conn(ctx, id)
	if err != nil {
		return nil, false, err
	}
	err = conn.QueryRow(ctx, c.m.read, int64(id)).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// Write returns when the row is written.
func (c *shardClient) Write(ctx context.Context, id uint32, version int64, filling string) error {
	conn, err := c.conn(ctx, id)
	if err != nil {
		return err
	}
	done, err := conn.Exec(ctx, c.m.write, int64(id), version, filling)
	if err == nil && done.RowsAffected() != 1 {
		return fmt.Errorf("NOROW %d", id)
	}
	return err
}

// Close ends the sessions.
func (c *shardClient) Close() {
	for _, conn := range c.conns {
		if conn != nil {
			_ = conn.Close(context.Background()) // bounded by pgx itself; nothing is left to lose
		}
	}
}
