-- Gives the holder's key another token, and lets it live longer, never shorter, and the fence with it. Never creates a key.
-- KEYS  lock, fence    ARGV  the fresh token, ttl in ms, the holder's level, fence_ttl in ms, the former token
-- Returns 1 when the key has the fresh token, 2 when it had it before, 0 absent, -1 or the owner's label held by another,
-- or what our own key was granted above the level, as a negative number: it has the fresh token too, but must not count.
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
local length = #ARGV[1]
local begin = string.sub(value, 1, length + 1)
if begin ~= ARGV[1] .. ':' and begin ~= ARGV[5] .. ':' then
  local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
  local form = token and #token == 32 and string.sub(rest, 1, 1) == ':'
  if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then return string.sub(rest, 2) end
  return -1
end
local fence = tonumber(string.match(value, '^(%d+)', length + 2))
if not fence or fence >= 9007199254740992 then return -1 end
-- In this order also a server that has reached maxmemory does it: it refuses SET, but not behind another write.
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
redis.call('SET', KEYS[1], ARGV[1] .. string.sub(value, length + 1), 'KEEPTTL')
local kept = redis.call('PTTL', KEYS[2])
if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
if fence > tonumber(ARGV[3]) then return -fence end
return begin == ARGV[5] .. ':' and 1 or 2
