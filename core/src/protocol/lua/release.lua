-- Deletes the lock if it is still ours.
-- KEYS  lock, want if the caller asks how many wait    ARGV  token
-- Returns 1 + the number of those who were denied when deleted, 0 absent, -1 held by another.
-- By hand: redis-cli --eval release.lua NAME , TOKEN
local keys, token, redis = KEYS, ARGV[1], redis
local pcall = redis.pcall
local value = pcall('GET', keys[1])
if not value then return 0 end
-- Only a refusal has one.
if value.err then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
if value ~= token and value:sub(1, #token + 1) ~= token .. ':' then return -1 end
redis.call('DEL', keys[1])
local waiting = keys[2] and pcall('GETDEL', keys[2])
if not waiting then return 1 end
waiting = type(waiting) == 'string' and string.match(waiting, '^%d+$') or 0
return 1 + math.min(tonumber(waiting), 100000)
