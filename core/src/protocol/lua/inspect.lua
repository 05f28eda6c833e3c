-- Tells what is under the lock key, and how many wait. Of the token it shows the first half, which tells owners apart
-- and can do nothing to the lock.
-- KEYS  lock, waiters if the caller asks how many wait    ARGV  1 for an operator, who deletes just this value
-- Returns {0, waiting} free, {1, waiting, ttl left in ms, fence, label, half of the token} one of ours, {2, waiting,
-- ttl left in ms} anything else, {3, waiting, ttl left in ms, fence, owners, {labels of at most 16}} one that many share,
-- since that fence. Waiting is -1 if unknown. For an operator, a value that is a string comes last.
local value = redis.pcall('GET', KEYS[1])
local foreign = type(value) == 'table'
if foreign and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
local waiting = -1
if KEYS[2] then
  -- A connection that is notified of changed keys must not ask: it would be notified of each waiter.
  local count = redis.pcall('GET', KEYS[2])
  if not count then
    waiting = 0
  elseif type(count) == 'string' and string.find(count, '^%d+$') then
    waiting = math.min(tonumber(count), 100000)
  end
end
if not value then return {0, waiting} end
local left = redis.call('PTTL', KEYS[1])
if foreign then
  local kind = redis.pcall('TYPE', KEYS[1])
  -- The form of a shared lock is explained in period.lua.
  if kind.ok ~= 'zset' or left < 0 then return {2, waiting, left} end
  local top = redis.call('ZRANGE', KEYS[1], -17, -1, 'WITHSCORES')
  local fence = top[#top] == 'inf' and string.match(top[#top - 1], '^redlock:shared:(%d+)$')
  local last = tonumber(top[#top - 2])
  if not fence or tonumber(fence) < 1 or tonumber(fence) >= 9007199254740992 or not last or last == math.huge
    or last == -math.huge then
    return {2, waiting, left}
  end
  local owners = redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', last - left), 'inf') - 1
  local labels = {}
  for i = #top - 3, 1, -2 do
    local label = string.sub(top[i], 34)
    if tonumber(top[i + 1]) > last - left and label ~= '' then table.insert(labels, label) end
  end
  return {3, waiting, left, fence, owners, labels}
end
local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
local form = token and #token == 32 and (rest == '' or string.sub(rest, 1, 1) == ':')
local whole = ARGV[1] and value
if not form or tonumber(fence) < 1 or tonumber(fence) >= 9007199254740992 then return {2, waiting, left, whole} end
return {1, waiting, left, fence, string.sub(rest, 2), string.sub(token, 1, 16), whole}
