-- Writes an attempt's fence back, if the node still holds exactly what it granted to this attempt.
-- KEYS  lock, fence    ARGV  the whole value granted, the fence, fence_keep in ms
-- Returns 1 when the node now remembers the fence, 0 when it holds anything else.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
if value ~= ARGV[1] then return 0 end
local last = redis.call('GET', KEYS[2])
if tonumber(last or '0') < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return 1
