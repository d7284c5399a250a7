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

// scripts are the steps that look before they act. Each takes an entry's name as its first key, or those of many. Those that change something read no more of
// a value than they compare, and none of those fails on a key of another type. Fixed numbers are given to commands as strings: Redis would print a number of
// Lua's each time, which takes as long as the command.
type scripts struct {
	fill    *script // ARGV: our lease, the entry, its life in ms, our lease awaited. 1: done, 0: our lease is gone
	release *script // ARGV: our lease, the same awaited. 1: done, 0: it is gone
	await   *script // ARGV: somebody's lease, the same awaited. The ms that it has left, now that it says that readers wait; 0: it is gone
	claim   *script // ARGV: now, our token. The header that is replaced; 0: nothing is there that is due and nobody's
	renew   *script // ARGV: the claimed header, the entry, its life in ms. 1: done, 0: our claim is gone
	unclaim *script // ARGV: the claimed header, a soft expiry. 1: done, 0: our claim is gone
	poison  *script // ARGV: our token, our life in ms, the most writers. 1: done, 2: done, and there were so many that some were merged
	clean   *script // ARGV: our token. 1: deleted, 0: nothing was there, 2: what is left is other writers' poison
	lift    *script // ARGV: our token. 1: deleted, 0: we are not there, 2: what is left is other writers' poison
	discard *script // ARGV: the malformed entry; empty: a key of another type. 1: deleted, 0: it has changed
	// Of many entries at once. The answer is a list, of one for each.
	ask  *script // ARGV: our lease, its life in ms. What was there, nothing: our lease is now; an error: it is of another type
	hand *script // first key: the marker of the rows' shard. ARGV: epoch, bytes. {entry, ms left}, 0: no value or absence is there; -1 in place of the list: closed. Those that there was no room for in so many bytes are missing at its end
	take *script // ARGV: our lease, its life in ms. 1: nothing was there and our lease is now, 0: something was
	put  *script // ARGV: our lease, the same awaited; for each the entry, or nothing to give the lease back, and its life in ms. 1: done, 0: our lease is gone
}

// unleased is fill without its look at the lease: what comes of that is tested.
const unleased = `redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1`

