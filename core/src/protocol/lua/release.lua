-- Deletes the lock if it is still ours.
-- KEYS  lock, waiters if the caller asks how many wait    ARGV  token
-- Returns 1 + the number of those who were denied when deleted, 0 absent, -1 held by another.
-- By hand: redis-cli --eval release.lua NAME , TOKEN
local keys, token, redis = KEYS, ARGV[1], redis
local pcall = redis.pcall
local value = pcall('GET', keys[1])
if not value then return 0 end
if value ~= token then
  -- Only a refusal, which is a table, and an empty text have no length. To ask a text for its err costs more.
  local err = #value == 0 and value.err
  if err and not err:find('WRONGTYPE', 1, true) then return value end
  if err or value:find(token .. ':', 1, true) ~= 1 then return -1 end
end
redis.call('DEL', keys[1])
local waiting = keys[2] and pcall('GETDEL', keys[2])
if not waiting then return 1 end
waiting = type(waiting) == 'string' and string.match(waiting, '^%d+$') or 0
return 1 + math.min(tonumber(waiting), 100000)
