-- Deletes the lock if it is still ours.
-- KEYS  lock    ARGV  token
-- Returns 1 deleted, 0 absent, -1 held by another. By hand: redis-cli --eval release.lua NAME , TOKEN
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
if value ~= ARGV[1] and string.sub(value, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then return -1 end
return redis.call('DEL', KEYS[1])
