package handover

import "github.com/redis/go-redis/v9"

// scripts are the steps that look before they act. The marker is KEYS[1] of those that look at it. They fail as a whole, with an error, only
// before they have changed anything.
type scripts struct {
	lease   *redis.Script // KEYS: leases. ARGV: token, life in ms. {now in ms, then for each 1: ours, 0: another's}
	dump    *redis.Script // KEYS: marker, keys. ARGV: since, epoch, max value, bytes. For each {life in ms, value}, or 0: absent, 1: unfit, 2: later
	restore *redis.Script // KEYS: marker, key and lease of each. ARGV: token, since, epoch, end of life and value of each. {now, then for each 1, 0: lost, 2: there, or an error}
	remove  *redis.Script // KEYS: marker, keys. ARGV: since, epoch. How many there were
	marker  *redis.Script // KEYS: marker. ARGV: what it is (empty: nothing), what it becomes. 1: done, 0: it is another
	drive   *redis.Script // KEYS: driver's lease. ARGV: token, our text, life in ms. 1: ours, else the other driver's text
	ready   *redis.Script // KEYS: marker, for which epoch and run_id the server was made ready. ARGV: epoch, marker, run_id. 1: emptied, 2: it was before, -1: too late
	resign  *redis.Script // KEYS: driver's lease. ARGV: token. 1: given back, 0: it was not ours
}

// Instead of what they return, dump, restore and remove say staleMarker or newerMarker when the marker does not let them act.
const (
	staleMarker = -2
	newerMarker = -1
)

// fence is how the scripts that change the keys of applications begin. They act only while the server's marker says what the carrier's topology
// says: so nothing that was decided by an earlier topology can touch a key whose owner is another by now, however late it comes.
const fence = `
local function fence(since, epoch, step)
  local marker = redis.call('GET', KEYS[1])
  local is = marker and tonumber(string.match(marker, '^%d+'))
  if not is or is < tonumber(since) then return -2 end
  if is > tonumber(epoch) then return -1 end
  if step and not string.find(marker .. ' ', ' ' .. since .. ':' .. step .. ' ', 1, true) then return -2 end
end
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
`

func newScripts() scripts {
	return scripts{
		lease: redis.NewScript(fence + `
local answer = {now()}
for i, lease in ipairs(KEYS) do
  answer[i + 1] = redis.call('SET', lease, ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
end
return answer`),
		dump: redis.NewScript(fence + `
local refused = fence(ARGV[1], ARGV[2], 'handed')
if refused then return refused end
local answer, bytes = {}, 0
for i = 2, #KEYS do
  local life = redis.call('PTTL', KEYS[i])
  if life == -2 then
    answer[i - 1] = 0
  elseif bytes >= tonumber(ARGV[4]) then
    answer[i - 1] = 2
  elseif redis.call('MEMORY', 'USAGE', KEYS[i]) > tonumber(ARGV[3]) then
    answer[i - 1] = 1
  else
    local value = redis.call('DUMP', KEYS[i])
    bytes = bytes + #value
    answer[i - 1] = {life, value}
  end
end
return answer`),
		restore: redis.NewScript(fence + `
local refused = fence(ARGV[2], ARGV[3])
if refused then return refused end
local answer = {now()}
for i = 1, (#KEYS - 1) / 2 do
  local key, lease = KEYS[2 * i], KEYS[2 * i + 1]
  if redis.call('GET', lease) ~= ARGV[1] then
    answer[i + 1] = 0
  elseif redis.call('EXISTS', key) == 1 then
    answer[i + 1] = 2
  else
    answer[i + 1] = redis.pcall('RESTORE', key, ARGV[2 * i + 2], ARGV[2 * i + 3], 'ABSTTL').err or 1
  end
end
return answer`),
		remove: redis.NewScript(fence + `
local refused = fence(ARGV[1], ARGV[2], 'handed')
if refused then return refused end
local removed = 0
for i = 2, #KEYS do removed = removed + redis.call('UNLINK', KEYS[i]) end
return removed`),
		marker: redis.NewScript(`
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1`),
		drive: redis.NewScript(`
local other = redis.call('GET', KEYS[1])
if other and string.sub(other, 1, #ARGV[1]) ~= ARGV[1] then return other end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`),
		// ASYNC frees the memory later; the keys are gone at once.
		ready: redis.NewScript(fence + `
local refused = fence(0, ARGV[1])
if refused then return refused end
local epoch, run = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if run == ARGV[3] and tonumber(epoch) >= tonumber(ARGV[1]) then return 2 end
redis.call('FLUSHDB', 'ASYNC')
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. ARGV[3])
return 1`),
		resign: redis.NewScript(`
local other = redis.call('GET', KEYS[1])
if not other or string.sub(other, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`),
	}
}
