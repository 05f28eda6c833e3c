-- Makes the holder's key live longer, never shorter, and the fence with it. Never creates a key.
-- KEYS  lock, fence unless a cluster moves it now    ARGV  token, ttl in ms, the holder's fence, fence_ttl in ms
-- Returns 1 extended, 0 absent, -1 or the owner's label held by another, -2 ours but granted after the fence was decided
-- (must not count).
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
local prefix = #ARGV[1] + 1
if string.sub(value, 1, prefix) ~= ARGV[1] .. ':' then
  local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
  local form = token and #token == 32 and string.sub(rest, 1, 1) == ':'
  if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then return string.sub(rest, 2) end
  return -1
end
local fence = tonumber(string.match(value, '^(%d+)', prefix + 1))
if not fence or fence > tonumber(ARGV[3]) then return -2 end
-- PEXPIRE, not SET: a server that has reached maxmemory refuses SET and still allows PEXPIRE.
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local kept = KEYS[2] and redis.call('PTTL', KEYS[2]) or -1
if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
return 1
