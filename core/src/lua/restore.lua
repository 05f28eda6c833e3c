-- Puts a held lock back on a node that has forgotten it, unless the node knows of a later owner.
-- KEYS  lock, fence    ARGV  token, ttl in ms, the holder's fence, fence_keep in ms, label
-- Returns 1 when the node has the lock, 0 when it has another or knows a larger fence.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
if value then return 0 end
local last = redis.call('GET', KEYS[2])
if tonumber(last or '0') > tonumber(ARGV[3]) then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
local stored = ARGV[1] .. ':' .. ARGV[3]
if ARGV[5] ~= '' then stored = stored .. ':' .. ARGV[5] end
redis.call('SET', KEYS[1], stored, 'NX', 'PX', ARGV[2])
return 1
