package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringside/shard/keyspace"
)

// Config is the configuration of one sidecar, with defaults filled in and references resolved. Tags are the keys of the file.
type Config struct {
	Name    string `yaml:"name"`     // unique in the cluster; default: the host name
	DataDir string `yaml:"data_dir"` // where the last topology is kept; default: the user's state directory

	Redis   Redis   `yaml:"redis"`
	Admin   Admin   `yaml:"admin"`
	Gossip  Gossip  `yaml:"gossip"`
	Catalog Catalog `yaml:"catalog"`

	DefaultCache DefaultCache `yaml:"default_cache"`
	Caches       []Cache      `yaml:"caches"` // first start only; the topology counts afterwards
	Shards       []Shard      `yaml:"shards"` // likewise, but for the connection strings' passwords
	Keyspaces    []Keyspace   `yaml:"keyspaces"`

	// ViewTTL is how long a shard's word about its view holds: how long a row may be served without asking. 100 ms to 1 min,
	// the same on all sidecars. Default 1 s.
	ViewTTL time.Duration `yaml:"view_ttl"`
	// WhenShardUnreachable: "serve" what is cached for rows of a shard that cannot be asked, or "refuse". Default serve.
	WhenShardUnreachable string `yaml:"when_shard_unreachable"`
	// Consistency: "strict" refuses a write whose cached copy cannot be put out of reach beforehand; "bounded" makes it, and acknowledges it when
	// no sidecar can be using that copy, after 2 x ViewTTL at the latest. Default bounded.
	Consistency string `yaml:"consistency"`

	// Invalidation: "wal" follows what others change on the shards, "off" leaves it to the ttl. Default wal.
	Invalidation string `yaml:"invalidation"`
	// VerifyRate is how many cached rows a second this sidecar compares with their shards, in the background; 0: none. Default 1.
	VerifyRate int `yaml:"verify_rate"`

	Loops  int    `yaml:"loops"` // event loops; default 0: one fewer than processors
	Limits Limits `yaml:"limits"`
	Log    Log    `yaml:"log"`

	set   *keyspace.Set
	file  string
	found map[string]position // where each value stood in the file
}

// Redis is what the application connects to.
type Redis struct {
	Listen     string `yaml:"listen"`      // IP:port, or unix:/path; default 127.0.0.1:6380
	Password   Secret `yaml:"password"`    // empty: none; needed when others than this machine can connect
	MaxClients int    `yaml:"max_clients"` // default 10000
}

// Admin is the HTTP interface.
type Admin struct {
	Listen string `yaml:"listen"` // IP:port; default 127.0.0.1:6381
	Token  Secret `yaml:"token"`  // guards every change; empty: no changes
	Pprof  bool   `yaml:"pprof"`  // serve /debug/pprof/: Go's profiles of this process
}

// Solitude is a warning if gossip.join is given and names this sidecar alone, so that it finds no other one; else it is empty.
func (c *Config) Solitude() string {
	for _, seed := range c.Gossip.Join {
		if seed != c.Gossip.Listen && seed != c.Gossip.Advertise {
			return ""
		}
	}
	if len(c.Gossip.Join) == 0 {
		return ""
	}
	return "gossip.join names only this sidecar itself: it finds no others unless they name it"
}

// Gossip is how sidecars find each other.
type Gossip struct {
	Listen string `yaml:"listen"` // IP:port, TCP and UDP; default 0.0.0.0:7946
	// Advertise is what others are told to reach this sidecar at, as IP:port; default: what it listens on
	Advertise string   `yaml:"advertise"`
	Join      []string `yaml:"join"`    // host:port of some others; names are resolved at each attempt
	Keys      []Secret `yaml:"keys"`    // base64 of 16, 24 or 32 bytes each; the first encrypts, all decrypt
	Cluster   string   `yaml:"cluster"` // sidecars of another cluster are not heard; default "ringside"
}

// Catalog is the database that orders changes of the topology.
type Catalog struct {
	DSN DSN `yaml:"dsn"` // empty: no catalog, and no shards
}

// DefaultCache is what cache servers have in common. A server's own setting goes before it.
type DefaultCache struct {
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
	TLS      *TLS   `yaml:"tls"`
}

// Cache is one cache server.
type Cache struct {
	Name     string `yaml:"name"`   // places it on the ring
	Addr     string `yaml:"addr"`   // host:port
	Weight   int    `yaml:"weight"` // its share is weight / sum of all; 0 takes no keys; default 1
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
	TLS      *TLS   `yaml:"tls"` // nil: plain TCP
}

