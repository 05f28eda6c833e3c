-- Takes several locks on this node if all of them are free, with one fence; with a ttl of 0 only looks.
-- KEYS  the locks, their fences, then their waiters if the caller will wait    ARGV  token, proposed fence, slack in us or
-- 0 for a fence by the node's clock, ttl in ms, fence_ttl in ms, label, the number of locks, the caller's position, the
-- hold in which it was given, 1 to keep the count of waiters alive
-- Returns the fence granted, 0 for a look at free locks, or of the first lock that is held {fence of our own value or '',
-- ttl left in ms, label or '', position or 0, hold: the fence of the value or 0}.
local call, pcall = redis.call, redis.pcall
local locks = tonumber(ARGV[7])
-- Who waits is told of the next change of what it reads with GET, and would never be told of a lock that stays free. Of the
-- one that is held, PTTL has it told.
local read = KEYS[2 * locks + 1] and 'GETEX' or 'GET'
for i = 1, locks do
  local value = pcall(read, KEYS[i])
  if value then
    local foreign = type(value) == 'table'
    if foreign and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    local mine, label, hold = '', '', 0
    if not foreign then
      local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
      local form = token and #token == 32 and (rest == '' or string.sub(rest, 1, 1) == ':')
      if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then
        if token == ARGV[1] then mine = fence end
        hold, label = tonumber(fence), string.sub(rest, 2)
      end
    end
    local left, place, waiters = call('PTTL', KEYS[i]), 0, KEYS[2 * locks + i]
    -- Nobody joins those who share a lock while somebody is counted there: only if nothing else is in the way.
    for j = i + 1, waiters and foreign and locks or 0 do
      if pcall(read, KEYS[j]) then waiters = nil end
    end
    if waiters and mine == '' then
      -- Counted as by acquire.lua, for the lock that is in the way.
      local before = tonumber(ARGV[8])
      if before > 0 and tonumber(ARGV[9]) == hold and not (ARGV[10] == '1' and pcall('PEXPIRE', waiters, 5000) == 0) then
        place = before
      else
        local count = pcall('INCR', waiters)
        if type(count) == 'number' then
          place = count
          pcall('PEXPIRE', waiters, 5000)
        end
      end
    end
    return {mine, left, label, place, hold}
  end
end
if ARGV[4] == '0' then return 0 end
local floor = 0
for i = locks + 1, 2 * locks do
  local last = pcall('GET', KEYS[i])
  if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
  -- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
  local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
  -- From 2^53 on Lua cannot tell neighbouring numbers apart.
  if not digits or tonumber(digits) >= 9007199254740990 then
    return redis.error_reply('FENCE the fence key is no number below 2^53')
  end
  floor = math.max(floor, tonumber(digits))
end
local time = call('TIME')
local now, slack, fence = time[1] * 1000000 + time[2], tonumber(ARGV[3]), tonumber(ARGV[2])
fence = math.max(math.min(math.max(fence, now - slack), now + slack), floor + 1)
local text = string.format('%.0f', fence)
local value = ARGV[1] .. ':' .. text
if ARGV[6] ~= '' then value = value .. ':' .. ARGV[6] end
-- A server that is full, a replica or fenced off refuses the first write, and rights to all keys were checked before the
-- script began: all are written, or none.
for i = 1, locks do
  local refused = pcall('SET', KEYS[i], value, 'NX', 'PX', ARGV[4])
  if type(refused) == 'table' and refused.err then return refused end
end
for i = locks + 1, 2 * locks do call('SET', KEYS[i], text, 'PX', ARGV[5]) end
return fence
