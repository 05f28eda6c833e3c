"""Shared locks of the driver with planted faults; see faulty.py."""

from __future__ import annotations

from typing import ClassVar

from conformance.drivers.faulty_locks import Client, Json, LockError, Restoring

# KEYS: the lock's key, its fence key. ARGV: the member, then what the script needs. A member ends at its score, on the
# clock by which the key lives as long as the last of them.
LOOK = """
local function text(number) return string.format("%.0f", number) end
local kind, left, period, last = redis.call("TYPE", KEYS[1]).ok, redis.call("PTTL", KEYS[1])
if kind == "zset" then
  local top = redis.call("ZRANGE", KEYS[1], -2, -1, "WITHSCORES")
  period = top[4] == "inf" and tonumber(string.match(top[3], "^redlock:shared:(%d+)$"))
  last = tonumber(top[2])
end
local now = period and last - left
local waiters = string.gsub(KEYS[2], "^redlock:fence:", "redlock:waiters:")
"""
DENY_IF_HELD = 'if kind ~= "none" and not period then return false end'
DENY_IF_WANTED = 'if period and redis.call("EXISTS", waiters) == 1 then return false end'
COUNT = """
local fence = redis.call("INCR", KEYS[2])
redis.call("PEXPIRE", KEYS[2], ARGV[4])
"""
BEGIN = """
if not period then
  local time = redis.call("TIME")
  now, last = time[1] * 1000 + math.floor(time[2] / 1000), 0
  redis.call("ZADD", KEYS[1], "inf", "redlock:shared:" .. text(fence))
  redis.call("DEL", waiters)
end
"""
LIVE_ON = 'redis.call("PEXPIRE", KEYS[1], text(math.max(last, ends) - now))'
RENEW = 'redis.call("ZADD", KEYS[1], "GT", text(ends), ARGV[1])'
RENEW_ALL = """
for _, member in ipairs(redis.call("ZRANGE", KEYS[1], 0, -2)) do
  redis.call("ZADD", KEYS[1], "GT", text(ends), member)
end
"""
JOIN = f"""
local ends = now + ARGV[2]
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", text(now))
{RENEW}
{LIVE_ON}
"""
OURS = """
if kind == "none" then return false end
if not period then return -1 end
local score = redis.call("ZSCORE", KEYS[1], ARGV[1])
if not score or tonumber(score) <= now then return false end
"""
LOST_IF_LATER = "if period > tonumber(ARGV[3]) then return -1 end"
RAISE_FENCE = """
if tonumber(redis.call("GET", KEYS[2])) < tonumber(ARGV[2]) then redis.call("SET", KEYS[2], ARGV[2], "PX", ARGV[3]) end
"""
GONE_IF_OLD = 'if not period and tonumber(redis.call("GET", KEYS[2]) or 0) > tonumber(ARGV[3]) then return 0 end'

ACQUIRE = f"{LOOK}{DENY_IF_HELD}\n{DENY_IF_WANTED}{COUNT}{BEGIN}{JOIN}return fence"
CONFIRM = f"{LOOK}{OURS}{RAISE_FENCE}return 1"
EXTEND = f"{LOOK}{OURS}{LOST_IF_LATER}{JOIN}" + 'redis.call("PEXPIRE", KEYS[2], ARGV[4])\nreturn 1'
RELEASE = f"""
{LOOK}
{OURS}
redis.call("ZREM", KEYS[1], ARGV[1])
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", text(now))
local rest = redis.call("ZRANGE", KEYS[1], -2, -2, "WITHSCORES")
if rest[1] then redis.call("PEXPIRE", KEYS[1], text(rest[2] - now)) else redis.call("DEL", KEYS[1]) end
return 1
"""
# ARGV: member, ttl, fence, ttl of fences, label.
RESTORE = f"""
{LOOK}
if kind ~= "none" and (not period or period > tonumber(ARGV[3])) then return 0 end
{GONE_IF_OLD}
local fence = ARGV[3]
{BEGIN}{JOIN}
return 1
"""


class Shared(Restoring):
    """A lock of one name that others can share."""

    scripts: ClassVar = "shared_"
    keeps_readers_out: ClassVar = False

    def __init__(self, client: Client, names: list[bytes], options: Json) -> None:
        super().__init__(client, names, options)
        self.keys = [self.rules.shared_key(key) for key in self.keys]
        self.line = b"readers of " + self.line
        self.at_least_s = 0
        self.is_renewed = self.is_renewed and self.rules.renews_readers
        if "at_least_ms" in options:
            raise LockError("invalid_argument", self.name, message="readers leave at once", option="at_least")

    @property
    def owner(self) -> str:
        """What stands for it on a node."""
        return f"{self.token}:{self.label}" if self.label else self.token

    def is_locked(self) -> bool:
        """Whether anybody holds it who does not share it."""
        return any(self.client.view(self.name, key)["state"] not in {"free", "shared"} for key in self.keys)

    def wait_lost(self, limit_s: float) -> Json:
        """Waits until the validity has ended."""
        answer = super().wait_lost(limit_s)
        return answer if self.rules.tells_readers else {**answer, "lost": None}
