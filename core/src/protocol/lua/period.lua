-- Looks at a lock key for the scripts of shared locks, each of which begins with this text.
-- A shared lock is a sorted set of members with the ends of their times, in ms on the key's own clock, and of one with the
-- score inf that names the fence with which the sharing began. The key lives for as long as the last member.
-- Leaves to them: kind, left: the key's type, and what PTTL says; began: that fence, or nil if nobody shares the lock; last:
-- when the last member ends, if somebody does.
local call, pcall = redis.call, redis.pcall
local kind, left = call('TYPE', KEYS[1]).ok, call('PTTL', KEYS[1])
local began, last
if kind == 'zset' and left >= 0 then
  local top = call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
  local fence = top[4] == 'inf' and tonumber(string.match(top[3], '^redlock:shared:(%d+)$'))
  last = tonumber(top[2])
  if fence and fence >= 1 and fence < 9007199254740992 and last < math.huge and last > -math.huge then began = fence end
end
