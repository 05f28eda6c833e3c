-- Makes the holder's keys live longer, never shorter, and the fences with them: all or none. Never creates a key.
-- KEYS  the locks, their fences    ARGV  token, ttl in ms, the holder's level, fence_ttl in ms, the number of locks, a larger
-- fence to remember if another node has granted one
-- Returns 1 extended, 2 extended and that fence remembered for all, 0 some are absent, -1 or the owner's label one is held by
-- another, or the most that one of our own was granted above the level, as a negative number (must not count).
local locks, prefix, absent, most = tonumber(ARGV[5]), ARGV[1] .. ':', false, 0
for i = 1, locks do
  local value = redis.pcall('GET', KEYS[i])
  if not value then
    absent = true
  elseif type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
    return value
  elseif string.sub(value, 1, #prefix) ~= prefix then
    local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
    local form = token and #token == 32 and string.sub(rest, 1, 1) == ':'
    if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then return string.sub(rest, 2) end
    return -1
  else
    local fence = tonumber(string.match(value, '^(%d+)', #prefix + 1))
    if not fence or fence >= 9007199254740992 then return -1 end
    most = math.max(most, fence)
  end
end
if absent then return 0 end
if most > tonumber(ARGV[3]) then return -most end
for i = 1, locks do
  -- PEXPIRE, not SET: a server that has reached maxmemory refuses SET and still allows PEXPIRE.
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
  local kept = redis.call('PTTL', KEYS[locks + i])
  if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[locks + i], ARGV[4]) end
end
if not ARGV[6] then return 1 end
-- The locks are extended whatever comes of this.
for i = locks + 1, 2 * locks do
  local last = redis.pcall('GET', KEYS[i])
  local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
  if not digits then return 1 end
  if tonumber(digits) < tonumber(ARGV[6]) and redis.pcall('SET', KEYS[i], ARGV[6], 'PX', ARGV[4]).err then return 1 end
end
return 2
