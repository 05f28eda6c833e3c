-- Makes the holder's key live longer, never shorter, and the fence with it. Never creates a key.
-- KEYS  lock, fence unless a cluster moves it now    ARGV  token, ttl in ms, the holder's level, fence_ttl in ms, a larger
-- fence to remember if another node has granted one
-- Returns 1 extended, 2 extended and that fence remembered, 0 absent, -1 or the owner's label held by another, or what our
-- own key was granted above the level, as a negative number (must not count).
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
if not fence or fence >= 9007199254740992 then return -1 end
if fence > tonumber(ARGV[3]) then return -fence end
-- PEXPIRE, not SET: a server that has reached maxmemory refuses SET and still allows PEXPIRE.
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local kept = KEYS[2] and redis.call('PTTL', KEYS[2]) or -1
if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
if not ARGV[5] or not KEYS[2] then return 1 end
-- The lock is extended whatever comes of this.
local last = redis.pcall('GET', KEYS[2])
local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
if not digits then return 1 end
if tonumber(digits) < tonumber(ARGV[5]) and redis.pcall('SET', KEYS[2], ARGV[5], 'PX', ARGV[4]).err then return 1 end
return 2
