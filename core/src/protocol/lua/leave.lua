-- Gives up a lock that is still ours: deletes it, or leaves it for the rest of its least time, in which nobody has it.
-- KEYS  lock, then waiters if the caller asks how many wait, then the bell of a slot    ARGV  token, the rest in ms or 0
-- Returns 1 + the number of those who were denied when deleted, 1 when left, 0 absent, -1 held by another.
local call, pcall, token, rest = redis.call, redis.pcall, ARGV[1], tonumber(ARGV[2])
-- What is left has the halves of its token exchanged: an extension that comes late finds a lock that is not the holder's.
local left = string.sub(token, 17) .. string.sub(token, 1, 16)
local value = pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -1 end
  return value
end
local owner, behind = string.sub(value, 1, 32), string.sub(value, 33)
if owner ~= token and owner ~= left or behind ~= '' and string.sub(behind, 1, 1) ~= ':' then return -1 end
local kept = call('PTTL', KEYS[1])
local waiting = 0
if rest > 0 then
  if kept < 0 or kept > rest then call('PEXPIRE', KEYS[1], rest) end
  -- A server that is full refuses it. An extension that comes late then keeps the lock for its ttl.
  if owner == token then pcall('SET', KEYS[1], left .. behind, 'KEEPTTL') end
  waiting = KEYS[3] and pcall('GET', KEYS[2])
else
  call('DEL', KEYS[1])
  waiting = KEYS[2] and pcall('GETDEL', KEYS[2])
end
waiting = type(waiting) == 'string' and string.match(waiting, '^%d+$') and math.min(tonumber(waiting), 100000) or 0
if KEYS[3] and waiting > 0 and type(pcall('INCR', KEYS[3])) == 'number' then
  -- No two rings are alike, even if the bell has expired between them: who was counted before one is counted anew.
  pcall('SET', KEYS[3], string.format('%.0f', tonumber(string.sub(token, 1, 13), 16)), 'PX', 60000)
end
if rest > 0 then return 1 end
return 1 + waiting