// TLS says how to speak TLS with a cache server. Paths are relative to the configuration file's folder in the file, and absolute or
// relative to the working directory here.
type TLS struct {
	CA         string `yaml:"ca"`   // PEM file of the authorities; empty: the system's
	Cert       string `yaml:"cert"` // PEM files of a client certificate; both or none
	Key        string `yaml:"key"`
	ServerName string `yaml:"server_name"` // the name in the server's certificate; empty: the host of addr
}

// Shard is one PostgreSQL database that owns rows.
type Shard struct {
	Name   string `yaml:"name"`
	DSN    DSN    `yaml:"dsn"`
	Weight int    `yaml:"weight"` // steers how many vnodes it is given; 0 drains it; default 1
	// MaxConnections is the budget of the whole cluster for this shard, not of one sidecar. Default 64.
	MaxConnections int `yaml:"max_connections"`
	// MaxSize is how large the database may become by moves: what its disk bears. 0: not known.
	MaxSize Size `yaml:"max_size"`
}

// Keyspace is one table keyspace; see keyspace.Spec.
type Keyspace struct {
	Name        string        `yaml:"name"`
	Pattern     string        `yaml:"pattern"`
	Table       string        `yaml:"table"`
	Value       string        `yaml:"value"` // default "row"
	ShardBy     string        `yaml:"shard_by"`
	TTL         time.Duration `yaml:"ttl"`
	NegativeTTL time.Duration `yaml:"negative_ttl"` // default 0: absences are not cached
}

// Limits bound what one client, and all together, may ask of this sidecar.
type Limits struct {
	Value          Size          `yaml:"value"`            // one argument of a command; default 64MiB
	Request        Size          `yaml:"request"`          // one command; default 128MiB
	Output         Size          `yaml:"output"`           // unread replies of one client, which is cut above it; default 256MiB
	Pipeline       int           `yaml:"pipeline"`         // unanswered requests of one client; more are left unread; default 1024
	ClientIdle     time.Duration `yaml:"client_idle"`      // a client that sends nothing for so long is closed; default 0: never
	UpstreamIdle   time.Duration `yaml:"upstream_idle"`    // a connection to a cache server that is not used for so long; default 5m
	RowOperations  int           `yaml:"row_operations"`   // misses and writes of rows under way; more get OVERLOADED; default 8192
	ShardQueue     int           `yaml:"shard_queue"`      // requests waiting for one shard's connections; default 1024
	ShardQueueWait time.Duration `yaml:"shard_queue_wait"` // and how long one waits; default 500ms

	ShardConnectTimeout time.Duration `yaml:"shard_connect_timeout"` // how long connecting to a shard may take, for each host of its dsn; default 1s
	ShardReadTimeout    time.Duration `yaml:"shard_read_timeout"`    // how long a statement that reads may take; default 2s
	ShardWriteTimeout   time.Duration `yaml:"shard_write_timeout"`   // how long one that writes may take, its waits for locks included; default 3s
	ShardLockTimeout    time.Duration `yaml:"shard_lock_timeout"`    // how long one of either may wait for one lock; default 1s

	ConnectTimeout     time.Duration `yaml:"connect_timeout"`     // how long connecting to a cache server may take; default 500ms
	ReplyTimeout       time.Duration `yaml:"reply_timeout"`       // how long one that owes replies may send nothing; default 3s
	UpstreamRequests   int           `yaml:"upstream_requests"`   // requests waiting for one connection to a cache server; default 65536
	PrivateConnections int           `yaml:"private_connections"` // clients with a connection of their own to a cache server; default 1024
	SweepTimeout       time.Duration `yaml:"sweep_timeout"`       // how long a command that goes through all keys may take; default 1m
	CacheDownAfter     time.Duration `yaml:"cache_down_after"`    // how long a cache server may give no answer before this sidecar votes against it; default 1.5s
	SlowFrom           time.Duration `yaml:"slow_from"`           // how long a request takes that SLOWLOG and LATENCY show; default 10ms
}

// Log says what is logged, on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error; default info
	Format string `yaml:"format"` // text or json; default text
	// SlowRequests: whether requests that take Limits.SlowFrom or longer are logged, with the keys of rows "masked" or shown ("keys"); default off.
	SlowRequests string `yaml:"slow_requests"`
}

