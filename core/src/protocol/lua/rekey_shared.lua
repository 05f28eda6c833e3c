-- Gives one of those who share a lock another token, and lets it share the lock for longer, never shorter, and the fence live
-- longer. Never creates a key.
-- KEYS  lock, fence    ARGV  the fresh member, ttl in ms, the holder's level, fence_ttl in ms, the former member
-- Returns 1 when the fresh member has it, 2 when the former one has not had it, 0 absent, -1 or the owner's label held by
-- another, or with which fence above the level the sharing began, as a negative number: the fresh member has it too, but
-- must not count.
-- Runs behind period.lua.
if kind == 'none' then return 0 end
if not began then
  local value = kind == 'string' and call('GET', KEYS[1])
  local token, fence, rest = string.match(value or '', '^([0-9a-f]+):(%d+)(.*)$')
  local form = token and #token == 32 and string.sub(rest, 1, 1) == ':'
  if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then return string.sub(rest, 2) end
  return -1
end
local now = last - left
local formers = tonumber(call('ZSCORE', KEYS[1], ARGV[5]) or now)
local had = math.max(tonumber(call('ZSCORE', KEYS[1], ARGV[1]) or now), formers)
if had <= now then return 0 end
local ends = math.max(had, now + ARGV[2])
-- In this order also a server that has reached maxmemory does it: it refuses ZADD, but not behind another write.
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
-- The key's time and the last score change together, or the key's clock would go wrong: this user may lack a right.
call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(last, ends) - now))
local refused = pcall('ZADD', KEYS[1], string.format('%.0f', ends), ARGV[1])
if type(refused) == 'table' then
  call('PEXPIRE', KEYS[1], left)
  return refused
end
if ARGV[5] ~= ARGV[1] then call('ZREM', KEYS[1], ARGV[5]) end
local kept = call('PTTL', KEYS[2])
if kept >= 0 and kept < tonumber(ARGV[4]) then call('PEXPIRE', KEYS[2], ARGV[4]) end
if began > tonumber(ARGV[3]) then return -began end
return formers > now and 1 or 2
