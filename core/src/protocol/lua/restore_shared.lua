-- Puts one of those who share a lock back on a node that has forgotten it, unless the node may know of a later owner.
-- KEYS  lock, fence    ARGV  member, ttl in ms, the holder's level, fence_ttl in ms, the holder's fence
-- Returns 1 when the node has it, 0 when it has another, or as a negative number the fence above the level with which the
-- sharing began, or that it remembers if nobody shares the lock.
-- Runs behind period.lua.
if kind ~= 'none' and not began then return 0 end
-- From there on a node grants nothing: no other one must remember that too.
local function ahead(fence) return fence < 9007199254740990 and -fence or 0 end
if began and began > tonumber(ARGV[3]) then return ahead(began) end
local floor = pcall('GET', KEYS[2])
if type(floor) == 'table' and not string.find(floor.err, 'WRONGTYPE', 1, true) then return floor end
-- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
local digits = type(floor) == 'string' and string.match(floor, '^%d+$') or (floor == false and '0')
if not digits then return redis.error_reply('FENCE the fence key is no number below 2^53') end
if tonumber(digits) <= tonumber(ARGV[3]) then
  local refused = pcall('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
  if type(refused) == 'table' and refused.err then return refused end
elseif began then
  local kept = call('PTTL', KEYS[2])
  if kept >= 0 and kept < tonumber(ARGV[4]) then call('PEXPIRE', KEYS[2], ARGV[4]) end
else
  return ahead(tonumber(digits))
end
if began then
  local now = last - left
  local ends = now + ARGV[2]
  call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
  -- The key's time and the last score change together, or the key's clock would go wrong: this user may lack a right.
  call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(last, ends) - now))
  local refused = pcall('ZADD', KEYS[1], 'GT', string.format('%.0f', ends), ARGV[1])
  if type(refused) == 'table' then
    call('PEXPIRE', KEYS[1], left)
    return refused
  end
  return 1
end
-- Nothing may stay without an end. This does nothing yet, but shows that the user may set one.
call('PEXPIRE', KEYS[1], ARGV[2])
local time = call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
call('ZADD', KEYS[1], 'inf', 'redlock:shared:' .. ARGV[5], string.format('%.0f', ends), ARGV[1])
call('PEXPIRE', KEYS[1], ARGV[2])
return 1
