package proxy

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// generator makes random commands on a few keys, so that they meet each other's values, also those of other types.
type generator struct {
	rng   *rand.Rand
	space string // apart from other generators
	tag   string // of the command in the making
}

// templates are commands with places to fill: K a key of the command's tag, A a key of any tag, V a value, N a small number, F a
// floating-point number, S a field or member, I an offset, X a stream id, L a coordinate pair, "..." repeats what stands before it.
var templates = strings.Split(strings.TrimSpace(`
SET K V|SET K V NX|SET K V XX|SET K V GET|SET K V KEEPTTL|SET K V EX 100|SET K V PXAT 4000000000000|SETNX K V|SETEX K 100 V|PSETEX K 100000 V
GET K|GETSET K V|GETDEL K|GETEX K|GETEX K PERSIST|GETRANGE K I I|SUBSTR K I I|SETRANGE K N V|APPEND K V|STRLEN K|INCR K|DECR K|INCRBY K N
DECRBY K N|INCRBYFLOAT K F|MSETNX K V K V|MGET A A A A|MGET A|MSET A V A V A V|DEL A A A|UNLINK A A|EXISTS A A A|TOUCH A A
LPUSH K S S|RPUSH K S S S|LPUSHX K S|RPUSHX K S|LPOP K|RPOP K|LPOP K N|RPOP K N|LLEN K|LRANGE K I I|LINDEX K I|LSET K I S|LREM K I S
LTRIM K I I|LINSERT K BEFORE S V|LINSERT K AFTER S V|LPOS K S|LPOS K S RANK -1 COUNT 0|RPOPLPUSH K K|LMOVE K K LEFT RIGHT|LMPOP 2 K K LEFT COUNT 2
SADD K S S S|SADD K N N|SREM K S|SMEMBERS K|SCARD K|SISMEMBER K S|SMISMEMBER K S S|SINTER K K|SUNION K K|SDIFF K K|SINTERSTORE K K K
SUNIONSTORE K K K|SDIFFSTORE K K K|SINTERCARD 2 K K|SINTERCARD 2 K K LIMIT 1|SMOVE K K S|SSCAN K 0 COUNT 1000
HSET K S V|HSET K S V S V|HSETNX K S V|HMSET K S V|HGET K S|HMGET K S S S|HDEL K S|HGETALL K|HKEYS K|HVALS K|HLEN K|HEXISTS K S|HSTRLEN K S
HINCRBY K S N|HINCRBYFLOAT K S F|HSCAN K 0 COUNT 1000
ZADD K F S F S|ZADD K N S|ZADD K NX N S|ZADD K XX CH N S|ZADD K GT N S|ZADD K INCR N S|ZADD K inf S|ZINCRBY K F S|ZREM K S|ZCARD K|ZCOUNT K -inf (N|ZSCORE K S
ZMSCORE K S S|ZRANK K S|ZREVRANK K S|ZRANGE K I I|ZRANGE K I I WITHSCORES|ZRANGE K (N N BYSCORE LIMIT 0 2|ZRANGE K - + BYLEX|ZREVRANGE K I I WITHSCORES
ZRANGEBYSCORE K -inf +inf WITHSCORES|ZREVRANGEBYSCORE K N 0|ZRANGEBYLEX K - [z|ZREVRANGEBYLEX K + -|ZLEXCOUNT K - +|ZPOPMIN K|ZPOPMAX K 2|ZMPOP 2 K K MIN
ZRANGESTORE K K 0 -1|ZREMRANGEBYRANK K 0 0|ZREMRANGEBYSCORE K N N|ZREMRANGEBYLEX K [a [b|ZUNION 2 K K WITHSCORES|ZINTER 2 K K|ZDIFF 2 K K WITHSCORES
ZUNIONSTORE K 2 K K WEIGHTS 1 2|ZINTERSTORE K 2 K K AGGREGATE MAX|ZDIFFSTORE K 2 K K|ZINTERCARD 2 K K|ZSCAN K 0 COUNT 1000
XADD K X S V|XADD K NOMKSTREAM X S V|XADD K MAXLEN 5 X S V|XLEN K|XRANGE K - +|XRANGE K X + COUNT 2|XREVRANGE K + -|XDEL K X|XTRIM K MAXLEN 2
XREAD COUNT 2 STREAMS K K 0 0|XREAD STREAMS K 0|XGROUP CREATE K g 0|XGROUP CREATE K g 0 MKSTREAM|XGROUP DESTROY K g|XGROUP CREATECONSUMER K g c
XREADGROUP GROUP g c COUNT 2 STREAMS K >|XACK K g X|XPENDING K g|XSETID K 9-9|XAUTOCLAIM K g c2 0 0 COUNT 2 JUSTID|XCLAIM K g c3 0 X JUSTID|XINFO STREAM K
SETBIT K N 1|SETBIT K N 0|GETBIT K N|BITCOUNT K|BITCOUNT K 0 5 BIT|BITPOS K 1|BITPOS K 0 1 -1|BITOP AND K K K|BITOP NOT K K|BITFIELD K INCRBY u8 N 10 GET i5 3
BITFIELD K OVERFLOW FAIL INCRBY u2 0 3|BITFIELD_RO K GET u8 0|PFADD K S S S|PFCOUNT K|PFCOUNT K K|PFMERGE K K K
GEOADD K L S L S|GEOADD K NX L S|GEOPOS K S S|GEODIST K S S|GEODIST K S S km|GEOHASH K S S|GEOSEARCH K FROMLONLAT L BYRADIUS 9000 km ASC WITHDIST WITHCOORD
GEOSEARCH K FROMMEMBER S BYBOX 9000 9000 km DESC COUNT 2|GEOSEARCHSTORE K K FROMLONLAT L BYRADIUS 9000 km|GEORADIUS K L 9000 km ASC STORE K|GEORADIUS_RO K L 900 km ASC
EXPIRE K 100|EXPIRE K 100 NX|EXPIREAT K 4000000001 GT|PEXPIRE K 100000|EXPIREAT K 4000000000|PEXPIREAT K 4000000000000|EXPIREAT K 1|EXPIRETIME K|PEXPIRETIME K|TTL K|PTTL K|PERSIST K
TYPE K|RENAME K K|RENAMENX K K|COPY K K|COPY K K REPLACE|OBJECT ENCODING K|EXISTS K|DEL K|UNLINK K|TOUCH K
SORT K|SORT K ALPHA|SORT K DESC LIMIT 0 2|SORT K ALPHA STORE K|SORT K BY nosort GET # STORE K|SORT_RO K ALPHA
EVAL return{KEYS[1],ARGV[1],false,1.5} 1 K V|EVAL return(redis.call('get',KEYS[1])) 1 K|EVAL_RO return(redis.call('type',KEYS[1])) 1 K|EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 K
GET|SET K|SET K V EX 0|SET K V XX NX|INCRBY K V|LRANGE K a b|NOSUCH K V|GET K K|ZADD K S S|EXPIRE K V|OBJECT NOSUCH K|HSET K S|XADD K 0-0 a b|PING|PING V|ECHO V
`), "\n")

