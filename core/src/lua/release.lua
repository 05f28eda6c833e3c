-- Deletes the lock if it is still ours.
-- KEYS  lock, want if the caller asks how many wait    ARGV  token
-- Returns 1 + the number of those who were denied when deleted, 0 absent, -1 held by another.
-- By hand: redis-cli --eval release.lua NAME , TOKEN
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
if value ~= ARGV[1] and string.find(value, ARGV[1] .. ':', 1, true) ~= 1 then return -1 end
redis.call('DEL', KEYS[1])
local waiting = KEYS[2] and redis.pcall('GETDEL', KEYS[2])
if not waiting then return 1 end
waiting = type(waiting) == 'string' and string.match(waiting, '^%d+$') or 0
return 1 + math.min(tonumber(waiting), 100000)
