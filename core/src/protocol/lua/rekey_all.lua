-- Gives the holder's keys another token, and lets them live longer, never shorter, and the fences with them: all or none.
-- Never creates a key.
-- KEYS  the locks, their fences    ARGV  the fresh token, ttl in ms, the holder's level, fence_ttl in ms, the former token,
-- the number of locks
-- Returns 1 when the keys have the fresh token, 2 when all had it before, 0 some are absent, -1 or the owner's label one is
-- held by another, or the most that one of our own was granted above the level, as a negative number: they have the fresh
-- token too, but must not count.
local locks, length, values, absent, most, reply = tonumber(ARGV[6]), #ARGV[1], {}, false, 0, 2
for i = 1, locks do
  local value = redis.pcall('GET', KEYS[i])
  local begin = type(value) == 'string' and string.sub(value, 1, length + 1)
  if not value then
    absent = true
  elseif type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
    return value
  elseif begin ~= ARGV[1] .. ':' and begin ~= ARGV[5] .. ':' then
    local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
    local form = token and #token == 32 and string.sub(rest, 1, 1) == ':'
    if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then return string.sub(rest, 2) end
    return -1
  else
    local fence = tonumber(string.match(value, '^(%d+)', length + 2))
    if not fence or fence >= 9007199254740992 then return -1 end
    values[i], most = value, math.max(most, fence)
    if begin == ARGV[5] .. ':' then reply = 1 end
  end
end
if absent then return 0 end
for i = 1, locks do
  -- In this order also a server that has reached maxmemory does it: it refuses SET, but not behind another write.
  redis.call('PEXPIRE', KEYS[i], math.max(redis.call('PTTL', KEYS[i]), tonumber(ARGV[2])))
  redis.call('SET', KEYS[i], ARGV[1] .. string.sub(values[i], length + 1), 'KEEPTTL')
  local kept = redis.call('PTTL', KEYS[locks + i])
  if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[locks + i], ARGV[4]) end
end
if most > tonumber(ARGV[3]) then return -most end
return reply
