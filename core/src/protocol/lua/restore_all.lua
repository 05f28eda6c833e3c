-- Puts several held locks back on a node that has forgotten some of them, unless the node may know of a later owner of one.
-- KEYS  the locks, their fences    ARGV  token, ttl in ms, the holder's level, fence_ttl in ms, label, the number of locks,
-- the holder's fence
-- Returns 1 when the node has all locks, 0 when one is another's, or the most above the level that it remembers of those that
-- are gone, or has granted of the others, as a negative number; nothing changes then.
local locks, prefix, absent, most = tonumber(ARGV[6]), ARGV[1] .. ':', {}, 0
for i = 1, locks do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    return 0
  elseif value then
    local fence = string.sub(value, 1, #prefix) == prefix and tonumber(string.match(value, '^(%d+)', #prefix + 1))
    if not fence or fence >= 9007199254740992 then return 0 end
    most = math.max(most, fence)
  else
    local last = redis.pcall('GET', KEYS[locks + i])
    if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
    -- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
    local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
    if not digits then return redis.error_reply('FENCE the fence key is no number below 2^53') end
    most = math.max(most, tonumber(digits))
    absent[i] = true
  end
end
-- From there on a node grants nothing: no other one must remember that too.
if most > tonumber(ARGV[3]) then return most < 9007199254740990 and -most or 0 end
local stored = prefix .. ARGV[7]
if ARGV[5] ~= '' then stored = stored .. ':' .. ARGV[5] end
-- First what a server that is full refuses.
for i = 1, locks do
  if absent[i] then
    redis.call('SET', KEYS[locks + i], ARGV[3], 'PX', ARGV[4])
    redis.call('SET', KEYS[i], stored, 'NX', 'PX', ARGV[2])
  end
end
for i = 1, locks do
  if not absent[i] then
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
    local kept = redis.call('PTTL', KEYS[locks + i])
    if kept >= 0 and kept < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[locks + i], ARGV[4]) end
  end
end
return 1
