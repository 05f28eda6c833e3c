-- Ends the count of one who waited for a lock that others share, and gives up: nobody joins them while somebody is counted.
-- KEYS  lock, waiters
-- Returns 1 + the number of those who still wait, 0 if nobody is counted or the lock is not shared.
-- Runs behind unshared.lua and period.lua.
if not began then return 0 end
local count = pcall('GETEX', KEYS[2])
if type(count) == 'table' then count = pcall('GET', KEYS[2]) end
local waiting = type(count) == 'string' and tonumber(string.match(count, '^%d+$')) or 0
if waiting < 1 then return 0 end
waiting = math.min(waiting, 100000) - 1
if waiting > 0 then
  call('SET', KEYS[2], string.format('%.0f', waiting), 'KEEPTTL')
else
  call('DEL', KEYS[2])
  -- Who was held off is notified of a change of the lock.
  call('PEXPIRE', KEYS[1], left)
end
return 1 + waiting
