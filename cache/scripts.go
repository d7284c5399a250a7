package cache

import (
	"crypto/sha1"
	"encoding/hex"
)

// script is a Lua script and the digest by which a server that has seen it knows it.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// scripts are the steps that look before they act. Each takes one entry's name as its key. They read no more of the entry than they
// compare, and none of them fails on a key of another type.
type scripts struct {
	fill    *script // ARGV: our lease, the entry, its life in ms. 1: done, 0: our lease is gone
	release *script // ARGV: our lease or poison. 1: done, 0: it is gone
	clean   *script // ARGV: our poison. 1: deleted, 0: nothing was there, 2: another writer's poison is there and stays
	discard *script // ARGV: the malformed entry; empty: a key of another type. 1: deleted, 0: it has changed
}

func newScripts() scripts {
	return scripts{
		fill: newScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`),
		release: newScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`),
		clean: newScript(`
if redis.call('TYPE', KEYS[1]).ok == 'string' then
  local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1])
  if #head == #ARGV[1] and string.sub(head, 1, 2) == string.sub(ARGV[1], 1, 2) and head ~= ARGV[1] then return 2 end
end
return redis.call('DEL', KEYS[1])`),
		discard: newScript(`
local type = redis.call('TYPE', KEYS[1]).ok
if type == 'none' then return 0 end
if type == 'string' and redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`),
	}
}
