-- Takes the lock on this node if it is free; with a ttl of 0 only looks.
-- KEYS  lock, fence, want if the caller will wait    ARGV  token, ttl in ms, fence_ttl in ms; then, as far as they are
-- needed: label, the proposed fence or '' for the node's clock, slack in us, the caller's place in line or 0, the hold in
-- which it was given that place, and anything if the count of the waiters is to be kept alive
-- Returns the fence granted, 0 for a look at a free lock, or when it is held {fence of our own value or '', ttl left in
-- ms, label or '', place in line or 0, hold: the fence of the value or 0}.
-- Every acquisition runs this, so it spares the server what costs: globals, printed numbers, numbers read from text,
-- strings that are only parts of others, and a look at the lock before NX.
local keys, argv, redis, refused = KEYS, ARGV, redis, 0
local call, pcall = redis.call, redis.pcall
-- Whoever says its place in line looks first: to read the fence key would have its connection told of changes there too.
local value = argv[7] and pcall('GET', keys[1])
if not value and argv[2] ~= '0' then
  local last, floor = pcall('GET', keys[2]), 0
  -- Of a refusal and a value, only the refusal has an err: cheaper to ask for than a type.
  if last then floor = not last.err and last:find('^%d+$') and last + 0 end
  -- From 2^53 on Lua cannot tell neighbouring numbers apart.
  if floor and floor < 9007199254740990 then
    local time, text, fence = call('TIME'), argv[5], nil
    if not text or text == '' then
      text = #time[2] == 6 and time[1] .. time[2]
      fence = text and text + 0 or time[1] * 1000000 + time[2]
    else
      local slack, now = argv[6] + 0, time[1] * 1000000
      fence = text + 0
      -- Mostly the seconds alone tell that a proposal is near enough.
      if fence - now > slack or now + 1000000 - fence > slack then
        now = now + time[2]
        if fence - now > slack then
          fence, text = now + slack, nil
        elseif now - fence > slack then
          fence, text = now - slack, nil
        end
      end
    end
    if fence <= floor then fence, text = floor + 1, nil end
    text = text or string.format('%.0f', fence)
    local label, ours = argv[4], nil
    if label and label ~= '' then
      ours = argv[1] .. ':' .. text .. ':' .. label
    else
      ours = argv[1] .. ':' .. text
    end
    refused = pcall('SET', keys[1], ours, 'NX', 'PX', argv[2])
    if refused and refused.ok then
      -- Not refused any more: who is full, a replica or fenced off has refused the first write, and rights to all keys
      -- were asked for before the script began.
      call('SET', keys[2], text, 'PX', argv[3])
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
local mine, label, hold = '', '', 0
if type(value) == 'string' then
  local token, fence, rest = value:match('^([0-9a-f]+):(%d+)(.*)$')
  local form = token and #token == 32 and (rest == '' or rest:sub(1, 1) == ':')
  if form and tonumber(fence) >= 1 and tonumber(fence) < 9007199254740992 then
    if token == argv[1] then mine = fence end
    hold = fence + 0
    label = rest:sub(2)
  end
elseif not value.err:find('WRONGTYPE', 1, true) then
  return value
end
local left, place = redis.call('PTTL', keys[1]), 0
if keys[3] and mine == '' then
  -- How many wait during this hold. A hint, so that nothing depends on its being written. Counted without being read: a
  -- read would have this connection told of every change. A waiter writes when it joins, and then to keep the count alive.
  local before = tonumber(argv[7]) or 0
  if before > 0 and tonumber(argv[8]) == hold and not (argv[9] and pcall('PEXPIRE', keys[3], 5000) == 0) then
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
