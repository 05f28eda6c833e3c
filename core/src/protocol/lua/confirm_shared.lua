-- Writes an attempt's fence back, if the attempt still shares the lock on this node, as it was granted.
-- KEYS  lock, fence    ARGV  member, the fence granted, the fence, fence_ttl in ms
-- Returns 1 when the node now remembers the fence, 0 when the member is gone, or the sharing began after the grant.
-- Runs behind period.lua.
if not began or began > tonumber(ARGV[2]) then return 0 end
local ends = call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= last - left then return 0 end
local floor = pcall('GET', KEYS[2])
if type(floor) == 'table' and not string.find(floor.err, 'WRONGTYPE', 1, true) then return floor end
-- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
local digits = type(floor) == 'string' and string.match(floor, '^%d+$') or (floor == false and '0')
if not digits then return redis.error_reply('FENCE the fence key is no number below 2^53') end
if tonumber(digits) < tonumber(ARGV[3]) then call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4]) end
return 1
