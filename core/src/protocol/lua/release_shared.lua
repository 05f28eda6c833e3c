-- Takes one of those who share a lock out, and deletes the lock behind the last of them.
-- KEYS  lock, waiters if the caller asks how many wait    ARGV  member
-- Returns 1 + the number of those who were denied when it was taken out, 0 absent, -1 held by another.
-- Runs behind period.lua.
if kind == 'none' then return 0 end
if not began then return -1 end
local now, ends = last - left, call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then return 0 end
-- When the last one of the others ends, if there is another one.
local top, rest, waiting = call('ZRANGE', KEYS[1], -3, -2, 'WITHSCORES'), nil, nil
for i = 1, #top, 2 do
  if top[i] ~= ARGV[1] and tonumber(top[i + 1]) > now then rest = tonumber(top[i + 1]) end
end
if rest then
  call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
  -- The key's time and the last score change together, or the key's clock would go wrong: this user may lack a right.
  call('PEXPIRE', KEYS[1], string.format('%.0f', rest - now))
  local refused = pcall('ZREM', KEYS[1], ARGV[1])
  if type(refused) == 'table' then
    call('PEXPIRE', KEYS[1], left)
    return refused
  end
  waiting = KEYS[2] and pcall('GETEX', KEYS[2])
else
  call('DEL', KEYS[1])
  waiting = KEYS[2] and pcall('GETDEL', KEYS[2])
end
waiting = type(waiting) == 'string' and string.match(waiting, '^%d+$') or 0
return 1 + math.min(tonumber(waiting), 100000)