func newScripts() scripts {
	return scripts{
		fill: newScript(tell + `
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
local lease = redis.call('GETRANGE', KEYS[1], '0', '18')
if lease ~= ARGV[1] and lease ~= ARGV[4] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
tell(lease)
return 1`),
		release: newScript(tell + `
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
local lease = redis.call('GETRANGE', KEYS[1], '0', '18')
if lease ~= ARGV[1] and lease ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
tell(lease)
return 1`),
		await: newScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
local lease = redis.call('GETRANGE', KEYS[1], '0', '18')
if lease ~= ARGV[2] then
  if lease ~= ARGV[1] then return 0 end
  redis.call('SETRANGE', KEYS[1], '0', ARGV[2]) -- which leaves it its time
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 86400000 end -- none of ours
return math.max(left, 1)`),
		claim: newScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
local header = redis.call('GETRANGE', KEYS[1], '0', '17')
if #header < 18 then return 0 end
local kind = string.sub(header, 1, 2)
if kind ~= 'V\1' and kind ~= 'A\1' then return 0 end
if string.sub(header, 11) > ARGV[1] then return 0 end -- a token is above every time
redis.call('SETRANGE', KEYS[1], '10', ARGV[2])
return header`),
		renew: newScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if redis.call('GETRANGE', KEYS[1], '0', '17') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`),
		unclaim: newScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if redis.call('GETRANGE', KEYS[1], '0', '17') ~= ARGV[1] then return 0 end
redis.call('SETRANGE', KEYS[1], '10', ARGV[2])
return 1`),
		poison: newScript(writers + `
local list, last = others()
local answer = 1
while #list >= tonumber(ARGV[3]) do
  local first = table.remove(list, 1)
  list[1] = string.rep('\0', 16) .. struct.pack('>I8', math.max(expiry(first), expiry(list[1])))
  answer = 2
end
local ours = now + ARGV[2]
table.insert(list, ARGV[1] .. struct.pack('>I8', ours))
put(list, math.max(last, ours))
return answer`),
		clean: newScript(writers + `
return leave(others())`),
		lift: newScript(writers + `
local list, last, found = others()
if not found then return 0 end
return leave(list, last)`),
		discard: newScript(`
local type = redis.call('TYPE', KEYS[1]).ok
if type == 'none' then return 0 end
if type == 'string' and redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`),
		hand: newScript(`
local closed = redis.call('GET', KEYS[1])
if closed and tonumber(closed) >= tonumber(ARGV[1]) then return -1 end
local answers, room = {}, tonumber(ARGV[2])
for i = 2, #KEYS do
  local entry = redis.pcall('GET', KEYS[i]) -- a table, if it is an error
  local head = type(entry) == 'string' and string.sub(entry, 1, 2)
  if head == 'V\1' or head == 'A\1' then
    answers[i - 1] = {entry, redis.call('PTTL', KEYS[i])}
    room = room - #entry
  else
    answers[i - 1] = 0
  end
  if room <= 0 then break end
end
return answers`),
		ask: newScript(`
local answers = {}
for i, name in ipairs(KEYS) do
  answers[i] = redis.pcall('SET', name, ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
end
return answers`),
		take: newScript(`
local answers = {}
for i, name in ipairs(KEYS) do
  answers[i] = redis.call('SET', name, ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
end
return answers`),
		put: newScript(tell + `
local answers = {}
for i, name in ipairs(KEYS) do
  local lease = redis.pcall('GETRANGE', name, '0', '18') -- a table, if it is an error
  if lease ~= ARGV[1] and lease ~= ARGV[2] then
    answers[i] = 0
  else
    if ARGV[2 * i + 1] == '' then
      redis.call('DEL', name)
    else
      redis.call('SET', name, ARGV[2 * i + 1], 'PX', ARGV[2 * i + 2])
    end
    tell(lease)
    answers[i] = 1
  end
end
return answers`),
	}
}

// tell is the part of scripts that take a lease away, which tells the readers that wait for it: only then anything is published. Where the user may not
// publish, nobody has been able to listen either.
const tell = `
local function tell(lease)
  if #lease == 18 and string.sub(lease, 1, 2) == 'L\1' and string.byte(lease, 11) >= 128 then
    redis.pcall('PUBLISH', '` + wakePrefix + `' .. string.sub(lease, 3), '')
  end
end
`

// writers is how the scripts of writers begin. The time is the server's own, so that no clocks of sidecars are compared; it is that by
// which Redis expires the entry itself.
const writers = tell + `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function expiry(writer) return (struct.unpack('>I8', writer, 17)) end

local lease = '' -- that is there, if it is one

-- others returns the writers in the poison whose time is not over, without us, the latest of their times, and whether we are there.
local function others()
  local list, last, found = {}, now, false
  if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return list, last, found end
  local head = redis.call('GETRANGE', KEYS[1], '0', '18')
  if string.sub(head, 1, 2) ~= 'P\1' then
    lease = head
    return list, last, found
  end
  local entry = redis.call('GET', KEYS[1])
  if #entry % 24 ~= 2 then return list, last, found end
  for at = 3, #entry, 24 do
    local writer = string.sub(entry, at, at + 23)
    if string.sub(writer, 1, 16) == ARGV[1] then
      found = true
    elseif expiry(writer) > now then
      table.insert(list, writer)
      last = math.max(last, expiry(writer))
    end
  end
  return list, last, found
end

local function put(list, last)
  redis.call('SET', KEYS[1], 'P\1' .. table.concat(list), 'PXAT', last)
  tell(lease)
end

-- leave leaves nothing but these writers. It deletes first, because Redis lets a script that has freed memory go on when it is full.
local function leave(list, last)
  local deleted = redis.call('DEL', KEYS[1])
  if #list == 0 then
    tell(lease)
    return deleted
  end
  put(list, last)
  return 2
end
`
