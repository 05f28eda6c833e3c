-- Puts a held lock back on a node that has forgotten it, unless the node may know of a later owner.
-- KEYS  lock, fence    ARGV  token, ttl in ms, the holder's level, fence_ttl in ms, label, the holder's fence
-- Returns 1 when the node has the lock, 0 when it has another, or the fence that it remembers above the level, as a
-- negative number.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
if value then return 0 end
local last = redis.pcall('GET', KEYS[2])
if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
-- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
if not digits then return redis.error_reply('FENCE the fence key is no number below 2^53') end
last = tonumber(digits)
-- From there on a node grants nothing: no other one must remember that too.
if last > tonumber(ARGV[3]) then return last < 9007199254740990 and -last or 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
local stored = ARGV[1] .. ':' .. ARGV[6]
if ARGV[5] ~= '' then stored = stored .. ':' .. ARGV[5] end
redis.call('SET', KEYS[1], stored, 'NX', 'PX', ARGV[2])
return 1