// Default returns the configuration of an empty file, but for Name and DataDir, which depend on the machine.
func Default() *Config {
	return &Config{
		Redis:                Redis{Listen: "127.0.0.1:6380", MaxClients: 10000},
		Admin:                Admin{Listen: "127.0.0.1:6381"},
		Gossip:               Gossip{Listen: "0.0.0.0:7946", Cluster: "ringside"},
		ViewTTL:              time.Second,
		WhenShardUnreachable: "serve",
		Consistency:          "bounded",
		Invalidation:         "wal",
		VerifyRate:           1,
		Limits: Limits{
			Value: 64 << 20, Request: 128 << 20, Output: 256 << 20, Pipeline: 1024, UpstreamIdle: 5 * time.Minute, RowOperations: 8192,
			ShardQueue: 1024, ShardQueueWait: 500 * time.Millisecond,
			ShardConnectTimeout: time.Second, ShardReadTimeout: 2 * time.Second, ShardWriteTimeout: 3 * time.Second, ShardLockTimeout: time.Second,
			ConnectTimeout: 500 * time.Millisecond, ReplyTimeout: 3 * time.Second, UpstreamRequests: 1 << 16, PrivateConnections: 1024,
			SweepTimeout: time.Minute, CacheDownAfter: 1500 * time.Millisecond, SlowFrom: 10 * time.Millisecond,
		},
		Log: Log{Level: "info", Format: "text", SlowRequests: "off"},
	}
}

func (c *Cache) setDefaults() { c.Weight = 1 }
func (s *Shard) setDefaults() { s.Weight, s.MaxConnections = 1, 64 }
func (k *Keyspace) setDefaults() {
	k.Value = keyspace.WholeRow
}

// Set returns the compiled keyspaces.
func (c *Config) Set() *keyspace.Set { return c.set }

// At adds to an error that came up later (a table without its key column, a catalog that does not answer) where in the file its
// cause stands: file:line:col of the value at path, such as "keyspaces[1].table", or of what that would be part of. The result is
// Errors, one line, as from Load.
func (c *Config) At(path string, err error) error {
	p := nearestPosition(c.found, path)
	return Errors{{File: c.file, Line: p.line, Col: p.col, Msg: strings.Join(strings.Fields(err.Error()), " "), Cause: err}}
}

// maxFile bounds the configuration file, in bytes.
const maxFile = 1 << 20

// Load reads the file. The error is Errors if the file could be read, and says what is wrong where. getenv is os.Getenv in the program.
func Load(path string, getenv func(string) string) (*Config, error) {
	text, err := readFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // then the file must give a name
	}
	return parse(path, text, machine{host: host, root: os.Geteuid() == 0, getenv: getenv})
}

// machine is what a configuration depends on besides its file.
type machine struct {
	host   string
	root   bool
	getenv func(string) string
}

func parse(path string, text []byte, m machine) (*Config, error) {
	c := Default()
	c.file, c.found = path, map[string]position{}
	d := &decoder{file: path, machine: m, found: c.found, failed: map[string]bool{}}
	if d.document(text, c) {
		c.complete(d)
		c.check(d)
	}
	if len(d.errs) > 0 {
		return nil, d.errs.sorted()
	}
	return c, nil
}

// complete fills in what depends on the machine or on other settings.
func (c *Config) complete(d *decoder) {
	if c.Name == "" && !d.has("name") {
		c.Name = strings.ToLower(d.machine.host)
		if !validName(c.Name) {
			d.fault("name", "name is missing, and the host name %q cannot stand in for it: %s", c.Name, nameRule)
		}
	}
	if c.DataDir == "" {
		c.DataDir = d.machine.stateDir(c.Name)
		if c.DataDir == "" {
			d.fault("data_dir", "data_dir is missing, and neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set to stand in for it")
		}
	} else {
		c.DataDir = d.relative(c.DataDir)
	}
	d.relativeTLS(c.DefaultCache.TLS)
	for i := range c.Caches {
		s := &c.Caches[i]
		d.relativeTLS(s.TLS)
		if s.Username == "" && s.Password == "" {
			s.Username, s.Password = c.DefaultCache.Username, c.DefaultCache.Password
		}
		if s.TLS == nil && c.DefaultCache.TLS != nil {
			own := *c.DefaultCache.TLS
			s.TLS = &own
		}
	}
}

// stateDir is where programs keep what they know between two starts; each sidecar has a folder of its own.
func (m machine) stateDir(name string) string {
	if dir := m.getenv("STATE_DIRECTORY"); dir != "" { // systemd
		return dir
	}
	switch dir, home := m.getenv("XDG_STATE_HOME"), m.getenv("HOME"); {
	case dir != "":
		return filepath.Join(dir, "ringside", name)
	case m.root:
		return filepath.Join("/var/lib/ringside", name)
	case home != "":
		return filepath.Join(home, ".local/state/ringside", name)
	}
	return ""
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return text, nil
}
