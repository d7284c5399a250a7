package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"ringside/shard/keyspace"
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

const nameRule = "a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit"

func validName(name string) bool { return namePattern.MatchString(name) }

// MaxWeight is the largest weight of a server that makes sense; more is a slip of the keyboard.
const MaxWeight = 1_000_000

// CheckName says what is wrong with the name of a server that does not come from a file.
func CheckName(name string) error {
	if !validName(name) {
		return fmt.Errorf("is %q: %s", name, nameRule)
	}
	return nil
}

// CheckWeight says what is wrong with the weight of a server that does not come from a file.
func CheckWeight(weight int64) error {
	if weight < 0 || weight > MaxWeight {
		return fmt.Errorf("is %d: it must be from 0 to %d", weight, MaxWeight)
	}
	return nil
}

// CheckAddr says what is wrong with the address of a server that does not come from a file.
func CheckAddr(addr string) error { return checkAddr(addr) }

// MaxConnections is the largest budget of a shard that makes sense.
const MaxConnections = 10_000

// The same for other values.
const (
	maxClients    = 1_000_000
	maxLoops      = 1024
	maxVerifyRate = 1000
	maxIdle       = 30 * 24 * time.Hour
)

// check reports what decoding cannot see: values out of range, and values that do not go together.
func (c *Config) check(d *decoder) {
	checkName(d, "name", c.Name)
	c.checkListens(d)
	c.checkGossip(d)
	if tokenHasSpace(c.Admin.Token) {
		d.fault("admin.token", "admin.token must be printable ASCII without spaces")
	}
	if d.has("catalog") || c.Catalog.DSN != "" {
		checkConnection(d, "catalog.dsn", c.Catalog.DSN)
	}
	c.checkCaches(d)
	c.checkShards(d)
	c.checkKeyspaces(d)

	checkChoice(d, "when_shard_unreachable", c.WhenShardUnreachable, "serve", "refuse")
	checkChoice(d, "consistency", c.Consistency, "bounded", "strict")
	checkChoice(d, "invalidation", c.Invalidation, "wal", "off")
	checkChoice(d, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	checkChoice(d, "log.slow_requests", c.Log.SlowRequests, "off", "masked", "keys")
	checkChoice(d, "log.format", c.Log.Format, "text", "json")
	checkRange(d, "view_ttl", c.ViewTTL, 100*time.Millisecond, time.Minute)
	checkRange(d, "verify_rate", c.VerifyRate, 0, maxVerifyRate)
	checkRange(d, "loops", c.Loops, 0, maxLoops)
	checkRange(d, "redis.max_clients", c.Redis.MaxClients, 1, maxClients)
	checkRange(d, "limits.value", c.Limits.Value, kib, gib)
	if !d.failed["limits.value"] {
		checkRange(d, "limits.request", c.Limits.Request, max(c.Limits.Value, kib), 4*gib)
	}
	checkRange(d, "limits.output", c.Limits.Output, mib, 64*gib)
	checkRange(d, "limits.pipeline", c.Limits.Pipeline, 1, 1_000_000)
	if idle := c.Limits.ClientIdle; idle != 0 && (idle < time.Second || idle > maxIdle) {
		d.fault("limits.client_idle", "limits.client_idle must be 0s, which is never, or from %v to %v", time.Second, maxIdle)
	}
	checkRange(d, "limits.upstream_idle", c.Limits.UpstreamIdle, time.Second, maxIdle)
	checkRange(d, "limits.row_operations", c.Limits.RowOperations, 1, 1_000_000)
	checkRange(d, "limits.shard_queue", c.Limits.ShardQueue, 1, 1_000_000)
	checkRange(d, "limits.shard_queue_wait", c.Limits.ShardQueueWait, time.Millisecond, 10*time.Second)
	checkRange(d, "limits.shard_connect_timeout", c.Limits.ShardConnectTimeout, 50*time.Millisecond, 10*time.Second)
	// A write must be over before the mark that it leaves on the cached row expires, after 15 s.
	checkRange(d, "limits.shard_read_timeout", c.Limits.ShardReadTimeout, 50*time.Millisecond, 4*time.Second)
	checkRange(d, "limits.shard_write_timeout", c.Limits.ShardWriteTimeout, 50*time.Millisecond, 3*time.Second)
	checkRange(d, "limits.shard_lock_timeout", c.Limits.ShardLockTimeout, 10*time.Millisecond, 4*time.Second)
	checkRange(d, "limits.connect_timeout", c.Limits.ConnectTimeout, 10*time.Millisecond, time.Minute)
	checkRange(d, "limits.reply_timeout", c.Limits.ReplyTimeout, 100*time.Millisecond, 10*time.Minute)
	checkRange(d, "limits.upstream_requests", c.Limits.UpstreamRequests, 1, 10_000_000)
	checkRange(d, "limits.private_connections", c.Limits.PrivateConnections, 1, maxClients)
	checkRange(d, "limits.sweep_timeout", c.Limits.SweepTimeout, 100*time.Millisecond, 24*time.Hour)
	checkRange(d, "limits.cache_down_after", c.Limits.CacheDownAfter, 400*time.Millisecond, time.Minute)
	checkRange(d, "limits.slow_from", c.Limits.SlowFrom, time.Millisecond, time.Hour)
}

func checkRange[T int | Size | time.Duration](d *decoder, path string, value, low, high T) {
	if value < low || value > high {
		d.fault(path, "%s must be from %v to %v", path, low, high)
	}
}

func checkChoice(d *decoder, path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		d.fault(path, "%s must be one of %s, not %q", path, strings.Join(allowed, ", "), value)
	}
}