var commandTemplates = func() [][]string {
	var all [][]string
	for _, line := range templates {
		for _, t := range strings.Split(line, "|") {
			all = append(all, strings.Fields(t))
		}
	}
	return all
}()

func (g *generator) command() []string {
	g.tag = strconv.Itoa(g.rng.IntN(6))
	var out []string
	for i, word := range commandTemplates[g.rng.IntN(len(commandTemplates))] {
		if i == 0 {
			out = append(out, g.cased(word))
			continue
		}
		switch word {
		case "K":
			out = append(out, g.key(g.tag))
		case "A":
			out = append(out, g.key(strconv.Itoa(g.rng.IntN(6))))
		case "V":
			out = append(out, g.value())
		case "N":
			out = append(out, strconv.Itoa(g.rng.IntN(20)))
		case "(N":
			out = append(out, "("+strconv.Itoa(g.rng.IntN(20)))
		case "F":
			out = append(out, strconv.FormatFloat(float64(g.rng.IntN(400)-200)/8, 'g', -1, 64))
		case "S":
			out = append(out, string(rune('a'+g.rng.IntN(6))))
		case "I":
			out = append(out, strconv.Itoa(g.rng.IntN(9)-4))
		case "X":
			out = append(out, fmt.Sprintf("%d-%d", 1+g.rng.IntN(9), g.rng.IntN(4)))
		case "L":
			out = append(out, strconv.Itoa(g.rng.IntN(360)-180), strconv.Itoa(g.rng.IntN(170)-85))
		default:
			out = append(out, word)
		}
	}
	return out
}

func (g *generator) cased(word string) string {
	if g.rng.IntN(8) == 0 {
		return strings.ToLower(word)
	}
	return word
}

// key is one of a few, so that commands of all types meet on it.
func (g *generator) key(tag string) string {
	return fmt.Sprintf("%s{%s}%c", g.space, tag, 'a'+rune(g.rng.IntN(8)))
}

func (g *generator) value() string {
	switch g.rng.IntN(12) {
	case 0:
		return ""
	case 1:
		return "\r\n$-1\r\n\x00\xff"
	case 2:
		return strings.Repeat("long ", 1+g.rng.IntN(2000))
	case 3:
		return strings.Repeat("x", 16300+g.rng.IntN(200))
	case 4, 5, 6:
		return strconv.Itoa(g.rng.IntN(1000) - 500)
	case 7:
		return "3.5"
	}
	return fmt.Sprintf("v%d", g.rng.IntN(100))
}
