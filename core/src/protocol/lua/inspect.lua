-- Tells what is under the lock key, without the token.
-- KEYS  lock
-- Returns {0} free, {1, ttl left in ms, fence, label} one of ours, {2, ttl left in ms} anything else.
local value = redis.pcall('GET', KEYS[1])
if not value then return {0} end
local left = redis.call('PTTL', KEYS[1])
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return {2, left} end
  return value
end
local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
local form = token and #token == 32 and (rest == '' or string.sub(rest, 1, 1) == ':')
if not form or tonumber(fence) < 1 or tonumber(fence) >= 9007199254740992 then return {2, left} end
return {1, left, fence, string.sub(rest, 2)}
