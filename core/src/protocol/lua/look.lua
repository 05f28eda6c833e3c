-- Tells which slots of a semaphore are free, and counts the caller if none is, or if it says so. Takes nothing.
-- KEYS  the slots' locks, then their waiters and their bell if the caller may use them    ARGV  the number of slots, 1 if the
-- caller waits if none is free and 2 if it waits anyway, its position or 0, the ring of the bell when it was given, 1 to
-- keep the count of waiters alive
-- Returns {1 for each free slot and 0 for each other one, the least ttl left in ms or -1, position or 0, the last ring of
-- the bell or 0}.
local pcall = redis.pcall
local slots, free, least = tonumber(ARGV[1]), {}, -1
local is_full = true
for i = 1, slots do
  local left = redis.call('PTTL', KEYS[i])
  free[i] = left == -2 and '1' or '0'
  if left == -2 then is_full = false end
  if left >= 0 and (least < 0 or left < least) then least = left end
end
local ring, place, waiters = 0, 0, KEYS[slots + 1]
local waits = waiters and ARGV[2] ~= '0'
-- A waiter reads the bell next. Servers remember who is to be told of a key until it changes: a bell that nobody rings
-- expires.
if waits and KEYS[slots + 2] then pcall('SET', KEYS[slots + 2], '0', 'NX', 'PX', 60000) end
local bell = KEYS[slots + 2] and pcall('GET', KEYS[slots + 2])
if type(bell) == 'string' and string.match(bell, '^%d+$') then ring = math.min(tonumber(bell), 9007199254740991) end
if waits and (is_full or ARGV[2] == '2') then
  -- Counted as by acquire.lua. The bell rings when a count ends.
  local before = tonumber(ARGV[3])
  if before > 0 and tonumber(ARGV[4]) == ring and not (ARGV[5] == '1' and pcall('PEXPIRE', waiters, 5000) == 0) then
    place = before
  else
    local count = pcall('INCR', waiters)
    if type(count) == 'number' then
      place = count
      pcall('PEXPIRE', waiters, 5000)
    end
  end
end
return {table.concat(free), least, place, ring}
