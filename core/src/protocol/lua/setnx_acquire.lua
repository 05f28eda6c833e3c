-- Takes the lock in the older SETNX protocol, if it is free or its time is over.
-- KEYS  lock    ARGV  ttl in ms
-- Returns our expiry, the Unix second up to which the lock is ours, or {ms until it can be taken, negative where nobody
-- knows} when it is held.
local time = redis.call('TIME')
local now = tonumber(time[1])
local value = redis.pcall('GET', KEYS[1])
if value then
  local expiry
  if type(value) == 'string' then
    -- Some clients write a fraction too. It changes nothing: they and we compare whole seconds with it.
    expiry = tonumber(string.match(value, '^(%d+)$') or string.match(value, '^(%d+)%.%d+$'))
    if expiry and (expiry < 1000000000 or expiry > 100000000000) then expiry = nil end
  elseif not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  if not expiry or now <= expiry then
    local left = redis.call('PTTL', KEYS[1])
    if expiry then
      local over = (expiry + 1 - now) * 1000 - math.floor(time[2] / 1000)
      if left < 0 or over < left then left = over end
    end
    return {left}
  end
end
local own = now + math.ceil(ARGV[1] / 1000) + 1
-- Goes by itself at the moment from which others may take it, so that a crashed holder leaves nothing behind.
redis.call('SET', KEYS[1], string.format('%.0f', own), 'PXAT', string.format('%.0f', (own + 1) * 1000))
return own
