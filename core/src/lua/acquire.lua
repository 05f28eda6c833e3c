-- Takes the lock on this node if it is free; with a ttl of 0 only looks.
-- KEYS  lock, fence, want if the caller will wait    ARGV  token, ttl in ms, proposed fence, slack in us, fence_keep in
-- ms, label, the caller's place in line or 0
-- Returns the fence granted, 0 for a look at a free lock, or {fence of our own value or '', ttl left in ms, label or '',
-- place in line or 0} when the lock is held.
local value = redis.pcall('GET', KEYS[1])
if value then
  local mine, label = '', ''
  if type(value) == 'string' then
    local token, fence, rest = string.match(value, '^([0-9a-f]+):(%d+)(.*)$')
    local form = token and #token == 32 and (rest == '' or string.sub(rest, 1, 1) == ':')
    if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then
      if token == ARGV[1] then mine = fence end
      label = string.sub(rest, 2)
    end
  elseif not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  local left, place = redis.call('PTTL', KEYS[1]), 0
  if KEYS[3] and mine == '' then
    -- How many have been denied during this hold. A hint, so that nothing depends on its being written. Counted without
    -- being read: a read would have this connection told of every change.
    local count, before = redis.pcall('INCR', KEYS[3]), tonumber(ARGV[7])
    if type(count) == 'number' then
      place = count
      if before > 0 and before < count then
        redis.pcall('DECR', KEYS[3])
        place = before
      end
      redis.pcall('PEXPIRE', KEYS[3], 5000)
    end
  end
  return {mine, left, label, place}
end
if ARGV[2] == '0' then return 0 end
local last, floor = redis.pcall('GET', KEYS[2]), 0
if last then
  -- From 2^53 on Lua cannot tell neighbouring numbers apart.
  floor = type(last) == 'string' and string.find(last, '^%d+$') and tonumber(last)
  if not floor or floor >= 9007199254740990 then
    if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
    return redis.error_reply('FENCE the fence key is no number below 2^53')
  end
end
local time = redis.call('TIME')
local now, slack, proposal = time[1] * 1000000 + time[2], tonumber(ARGV[4]), tonumber(ARGV[3])
local fence, text, label = proposal, ARGV[3], ARGV[6]
if fence < now - slack then fence = now - slack end
if fence > now + slack then fence = now + slack end
if fence <= floor then fence = floor + 1 end
-- To print a number costs as much as a command: where the digits are there already they are taken as they are.
if fence ~= proposal then
  text = fence == now and #time[2] == 6 and time[1] .. time[2] or string.format('%.0f', fence)
end
if label ~= '' then label = ':' .. label end
-- The fence first: should a write be refused, the fence has risen, which is harmless, and no lock is left behind.
redis.call('SET', KEYS[2], text, 'PX', ARGV[5])
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. text .. label, 'NX', 'PX', ARGV[2])
return fence
