-- The acquire of a lock with a fence, as one would first write it down: what this library's own is compared with.
-- KEYS  lock, fence    ARGV  token, ttl in ms, proposed fence, slack in us, fence_ttl in ms
-- Returns {1, fence}, or {0, ttl left in ms} when the lock is held.
if redis.call('GET', KEYS[1]) then return {0, redis.call('PTTL', KEYS[1])} end
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local f, s = tonumber(ARGV[3]), tonumber(ARGV[4])
if not last or last >= 9007199254740990 then return redis.error_reply('FENCE exhausted or not a number') end
if f > now + s then f = now + s elseif f < now - s then f = now - s end
if f <= last then f = last + 1 end
local text = string.format('%.0f', f)
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. text, 'NX', 'PX', ARGV[2])
redis.call('SET', KEYS[2], text, 'PX', ARGV[5])
return {1, f}