func checkName(d *decoder, path, value string) {
	switch {
	case !d.has(path) && value == "":
		d.fault(path, "%s is missing", path)
	case !validName(value):
		d.fault(path, "%s is %q: %s", path, value, nameRule)
	}
}

func checkConnection(d *decoder, path string, dsn DSN) {
	if dsn == "" {
		d.fault(path, "%s is missing", path)
	} else if err := checkDSN(string(dsn)); err != nil {
		d.fault(path, "%s %v", path, err)
	}
}

// unique reports values that stand in a list twice.
type unique struct {
	d    *decoder
	seen map[string]string // value -> path of the first
}

// add wants the value to be new. It shows the value only if that is no secret.
func (u *unique) add(path, value string, secret bool) {
	if value == "" {
		return // reported as missing
	}
	first, taken := u.seen[value]
	if !taken {
		u.seen[value] = path
		return
	}
	line := u.d.found[first].line
	if secret {
		u.d.fault(path, "%s is the same as %s, line %d", path, first, line)
	} else {
		u.d.fault(path, "%s %q is taken: %s has it, line %d", path, value, first, line)
	}
}

func (c *Config) checkGossip(d *decoder) {
	checkName(d, "gossip.cluster", c.Gossip.Cluster)
	if c.Gossip.Advertise != "" {
		if err := checkAdvertise(c.Gossip.Advertise); err != nil {
			d.fault("gossip.advertise", "gossip.advertise %v", err)
		}
	}
	for i, seed := range c.Gossip.Join {
		path := fmt.Sprintf("gossip.join[%d]", i)
		if err := checkAddr(seed); err != nil {
			d.fault(path, "%s %v", path, err)
		}
	}
	keys := unique{d, map[string]string{}}
	for i, key := range c.Gossip.Keys {
		path := fmt.Sprintf("gossip.keys[%d]", i)
		raw, err := base64.StdEncoding.DecodeString(string(key))
		if n := len(raw); err != nil || n != 16 && n != 24 && n != 32 {
			d.fault(path, "%s must be base64 of 16, 24 or 32 bytes: make one with openssl rand -base64 32", path)
		}
		keys.add(path, string(key), true)
	}
}

func tokenHasSpace(token Secret) bool {
	return strings.ContainsFunc(string(token), func(r rune) bool { return r <= ' ' || r > '~' })
}

func (c *Config) checkCaches(d *decoder) {
	checkTLS(d, "default_cache.tls", c.DefaultCache.TLS)
	checkLogin(d, "default_cache", c.DefaultCache.Username, c.DefaultCache.Password)
	names, addrs := unique{d, map[string]string{}}, unique{d, map[string]string{}}
	weighted := false
	for i, s := range c.Caches {
		path := fmt.Sprintf("caches[%d]", i)
		checkName(d, path+".name", s.Name)
		names.add(path+".name", s.Name, false)
		if s.Addr == "" {
			d.fault(path+".addr", "%s.addr is missing", path)
		} else if err := checkAddr(s.Addr); err != nil {
			d.fault(path+".addr", "%s.addr %v", path, err)
		}
		addrs.add(path+".addr", s.Addr, false)
		checkRange(d, path+".weight", s.Weight, 0, MaxWeight)
		weighted = weighted || s.Weight > 0 || d.failed[path+".weight"]
		if d.has(path+".tls") && !d.failed[path+".tls"] {
			checkTLS(d, path+".tls", s.TLS)
		}
		checkLogin(d, path, s.Username, s.Password)
	}
	if len(c.Caches) > 0 && !weighted {
		d.fault("caches", "caches need at least one weight above 0")
	}
}

