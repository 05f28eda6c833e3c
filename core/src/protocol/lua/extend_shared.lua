-- Makes one of those who share a lock share it for longer, never shorter, and the fence live longer. Never creates a key.
-- KEYS  lock, fence unless a cluster moves it now    ARGV  member, ttl in ms, the holder's level, fence_ttl in ms, a larger
-- fence to remember if another node has granted one
-- Returns 1 extended, 2 extended and that fence remembered, 0 absent, -1 or the owner's label held by another, or with which
-- fence above the level the sharing began, as a negative number (must not count).
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
if began > tonumber(ARGV[3]) then return -began end
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
if not ARGV[5] or not KEYS[2] then return 1 end
-- The lock is extended whatever comes of this.
local floor = pcall('GET', KEYS[2])
local digits = type(floor) == 'string' and string.match(floor, '^%d+$') or (floor == false and '0')
if not digits then return 1 end
if tonumber(digits) < tonumber(ARGV[5]) and pcall('SET', KEYS[2], ARGV[5], 'PX', ARGV[4]).err then return 1 end
return 2
