-- Makes one of those who share a lock share it for longer, never shorter, and the fence live longer. Never creates a key.
-- KEYS  lock, fence unless a cluster moves it now    ARGV  member, ttl in ms, the holder's fence, fence_ttl in ms
-- Returns 1 extended, 0 absent, -1 or the owner's label held by another, -2 shared since a later fence (must not count).
-- Runs behind period.lua.
if kind == 'none' then return 0 end
if not began then
  local value = kind == 'string' and call('GET', KEYS[1])
  local token, fence, rest = string.match(value or '', '^([0-9a-f]+):(%d+)(.*)$')
  local form = token and #token == 32 and string.sub(rest, 1, 1) == ':'
  if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then return string.sub(rest, 2) end
  return -1
end
local now, score = last - left, call('ZSCORE', KEYS[1], ARGV[1])
if not score or tonumber(score) <= now then return 0 end
if began > tonumber(ARGV[3]) then return -2 end
local ends = now + ARGV[2]
-- In this order also a server that has reached maxmemory does it: it refuses ZADD, but not behind another write.
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
-- The key's time and the last score change together, or the key's clock would go wrong: this user may lack a right.
call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(last, ends) - now))
local refused = pcall('ZADD', KEYS[1], 'XX', 'GT', string.format('%.0f', ends), ARGV[1])
if type(refused) == 'table' then
  call('PEXPIRE', KEYS[1], left)
  return refused
end
local kept = KEYS[2] and call('PTTL', KEYS[2]) or -1
if kept >= 0 and kept < tonumber(ARGV[4]) then call('PEXPIRE', KEYS[2], ARGV[4]) end
return 1