func checkLogin(d *decoder, path, username string, password Secret) {
	if d.has(path+".username") && username != "" && password == "" && !d.failed[path+".password"] {
		d.fault(path+".username", "%s.username needs a password beside it", path)
	}
}

func checkTLS(d *decoder, path string, t *TLS) {
	if t == nil {
		return
	}
	if (t.Cert == "") != (t.Key == "") && !d.failed[path+".cert"] && !d.failed[path+".key"] {
		d.fault(path, "%s needs both cert and key, or neither", path)
	}
	for _, file := range []struct{ key, path string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if file.path == "" {
			continue
		}
		if _, err := os.Stat(file.path); err != nil {
			d.fault(path+"."+file.key, "%s.%s: %v", path, file.key, err)
		}
	}
}

func (c *Config) checkShards(d *decoder) {
	if len(c.Shards) > 0 && c.Catalog.DSN == "" && !d.failed["catalog.dsn"] {
		d.fault("shards", "shards need a catalog, which orders their changes: set catalog.dsn")
	}
	names, dsns := unique{d, map[string]string{}}, unique{d, map[string]string{}}
	weighted := false
	for i, s := range c.Shards {
		path := fmt.Sprintf("shards[%d]", i)
		checkName(d, path+".name", s.Name)
		names.add(path+".name", s.Name, false)
		checkConnection(d, path+".dsn", s.DSN)
		dsns.add(path+".dsn", string(s.DSN), true)
		checkRange(d, path+".weight", s.Weight, 0, MaxWeight)
		weighted = weighted || s.Weight > 0 || d.failed[path+".weight"]
		checkRange(d, path+".max_connections", s.MaxConnections, 1, MaxConnections)
		checkRange(d, path+".max_size", s.MaxSize, 0, math.MaxInt64)
	}
	if len(c.Shards) > 0 && !weighted {
		d.fault("shards", "shards need at least one weight above 0")
	}
}

// checkKeyspaces compiles them.
func (c *Config) checkKeyspaces(d *decoder) {
	if len(c.Keyspaces) > 0 && len(c.Shards) == 0 && !d.failed["shards"] {
		d.fault("keyspaces", "keyspaces need shards, which own their rows: list them under shards")
	}
	names := unique{d, map[string]string{}}
	var compiled []*keyspace.Keyspace
	paths := map[*keyspace.Keyspace]string{}
	for i, k := range c.Keyspaces {
		path := fmt.Sprintf("keyspaces[%d]", i)
		checkName(d, path+".name", k.Name)
		names.add(path+".name", k.Name, false)
		one, err := keyspace.Compile(keyspace.Spec{
			Name: k.Name, Pattern: k.Pattern, Table: k.Table, Value: k.Value, ShardBy: k.ShardBy, TTL: k.TTL, NegativeTTL: k.NegativeTTL,
		})
		if err != nil {
			reportSpec(d, path, err)
			continue
		}
		c.Keyspaces[i].ShardBy = one.ShardBy
		compiled = append(compiled, one)
		paths[one] = path
	}
	// Ambiguity is between two; each is compared with those before it, so that the later one is blamed and all are found.
	for i, second := range compiled {
		for _, first := range compiled[:i] {
			_, err := keyspace.NewSet([]*keyspace.Keyspace{first, second})
			if ambiguous, ok := errors.AsType[*keyspace.AmbiguousError](err); ok {
				d.fault(paths[second]+".pattern", "%v", ambiguous)
			}
		}
	}
	if len(d.errs) > 0 {
		return
	}
	set, err := keyspace.NewSet(compiled)
	if err != nil {
		d.fault("keyspaces", "%v", err)
	}
	c.set = set
}

// reportSpec puts each fault of a keyspace where it stands.
func reportSpec(d *decoder, path string, err error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		d.fault(path, "%s: %v", path, err)
		return
	}
	for _, one := range joined.Unwrap() {
		fault, ok := errors.AsType[*keyspace.SpecError](one)
		if !ok {
			d.fault(path, "%s: %v", path, one)
			continue
		}
		at := path + "." + fault.Field
		reason := fault.Reason
		if !d.has(at) && !strings.HasPrefix(reason, "is missing") {
			reason = "is missing" // rather than what is wrong with nothing
		}
		d.fault(at, "%s %s", at, reason)
	}
}
