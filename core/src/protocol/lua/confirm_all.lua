-- Writes an attempt's fence back for several locks, if the node still holds all of them exactly as it granted them.
-- KEYS  the locks, their fences    ARGV  the whole value granted, the fence, fence_ttl in ms, the number of locks
-- Returns 1 when the node now remembers the fence for all, 0 when it holds anything else.
local locks = tonumber(ARGV[4])
for i = 1, locks do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  if value ~= ARGV[1] then return 0 end
end
local behind = {}
for i = locks + 1, 2 * locks do
  local last = redis.pcall('GET', KEYS[i])
  if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
  -- Digits only: tonumber alone would also take '0x10', '1e300' and 'nan'.
  local digits = type(last) == 'string' and string.match(last, '^%d+$') or (last == false and '0')
  if not digits then return redis.error_reply('FENCE the fence key is no number below 2^53') end
  if tonumber(digits) < tonumber(ARGV[2]) then table.insert(behind, KEYS[i]) end
end
for _, key in ipairs(behind) do redis.call('SET', key, ARGV[2], 'PX', ARGV[3]) end
return 1
