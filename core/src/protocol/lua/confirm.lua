-- Writes an attempt's fence back, if the node still holds exactly what it granted to this attempt.
-- KEYS  lock, fence    ARGV  the whole value granted, the fence, fence_ttl in ms
-- Returns 1 when the node now remembers the fence, 0 when it holds anything else.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
if value ~= ARGV[1] then return 0 end
local last = redis.pcall('GET', KEYS[2])
if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
-- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
if not digits then return redis.error_reply('FENCE the fence key is no number below 2^53') end
if tonumber(digits) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return 1
