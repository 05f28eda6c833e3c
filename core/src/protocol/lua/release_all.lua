-- Deletes those of several locks that are still ours.
-- KEYS  the locks, then their waiters if the caller asks how many wait    ARGV  token, the number of locks
-- Returns 1 + the number of those who were denied if all were deleted; otherwise -1 if one is held by another, or 0.
local locks, prefix, ours, foreign = tonumber(ARGV[2]), ARGV[1] .. ':', {}, false
-- After a GET, a server remembers the reader until the key changes, and the key of a free lock may never change.
local read = 'GETEX'
for i = 1, locks do
  local value = redis.pcall(read, KEYS[i])
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) and read == 'GETEX' then
    -- It is refused, or not known.
    read = 'GET'
    value = redis.pcall(read, KEYS[i])
  end
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    foreign = true
  elseif value and (value == ARGV[1] or string.sub(value, 1, #prefix) == prefix) then
    table.insert(ours, i)
  elseif value then
    foreign = true
  end
end
local waiting = 0
for _, i in ipairs(ours) do
  redis.call('DEL', KEYS[i])
  local count = KEYS[locks + i] and redis.pcall('GETDEL', KEYS[locks + i])
  if type(count) == 'string' and string.match(count, '^%d+$') then
    waiting = math.min(waiting + tonumber(count), 100000)
  end
end
if #ours == locks then return 1 + waiting end
return foreign and -1 or 0
