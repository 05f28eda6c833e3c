-- Takes the lock on this node together with those who share it; with a ttl of 0 only looks.
-- KEYS  lock, fence, waiters if the caller may use them    ARGV  member, proposed fence, slack in us or 0 for a fence by
-- the node's clock, ttl in ms, fence_ttl in ms, the caller's position or '' if it does not wait, the hold in which it was
-- given, 1 to keep the count of waiters alive, 1 to join although somebody waits for the lock alone
-- Returns the fence granted, 0 for a look at a lock that can be had, {'', ttl left in ms, label or '', position or 0, hold:
-- the fence of the value or 0} when another has it, or {ttl left in ms, the number of those who wait for it alone, the fence
-- with which this sharing began} when others share it and somebody waits for it alone. The caller is not counted then.
-- Runs behind period.lua.
if kind ~= 'none' and not began then
  local value, label, hold, place = kind == 'string' and call('GET', KEYS[1]), '', 0, 0
  if value then
    local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
    local form = token and #token == 32 and (rest == '' or string.sub(rest, 1, 1) == ':')
    if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then
      hold, label = tonumber(fence), string.sub(rest, 2)
    end
  end
  if KEYS[3] and ARGV[6] ~= '' then
    -- Counted as by acquire.lua.
    local before = tonumber(ARGV[6])
    if before > 0 and tonumber(ARGV[7]) == hold and not (ARGV[8] == '1' and pcall('PEXPIRE', KEYS[3], 5000) == 0) then
      place = before
    else
      local count = pcall('INCR', KEYS[3])
      if type(count) == 'number' then
        place = count
        pcall('PEXPIRE', KEYS[3], 5000)
      end
    end
  end
  return {'', left, label, place, hold}
end
if began and KEYS[3] and ARGV[9] ~= '1' then
  -- After a GET, a waiter's connection would be notified of each one who is counted.
  local count = pcall('GETEX', KEYS[3])
  if type(count) == 'table' then count = pcall('GET', KEYS[3]) end
  count = type(count) == 'string' and tonumber(string.match(count, '^%d+$')) or 0
  if count > 0 then return {left, math.min(count, 100000), began} end
end
if ARGV[4] == '0' then return 0 end
local floor = pcall('GET', KEYS[2])
if type(floor) == 'table' and not string.find(floor.err, 'WRONGTYPE', 1, true) then return floor end
-- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
local digits = type(floor) == 'string' and string.match(floor, '^%d+$') or (floor == false and '0')
-- From 2^53 on Lua cannot tell neighbouring numbers apart.
if not digits or tonumber(digits) >= 9007199254740990 then
  return redis.error_reply('FENCE the fence key is no number below 2^53')
end
local time = call('TIME')
local micros, slack, fence = time[1] * 1000000 + time[2], tonumber(ARGV[3]), tonumber(ARGV[2])
fence = math.max(math.min(math.max(fence, micros - slack), micros + slack), tonumber(digits) + 1)
local text = string.format('%.0f', fence)
-- First what a server refuses that is full, a replica or fenced off. A fence that nobody gets does no harm.
local refused = pcall('SET', KEYS[2], text, 'PX', ARGV[5])
if type(refused) == 'table' and refused.err then return refused end
if began then
  local now = last - left
  local ends = now + ARGV[4]
  call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
  -- The key's time and the last score change together, or the key's clock would go wrong: this user may lack a right.
  call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(last, ends) - now))
  refused = pcall('ZADD', KEYS[1], 'GT', string.format('%.0f', ends), ARGV[1])
  if type(refused) == 'table' then
    call('PEXPIRE', KEYS[1], left)
    return refused
  end
  return fence
end
-- Nothing may stay without an end. This does nothing yet, but shows that the user may set one.
call('PEXPIRE', KEYS[1], ARGV[4])
local ends = math.floor(micros / 1000) + ARGV[4]
call('ZADD', KEYS[1], 'inf', 'redlock:shared:' .. text, string.format('%.0f', ends), ARGV[1])
call('PEXPIRE', KEYS[1], ARGV[4])
-- Who is counted there has waited for somebody else.
if KEYS[3] then pcall('DEL', KEYS[3]) end
return fence
