-- Deletes the lock of the older SETNX protocol while its time is not over. What the value is does not matter: until then
-- only a client that has lost can have written another one.
-- KEYS  lock    ARGV  our own expiry, a Unix second
-- Returns 1 deleted, 0 absent, -1 not a string, -2 our time is over and nothing was done.
if tonumber(redis.call('TIME')[1]) >= tonumber(ARGV[1]) then return -2 end
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
return redis.call('DEL', KEYS[1])
