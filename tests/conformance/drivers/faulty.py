"""A driver with one planted fault, which the suite must find. Without a fault it passes the same test cases.

It has its own locks, in both protocols and of every shape, instead of Python's; see test_suite_bites.py. They are in
faulty_locks.py, faulty_readers.py, faulty_shapes.py and faulty_hand_over.py. A fault is a row of `FAULTS`. The defaults
of `Rules` are right, and the row says what is different.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.drivers import faulty_hand_over as hand_over
from conformance.drivers import faulty_readers as readers
from conformance.drivers.faulty_locks import POLL_S, Client, Json, Lock, LockError, SetnxLock, seconds
from conformance.drivers.faulty_shapes import Election, Slot, several, view_of_slots
from support.clock import now_ns
from support.servers import Reply

# KEYS: the lock's key, its fence key. ARGV: the token, then what the script needs.
ACQUIRE = """
if redis.call("EXISTS", KEYS[1]) == 1 then return false end
local fence = redis.call("INCR", KEYS[2])
redis.call("PEXPIRE", KEYS[2], ARGV[4])
redis.call("SET", KEYS[1], ARGV[1] .. ":" .. redis.call("GET", KEYS[2]) .. ":" .. ARGV[3], "PX", ARGV[2])
return fence
"""
OURS = """
local value = redis.call("GET", KEYS[1])
if not value then return false end
local begin = ARGV[1] .. ":"
if string.sub(value, 1, #begin) ~= begin then return -1 end
"""
RAISE_FENCE = """
if tonumber(redis.call("GET", KEYS[2])) < tonumber(ARGV[2]) then redis.call("SET", KEYS[2], ARGV[2], "PX", ARGV[3]) end
return 1
"""
CONFIRM = OURS + RAISE_FENCE
OURS_UP_TO_FENCE = (
    OURS + 'if tonumber(string.match(value, "^%d+", #begin + 1)) > tonumber(ARGV[3]) then return false end'
)
KEEP_FENCE = 'redis.call("PEXPIRE", KEYS[2], ARGV[4])'
LIVE_ON = 'return redis.call("PEXPIRE", KEYS[1], ARGV[2])'
EXTEND = f"{OURS_UP_TO_FENCE}\n{KEEP_FENCE}\n{LIVE_ON}"
RELEASE = OURS + 'return redis.call("DEL", KEYS[1])'
PEXPIRE_REST = 'redis.call("PEXPIRE", KEYS[1], ARGV[2])'
# What is left has another value, so that no extension finds it.
LEAVE = f"""{OURS}
if redis.call("PTTL", KEYS[1]) > tonumber(ARGV[2]) then {PEXPIRE_REST} end
redis.call("SET", KEYS[1], "left:" .. value, "KEEPTTL")
return 1
"""
RECREATE = """
if redis.call("EXISTS", KEYS[1]) == 0 then redis.call("SET", KEYS[1], ARGV[1] .. ":" .. ARGV[3] .. ":") end
"""
# KEYS: the key of each lock, then the fence key of each.
ALL_ACQUIRE = """
local n, fence = #KEYS / 2, 0
for i = 1, n do
  if redis.call("EXISTS", KEYS[i]) == 1 then return false end
end
for i = 1, n do fence = math.max(fence, tonumber(redis.call("GET", KEYS[n + i]) or 0) + 1) end
local text = string.format("%.0f", fence)
for i = 1, n do
  redis.call("SET", KEYS[n + i], text, "PX", ARGV[4])
  redis.call("SET", KEYS[i], ARGV[1] .. ":" .. text .. ":" .. ARGV[3], "PX", ARGV[2])
end
return fence
"""
TAKE_FREE = """
local fence, took = redis.call("INCR", KEYS[#KEYS / 2 + 1]), false
for i = 1, #KEYS / 2 do
  took = redis.call("SET", KEYS[i], ARGV[1] .. ":1:" .. ARGV[3], "PX", ARGV[2], "NX") or took
end
return took and fence
"""
ALL_OURS = """
local n, begin, ours, foreign = #KEYS / 2, ARGV[1] .. ":", {}, false
for i = 1, n do
  local value = redis.pcall("GET", KEYS[i])
  if type(value) == "table" then foreign = true
  elseif value and string.sub(value, 1, #begin) == begin then ours[#ours + 1] = i
  elseif value then foreign = true end
end
"""
ALL_OR_NONE = ALL_OURS + "if foreign then return -1 end if #ours < n then return false end"
ALL_CONFIRM = (
    ALL_OR_NONE
    + """
for i = n + 1, 2 * n do
  local known = tonumber(redis.call("GET", KEYS[i]))
  if known < tonumber(ARGV[2]) then redis.call("SET", KEYS[i], ARGV[2], "PX", ARGV[3]) end
end
return 1
"""
)
ALL_LIVE_ON = """
for _, i in ipairs(ours) do
  redis.call("PEXPIRE", KEYS[n + i], ARGV[4])
  redis.call("PEXPIRE", KEYS[i], ARGV[2])
end
return 1
"""
ALL_EXTEND = ALL_OR_NONE + ALL_LIVE_ON
ALL_RELEASE = (
    ALL_OURS
    + """
for _, i in ipairs(ours) do redis.call("DEL", KEYS[i]) end
return foreign and -1 or #ours == n and 1 or false
"""
)
# ARGV: token, ttl, fence, ttl of fences, label.
ALL_RESTORE = """
local n = #KEYS / 2
local value = ARGV[1] .. ":" .. ARGV[3] .. ":" .. ARGV[5]
for i = 1, n do
  local fence = tonumber(redis.call("GET", KEYS[n + i]) or 0)
  local there = redis.pcall("GET", KEYS[i])
  if there and there ~= value or not there and fence > tonumber(ARGV[3]) then return 0 end
end
for i = 1, n do redis.call("SET", KEYS[i], value, "PX", ARGV[2]) end
return 1
"""
SETNX_ACQUIRE = """
local now, value = tonumber(redis.call("TIME")[1]), redis.pcall("GET", KEYS[1])
if value then
  local text = type(value) == "string" and value or ""
  local ends = tonumber(string.match(text, "^(%d+)$") or string.match(text, "^(%d+)%.%d+$"))
  if not ends or ends < 1e9 or ends > 1e11 or now <= ends then return false end
end
local own = now + math.ceil(ARGV[2] / 1000) + 1
redis.call("SET", KEYS[1], string.format("%.0f", own), "EXAT", own + 1)
return own
"""
SETNX_RELEASE = """
if tonumber(redis.call("TIME")[1]) >= tonumber(ARGV[2]) then return -1 end
return redis.call("DEL", KEYS[1])
"""

LOSSES_BY_TIME = frozenset({"expired", "unreachable", "max_hold"})


@dataclass(frozen=True)
class Rules:
    """The right behaviour, in each part that a fault changes."""

    acquire: str = ACQUIRE
    confirm: str = CONFIRM
    extend: str = EXTEND
    release: str = RELEASE
    leave: str = LEAVE
    clean_up: str = RELEASE
    release_lost: str = RELEASE
    all_acquire: str = ALL_ACQUIRE
    all_confirm: str = ALL_CONFIRM
    all_extend: str = ALL_EXTEND
    all_release: str = ALL_RELEASE
    all_leave: str = LEAVE
    all_clean_up: str = ALL_RELEASE
    all_release_lost: str = ALL_RELEASE
    all_restore: str = ALL_RESTORE
    shared_acquire: str = readers.ACQUIRE
    shared_confirm: str = readers.CONFIRM
    shared_extend: str = readers.EXTEND
    shared_release: str = readers.RELEASE
    shared_clean_up: str = readers.RELEASE
    shared_release_lost: str = readers.RELEASE
    shared_restore: str = readers.RESTORE
    setnx_acquire: str = SETNX_ACQUIRE
    setnx_release: str = SETNX_RELEASE
    key: Callable[[bytes], bytes] = lambda name: name
    token: Callable[[str], str] = lambda _: secrets.token_hex(16)
    fence: Callable[[int], int] = lambda fence: fence
    drift: Callable[[float], float] = lambda ttl_s: ttl_s / 100 + 0.002
    shown: Callable[[str], str] = lambda url: url.partition("?")[0]
    label: Callable[[str], str] = lambda value: value.split(":", 2)[2]
    least_fence: Callable[[list[int], int], int] = lambda fences, late: sorted(fences)[len(fences) - late - 1]
    kept: Callable[[float, float], float] = max
    log: Callable[[str], object] = lambda _: None
    quorum: Callable[[int], int] = lambda n: n // 2 + 1
    enough: Callable[[int], int] = lambda n: n // 2 + 1
    over_at_end: bool = True
    over_at_limit: bool = True
    told: bool = True
    cleans_up: bool = True
    cleans_up_silent: bool = True
    release_follows: bool = True
    released: Callable[[Reply], bool] = lambda reply: reply == 1
    late_s: float = 0
    poll_s: float = POLL_S
    passes_on: bool = True
    release_s: float = 0
    valid_margin: Callable[[float], float] = lambda margin_s: margin_s
    margin_after: frozenset[str] = LOSSES_BY_TIME
    releases_lost: bool = True
    release_waits: bool = False
    least_rest_s: Callable[[float, float], float] = lambda least_s, held_s: least_s - held_s
    held_while_left: bool = False
    one_holder: bool = True
    down_is_busy: bool = False
    silence_is_loss: bool = False
    first_answer: bool = False
    wins_late: bool = False
    extends_late: bool = False
    restores_late: bool = False
    keeps_cancelled: bool = False
    clears_expired: bool = False
    keeps_late_grants: bool = False
    repeats_release: bool = False
    hoards: bool = False
    restores: bool = True
    watches: bool = True
    shared_key: Callable[[bytes], bytes] = lambda key: key
    keeps_readers_out: bool = True
    lets_readers_in: bool = True
    waiters_ms: int = 5000
    renews_readers: bool = True
    tells_readers: bool = True
    spare_permits: int = 0
    slot_quorum: Callable[[int], int] = lambda n: n // 2 + 1
    looks: bool = True
    stubborn_s: float = 0
    campaign_s: float | None = None
    stop_s: float = 0
    rekey: str = hand_over.REKEY
    attached_token: Callable[[str, str], str] = lambda _, fresh: fresh
    keys_back: bool = True


FAULTS = {
    "none": Rules(),
    # Release deletes the key, whoever owns it.
    "blind-release": Rules(release='return redis.call("DEL", KEYS[1])'),
    # Release deletes the key of a token that begins with its own.
    "prefix-release": Rules(release=RELEASE.replace(' .. ":"', "")),
    # A lock counts as held until it is released, whatever its ttl.
    "held-for-ever": Rules(over_at_end=False),
    # A lock counts as held for its whole ttl, though clocks differ.
    "no-drift": Rules(drift=lambda _: 0),
    # A fence is smaller than the one before.
    "falling-fence": Rules(fence=lambda fence: (1 << 50) - fence),
    # The largest granted fence is taken, and the other nodes are not notified of it.
    "unconfirmed-fence": Rules(confirm="return 1"),
    # An acquire overwrites the key of a holder.
    "two-holders": Rules(acquire=ACQUIRE.replace("return false end", "end")),
    # A loss is not reported.
    "never-told": Rules(told=False),
    # An attempt that was lost leaves its key on the minority.
    "no-clean-up": Rules(cleans_up=False),
    # A round waits for every node, as long as node_timeout allows.
    "waits-for-all": Rules(enough=lambda n: n + 1),
    # An extension creates a key that was deleted.
    "recreating-extend": Rules(extend=RECREATE + EXTEND),
    # An acquire ends long after its timeout.
    "late-timeout": Rules(late_s=1.5),
    # One lock object is acquired while it is held.
    "acquired-twice": Rules(one_holder=False),
    # A name that is not UTF-8 is replaced by one that is.
    "mangled-name": Rules(key=lambda name: name.decode(errors="replace").encode()),
    # The address in an error is shown with its password.
    "told-password": Rules(shown=lambda url: url),
    # Inspection shows the whole value of a holder, with its token.
    "told-token": Rules(label=lambda value: value),
    # Inspection shows the largest fence of the holder's token, also one that was granted too late to count.
    "late-fence": Rules(least_fence=lambda fences, _: max(fences)),
    # The token of every attempt is logged.
    "logged-token": Rules(log=lambda token: print(f"attempt {token}", file=sys.stderr, flush=True)),
    # Half of the nodes are a quorum.
    "half-quorum": Rules(quorum=lambda n: (n + 1) // 2),
    # The next attempt uses the token of the one before.
    "same-token": Rules(token=lambda last: last or secrets.token_hex(16)),
    # A node that did not answer in time is not cleaned up, and may grant later.
    "blocked-retry": Rules(cleans_up_silent=False),
    # A key that an unanswered acquire may create is released over another connection, once, and perhaps too early.
    "overtaking-release": Rules(release_follows=False, released=lambda _: True),
    # A key that an unanswered acquire may create is not released again after a node has answered that there is none.
    "single-release": Rules(released=lambda _: True),
    # An acquire counts as won although its validity has ended when the last answer comes.
    "late-win": Rules(wins_late=True),
    # A node confirms a fence although its key belongs to another owner by now.
    "blind-confirm": Rules(confirm=RAISE_FENCE),
    # An acquire that was cancelled during its attempt keeps the lock.
    "kept-cancelled": Rules(keeps_cancelled=True),
    # Nodes that are down count as others that hold the lock.
    "down-is-busy": Rules(down_is_busy=True),
    # An extension counts keys of its token, whenever they were granted.
    "unfenced-extend": Rules(extend=f"{OURS}\n{KEEP_FENCE}\n{LIVE_ON}"),
    # A lock is lost when an extension has no answer.
    "lost-by-silence": Rules(silence_is_loss=True),
    # Only the first node's answer to an extension counts.
    "first-answer": Rules(first_answer=True),
    # An extension after the end acquires the lock again.
    "reviving-extend": Rules(extends_late=True, extend=RECREATE + EXTEND),
    # After the release, an extension restores a key on a node that had lost it.
    "late-restore": Rules(restores_late=True),
    # An extension goes past max_hold.
    "endless-hold": Rules(over_at_limit=False),
    # A node keeps the lock for half of its ttl.
    "half-ttl": Rules(kept=lambda ttl_s, _: ttl_s / 2),
    # Nodes remember fences for ever.
    "endless-fence": Rules(acquire=ACQUIRE.replace('redis.call("PEXPIRE", KEYS[2], ARGV[4])', "")),
    # An extension does not make nodes remember the fence for longer.
    "forgotten-fence": Rules(extend=f"{OURS_UP_TO_FENCE}\n{LIVE_ON}"),
    # A waiter is not notified, and polls rarely.
    "deaf-waiter": Rules(poll_s=8),
    # A cancelled call stays at the front of the queue.
    "blocked-line": Rules(passes_on=False),
    # A release tries for a while to delete a key that does not exist any more.
    "patient-release": Rules(release_s=3),
    # A release deletes the key although the least time is not over.
    "short-least": Rules(leave=RELEASE),
    # A key that is left lives for the rest of the least time, even if it would have expired sooner.
    "lengthening-leave": Rules(leave=re.sub(r"if .+ then (redis.call.+) end", r"\1", LEAVE)),
    # A lock that has expired is released at once, and not when its margin has passed.
    "no-margin": Rules(margin_after=frozenset()),
    # A lock counts as held until its keys expire, whatever its margin.
    "late-margin": Rules(valid_margin=lambda _: 0),
    # The margin is waited for after every loss, though others may have the lock already.
    "margin-for-all": Rules(margin_after=LOSSES_BY_TIME | {"deleted", "taken"}),
    # A holder that says that it has stopped is not believed: its margin is waited for.
    "patient-margin": Rules(releases_lost=False),
    # Every release waits for the margin.
    "margin-after-release": Rules(release_waits=True),
    # The least time counts from the release on.
    "least-from-release": Rules(least_rest_s=lambda least_s, _: least_s),
    # A lock that is left for the rest of its least time is still held.
    "held-while-left": Rules(held_while_left=True),
    # What is left keeps its value, so that an extension that comes late finds it.
    "undone-leave": Rules(leave=re.sub(r'redis.call."SET".+', "", LEAVE)),
    # What is left of a lost lock is kept for its least time.
    "kept-loss": Rules(release_lost=LEAVE),
    # What a lost attempt has taken is kept for its least time.
    "kept-attempt": Rules(clean_up=LEAVE),
    # The nodes keep a lock for its least time and its ttl.
    "least-and-ttl": Rules(kept=lambda ttl_s, least_s: ttl_s + 4 * least_s),
    # Nodes keep a lock for longer than its ttl.
    "long-ttl": Rules(kept=lambda ttl_s, _: 8 * ttl_s),
    # The fence of several names is larger than that of the first one.
    "first-floor": Rules(all_acquire=ALL_ACQUIRE.replace("i = 1, n do fence", "i = 1, 1 do fence")),
    # Nodes take those of several names that are free, and count that.
    "takes-what-is-free": Rules(all_acquire=TAKE_FREE, all_confirm="return 1"),
    # A waiter takes one name after the other, and holds what it has.
    "hoarding-waiter": Rules(hoards=True),
    # Nodes are notified of the fence for the first of several names.
    "first-name-confirm": Rules(all_confirm=ALL_CONFIRM.replace("i = n + 1, 2 * n", "i = n + 1, n + 1")),
    # A lock of several names is extended if it has any of them.
    "any-name-extend": Rules(all_extend=ALL_OURS + "if #ours == 0 then return false end" + ALL_LIVE_ON),
    # What is left of a lost lock of several names is released together with the keys of others.
    "blind-release-of-all": Rules(all_release_lost='return redis.call("DEL", unpack(KEYS, 1, #KEYS / 2))'),
    # Nothing is released where one of several names is missing.
    "all-or-none-release": Rules(all_release=ALL_RELEASE.replace("for _", "if #ours < n then return -1 end for _")),
    # A node that has lost one of several names does not get it back.
    "no-restore": Rules(restores=False),
    # A waiter asks without being told of a change.
    "polling-waiter": Rules(watches=False),
    # Readers are under another key, and exclude no writer.
    "readers-apart": Rules(shared_key=lambda key: b"readers of " + key),
    # An acquire overwrites the key that readers share.
    "writer-beside-readers": Rules(
        acquire=ACQUIRE.replace('redis.call("EXISTS", KEYS[1]) == 1', 'redis.call("TYPE", KEYS[1]).ok == "string"')
    ),
    # A reader overwrites the key of a writer.
    "reader-beside-writer": Rules(
        shared_acquire=readers.ACQUIRE.replace(
            readers.DENY_IF_HELD, 'if kind == "string" then redis.call("DEL", KEYS[1]) end'
        )
    ),
    # The key expires with the reader who came last.
    "last-ttl-of-readers": Rules(
        shared_acquire=readers.ACQUIRE.replace(readers.LIVE_ON, 'redis.call("PEXPIRE", KEYS[1], ARGV[2])')
    ),
    # The renewal of a reader renews all of them.
    "longest-ttl-of-readers": Rules(shared_extend=readers.EXTEND.replace(readers.RENEW, readers.RENEW_ALL)),
    # A reader's ends are compared with the clock of the server, to which its key may have moved.
    "readers-by-the-server": Rules(
        shared_extend=readers.EXTEND.replace("period and last - left", 'redis.call("TIME")[1] * 1000')
    ),
    # The fence of a reader is the one before.
    "reader-old-fence": Rules(
        shared_acquire=readers.ACQUIRE.replace(
            'redis.call("INCR", KEYS[2])', 'tonumber(redis.call("GET", KEYS[2]) or 1)'
        )
    ),
    # Nodes forget the fence of a reader.
    "reader-forgotten-fence": Rules(
        shared_acquire=readers.ACQUIRE.replace('redis.call("INCR", KEYS[2])', '(redis.call("GET", KEYS[2]) or 0) + 1'),
        shared_confirm=readers.CONFIRM.replace(readers.RAISE_FENCE, ""),
    ),
    # Readers get the lock although a writer waits.
    "no-intent": Rules(shared_acquire=readers.ACQUIRE.replace(readers.DENY_IF_WANTED, "")),
    # Nodes do not know that a writer waits.
    "untold-intent": Rules(keeps_readers_out=False),
    # A writer that has given up still keeps readers out.
    "kept-intent": Rules(lets_readers_in=False, waiters_ms=60_000),
    # A reader is not renewed.
    "reader-not-renewed": Rules(renews_readers=False),
    # The loss of a reader is not reported.
    "reader-never-told": Rules(tells_readers=False),
    # The extension of a reader creates a key that was deleted.
    "recreating-reader": Rules(
        shared_extend=f"{readers.LOOK}local fence = ARGV[3]{readers.BEGIN}{readers.JOIN}return 1"
    ),
    # An extension counts a sharing that began after its reader.
    "unfenced-reader": Rules(shared_extend=readers.EXTEND.replace(readers.LOST_IF_LATER, "")),
    # A semaphore has one permit more than its caller says.
    "one-more-permit": Rules(spare_permits=1),
    # The vote of one node is enough for a slot.
    "one-vote-slot": Rules(slot_quorum=lambda _: 1),
    # A waiter stays at one slot for a while.
    "stubborn-waiter": Rules(stubborn_s=4),
    # A try does not look for the slot that is free.
    "one-slot-try": Rules(looks=False),
    # A campaign ends when no quorum has answered for a while.
    "discouraged-candidate": Rules(campaign_s=10),
    # A candidate that is stopped goes on for a while.
    "late-stop": Rules(stop_s=2.5),
    # An attachment keeps the token of the former holder.
    "kept-token": Rules(attached_token=lambda former, _: former),
    # An attachment counts a key that another one has by now.
    "any-token": Rules(rekey=hand_over.REKEY.replace("token ~= ARGV[2] and token ~= ARGV[1]", "not token")),
    # An attachment that fails keeps the keys that it has.
    "no-key-back": Rules(keys_back=False),
    # In the SETNX protocol an acquire overwrites the key of a holder.
    "setnx-two-holders": Rules(setnx_acquire=SETNX_ACQUIRE.replace("now <= ends", "false")),
    # A lock is taken over in the last second in which another owner still holds it.
    "setnx-early-takeover": Rules(setnx_acquire=SETNX_ACQUIRE.replace("now <= ends", "now < ends")),
    # A lock is taken over only long after it has expired.
    "setnx-late-takeover": Rules(setnx_acquire=SETNX_ACQUIRE.replace("now <= ends", "now <= ends + 4")),
    # An expired lock is deleted in one command and set in another.
    "setnx-del-takeover": Rules(clears_expired=True),
    # Release deletes the key, whether or not its own time has ended.
    "setnx-blind-release": Rules(setnx_release='return redis.call("DEL", KEYS[1])'),
    # An unanswered release is sent again, though it may have been executed.
    "setnx-repeated-release": Rules(repeats_release=True),
    # A lock that was granted after its caller had gone is kept.
    "setnx-kept-grant": Rules(keeps_late_grants=True),
    # The key on the server never expires.
    "setnx-endless-key": Rules(setnx_acquire=SETNX_ACQUIRE.replace(', "EXAT", own + 1', "")),
}


def perform(  # noqa: PLR0911
    rules: Rules, kept: list[Any], cancels: dict[int, threading.Event], request: Json
) -> Json:
    """Performs a request."""

    def keep(value: object) -> Json:
        kept.append(value)
        return {"handle": len(kept) - 1}

    match request["op"]:
        case "client":
            return keep(Client(rules, request["nodes"], request["options"]))
        case "lock" | "lock_all" | "semaphore" | "election":
            return keep(made(kept[request["client"]], request))
        case "attach":
            lock = hand_over.attach(kept[request["client"]], request["text"], request["options"])
            return {**keep(lock), **lock.state()}
        case "inspect" | "inspect_semaphore":
            return look(kept[request["client"]], request)
        case "cancel":
            cancels[request["call"]].set()
            return {}
        case "run" | "terms" | "end_term" | "stop" | "leader":
            return elect(kept[request["election"]], request)
    return perform_on(kept[request["lock"]], request, cancels[request["id"]])


def made(client: Client, request: Json) -> Lock | Election:
    """Makes a lock of any shape, or an election."""
    options: Json = request["options"]
    if request["op"] == "lock_all":
        return several(client, [bytes.fromhex(name) for name in request["names"]], options)
    name = bytes.fromhex(request["name"])
    match request["op"]:
        case "semaphore":
            return Slot(client, name, request["permits"], options)
        case "election":
            return Election(client, name, options)
    if options.pop("shared", False):
        return readers.Shared(client, [name], options)
    kind = SetnxLock if (client.options | options).get("protocol") == "setnx" else Lock
    return kind(client, [name], options)


def look(client: Client, request: Json) -> Json:
    """Performs a request about what the nodes show."""
    name = bytes.fromhex(request["name"])
    if request["op"] == "inspect":
        return client.inspect(name)
    return {"views": view_of_slots(client, name, request["permits"])}


def elect(election: Election, request: Json) -> Json:
    """Performs a request about an election."""
    match request["op"]:
        case "run":
            return election.run(lingers=request["lingers"], detaches=request["detaches"])
        case "terms":
            return {"terms": election.terms, "stopped": election.stopped.is_set()}
        case "end_term":
            election.end.set_result(request["fail"])
        case "stop":
            election.stop()
        case "leader":
            return {"leader": election.leader()}
    return {}


def perform_on(lock: Lock, request: Json, cancelled: threading.Event) -> Json:
    """Performs a request about a lock."""
    match request["op"]:
        case "acquire" | "try_acquire":
            own = 0 if request["op"] == "try_acquire" else lock.timeout_s
            timeout_s = seconds(request["timeout_ms"]) if "timeout_ms" in request else own
            acquired = lock.acquire(timeout_s, cancelled)
            return {"cancelled": True} if cancelled.is_set() else {"acquired": acquired, **lock.state()}
        case "detach":
            return {"text": hand_over.detach(lock, seconds(request.get("ttl_ms")))}
        case "extend":
            lock.extend(seconds(request.get("ttl_ms")))
        case "release" | "leave":
            lock.release()
        case "is_locked":
            return {"is_locked": lock.is_locked()}
        case "names":
            return {"name": b", ".join(lock.names).decode(), "names": [name.hex() for name in lock.names]}
        case "check":
            lock.check()
        case "wait_lost":
            return lock.wait_lost(request["limit_ms"] / 1000)
    return lock.state()


def answer(rules: Rules, kept: list[Any], cancels: dict[int, threading.Event], request: Json) -> None:
    """Performs a request and writes its answer."""
    invoke_ns, result = now_ns(), {}
    try:
        result = {"ok": perform(rules, kept, cancels, request)}
    except LockError as error:
        result = {"error": error.json}
    except Exception as error:
        traceback.print_exc()
        result = {"error": {"code": "driver", "message": repr(error)}}
    say({"id": request["id"], **result, "invoke_ns": invoke_ns, "return_ns": now_ns()})


def say(line: Json) -> None:
    """Writes a line, whole even if several threads write at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Says hello and serves until the end of input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--face", required=True)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    given = parser.parse_args()
    say({"hello": {"language": "python", "face": given.face, "protocol": 1, "codes": []}})
    kept: list[Any] = []
    cancels: dict[int, threading.Event] = {}
    for line in sys.stdin:
        request = json.loads(line)
        # This is done before the next line is read, because a cancel must find its call.
        cancels[request["id"]] = threading.Event()
        threading.Thread(target=answer, args=[FAULTS[given.fault], kept, cancels, request]).start()


if __name__ == "__main__":
    main()
