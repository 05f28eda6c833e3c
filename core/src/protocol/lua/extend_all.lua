-- Makes the holder's keys live longer, never shorter, and the fences with them: all or none. Never creates a key.
-- KEYS  the locks, their fences    ARGV  token, ttl in ms, the holder's fence, fence_ttl in ms, the number of locks
-- Returns 1 extended, 0 some are absent, -1 or the owner's label one is held by another, -2 one is ours but granted after
-- the fence was decided (must not count).
local locks, prefix, absent = tonumber(ARGV[5]), ARGV[1] .. ':', false
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
    if not fence or fence > tonumber(ARGV[3]) then return -2 end
  end
end
if absent then return 0 end
for i = 1, locks do
  -- PEXPIRE, not SET: a server that has reached maxmemory refuses SET and still allows PEXPIRE.
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
  local kept = redis.call('PTTL', KEYS[locks + i])
  if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[locks + i], ARGV[4]) end
end
return 1
