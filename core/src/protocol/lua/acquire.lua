-- Takes the lock on this node if it is free; with a ttl of 0 only looks.
-- KEYS  lock, fence, waiters if the caller will wait    ARGV  the whole value with the proposed fence, or the token for a
-- fence by the node's clock; then the label in the latter case, ttl in ms, fence_ttl in ms, the caller's position or 0,
-- the hold in which it was given, 1 to keep the count of waiters alive, slack in us
-- All but the first may be '', or left out from the end: no label, a ttl of 10 s, a fence_ttl of 1 h, no position, a slack
-- of 60 s.
-- Returns the fence granted, 0 for a look at a free lock, or when it is held {fence of our own value or '', ttl left in
-- ms, label or '', position or 0, hold: the fence of the value or 0}.
-- Every acquisition runs this, so it spares the server what costs: arguments, globals, printed numbers, numbers read from
-- text, fields of strings, and a look at the lock before NX.
local keys, argv, redis, refused = KEYS, ARGV, redis, 0
local call, pcall = redis.call, redis.pcall
local ours, ttl, position, value = argv[1], argv[3], argv[5], nil
if not ttl or ttl == '' then ttl = '10000' end
-- A caller with a position looks first: to read the fence key would have its connection notified of changes there too.
if position and position ~= '' then value = pcall('GET', keys[1]) end
if not value and ttl ~= '0' then
  local last, floor = pcall('GET', keys[2]), 0
  -- Only a refusal, which is a table, and an empty text have no length.
  if last then floor = #last > 0 and last:find('^%d+$') and last + 0 end
  -- From 2^53 on Lua cannot tell neighbouring numbers apart.
  if floor and floor < 9007199254740990 then
    local time, text, fence = call('TIME'), nil, nil
    if #ours == 32 then
      -- Dragonfly's TIME gives numbers.
      text = time[2] .. ''
      if #text < 6 then text = ('00000' .. text):sub(-6) end
      text = time[1] .. text
      fence = text + 0
      if fence <= floor then
        fence = floor + 1
        text = string.format('%.0f', fence)
      end
      local label = argv[2]
      if label and label ~= '' then
        ours = ours .. ':' .. text .. ':' .. label
      else
        ours = ours .. ':' .. text
      end
    else
      text = ours:match('^%d+', 34)
      local proposal, rest = text + 0, 34 + #text
      fence = proposal
      -- A proposal in this very second is near enough, as most are.
      if argv[8] or #text ~= 16 or text:sub(1, 10) ~= time[1] then
        local slack, now = (argv[8] or 60000000) + 0, time[1] * 1000000 + time[2]
        if fence - now > slack then
          fence = now + slack
        elseif now - fence > slack then
          fence = now - slack
        end
      end
      if fence <= floor then fence = floor + 1 end
      if fence ~= proposal then
        text = string.format('%.0f', fence)
        ours = ours:sub(1, 33) .. text .. ours:sub(rest)
      end
    end
    refused = pcall('SET', keys[1], ours, 'NX', 'PX', ttl)
    if refused and refused.ok then
      local fence_ttl = argv[4]
      if not fence_ttl or fence_ttl == '' then fence_ttl = '3600000' end
      -- Not refused any more: a server that is full, a replica or fenced off has refused the first write, and rights to
      -- all keys were checked before the script began.
      call('SET', keys[2], text, 'PX', fence_ttl)
      return fence
    end
  elseif last.err and not last.err:find('WRONGTYPE', 1, true) then
    refused = last
  else
    refused = redis.error_reply('FENCE the fence key is no number below 2^53')
  end
end
value = value or pcall('GET', keys[1])
if not value then return refused end
local err = #value == 0 and value.err
if err and not err:find('WRONGTYPE', 1, true) then return value end
local mine, label, hold = '', '', 0
if not err then
  local token, fence, rest = value:match('^([0-9a-f]+):(%d+)(.*)$')
  if token and #token == 32 and (rest == '' or rest:byte() == 58) then
    local number = fence + 0
    if number >= 1 and number < 9007199254740992 then
      if token == argv[1]:sub(1, 32) then mine = fence end
      hold, label = number, rest:sub(2)
    end
  end
end
local left, place = call('PTTL', keys[1]), 0
if keys[3] and mine == '' then
  -- How many wait during this hold. A hint, so that nothing depends on its being written. Counted without being read: a
  -- read would have this connection notified of every change. A waiter writes when it joins, and then to keep the count
  -- alive.
  local before = tonumber(position) or 0
  if before > 0 and tonumber(argv[6]) == hold and not (argv[7] == '1' and pcall('PEXPIRE', keys[3], 5000) == 0) then
    place = before
  else
    local count = pcall('INCR', keys[3])
    if type(count) == 'number' then
      place = count
      pcall('PEXPIRE', keys[3], 5000)
    end
  end
end
return {mine, left, label, place, hold}
