"""A driver with one planted fault, which the suite must find. Without a fault it passes the same test cases.

It has its own lock, in both protocols, instead of Python's; see test_suite_bites.py. A fault is a row of `FAULTS`. The
defaults of `Rules` are right, and the row says what is different.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from conformance.driver import table
from support.clock import now_ns
from support.resp import Connection
from support.servers import LIMIT_S, Reply, ReplyError, Word, ask

Json = dict[str, Any]
Answer = Reply | Exception

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
OURS_UP_TO_FENCE = OURS + 'if tonumber(string.match(value, "^%d+", #begin + 1)) > tonumber(ARGV[3]) then return -1 end'
KEEP_FENCE = 'redis.call("PEXPIRE", KEYS[2], ARGV[4])'
LIVE_ON = 'return redis.call("PEXPIRE", KEYS[1], ARGV[2])'
EXTEND = f"{OURS_UP_TO_FENCE}\n{KEEP_FENCE}\n{LIVE_ON}"
RELEASE = OURS + 'return redis.call("DEL", KEYS[1])'
RECREATE = """
if redis.call("EXISTS", KEYS[1]) == 0 then redis.call("SET", KEYS[1], ARGV[1] .. ":" .. ARGV[3] .. ":") end
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

# Servers do not notify this driver.
POLL_S = 0.002
OPTIONS = {option for case in table("options")["cases"] if "ok" in case for option in case["options"]}


@dataclass(frozen=True)
class Rules:
    """The right behaviour, in each part that a fault changes."""

    acquire: str = ACQUIRE
    confirm: str = CONFIRM
    extend: str = EXTEND
    release: str = RELEASE
    setnx_acquire: str = SETNX_ACQUIRE
    setnx_release: str = SETNX_RELEASE
    key: Callable[[bytes], bytes] = lambda name: name
    token: Callable[[str], str] = lambda _: secrets.token_hex(16)
    fence: Callable[[int], int] = lambda fence: fence
    drift: Callable[[float], float] = lambda ttl_s: ttl_s / 100 + 0.002
    shown: Callable[[str], str] = lambda url: url.partition("?")[0]
    label: Callable[[str], str] = lambda value: value.split(":", 2)[2]
    options: Callable[[Json], Json] = lambda given: {name: given[name] for name in given if name not in OPTIONS}
    kept: Callable[[int], int] = lambda ttl_ms: ttl_ms
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
    one_holder: bool = True
    votes: bool = True
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
    extends_setnx: bool = False
    many_nodes: bool = False


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
    # An unknown option is ignored.
    "any-option": Rules(options=lambda _: {}),
    # The error of an attempt does not say what the nodes answered.
    "no-votes": Rules(votes=False),
    # The address in an error is shown with its password.
    "told-password": Rules(shown=lambda url: url),
    # Inspection shows the whole value of a holder, with its token.
    "told-token": Rules(label=lambda value: value),
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
    "half-ttl": Rules(kept=lambda ttl_ms: ttl_ms // 2),
    # Nodes remember fences for ever.
    "endless-fence": Rules(acquire=ACQUIRE.replace('redis.call("PEXPIRE", KEYS[2], ARGV[4])', "")),
    # An extension does not make nodes remember the fence for longer.
    "forgotten-fence": Rules(extend=f"{OURS_UP_TO_FENCE}\n{LIVE_ON}"),
    # A waiter is not notified, and polls rarely.
    "deaf-waiter": Rules(poll_s=3),
    # A cancelled call stays at the front of the queue.
    "blocked-line": Rules(passes_on=False),
    # A release tries for a while to delete a key that does not exist any more.
    "patient-release": Rules(release_s=3),
    # In the SETNX protocol an acquire overwrites the key of a holder.
    "setnx-two-holders": Rules(setnx_acquire=SETNX_ACQUIRE.replace("now <= ends", "false")),
    # A lock is taken over in the last second in which another owner still holds it.
    "setnx-early-takeover": Rules(setnx_acquire=SETNX_ACQUIRE.replace("now <= ends", "now < ends")),
    # A lock is taken over only long after it has expired.
    "setnx-late-takeover": Rules(setnx_acquire=SETNX_ACQUIRE.replace("now <= ends", "now <= ends + 4")),
    # An expired lock is deleted in one command and set in another.
    "setnx-del-takeover": Rules(clears_expired=True),
    # A value that is not a second counts as an expired one.
    "setnx-any-value": Rules(
        setnx_acquire=SETNX_ACQUIRE.replace("not ends or", "ends and (").replace("<= ends", "<= ends)")
    ),
    # Release deletes the key, whether or not its own time has ended.
    "setnx-blind-release": Rules(setnx_release='return redis.call("DEL", KEYS[1])'),
    # Release deletes the key only if it has its own value, though a client that is not a holder may have changed it.
    "setnx-picky-release": Rules(
        setnx_release='if redis.call("GET", KEYS[1]) ~= ARGV[2] then return 0 end' + SETNX_RELEASE
    ),
    # An unanswered release is sent again, though it may have been executed.
    "setnx-repeated-release": Rules(repeats_release=True),
    # A lock that was granted after its caller had gone is kept.
    "setnx-kept-grant": Rules(keeps_late_grants=True),
    # The key on the server never expires.
    "setnx-endless-key": Rules(setnx_acquire=SETNX_ACQUIRE.replace(', "EXAT", own + 1', "")),
    # An extension does nothing, and raises no error.
    "setnx-extends": Rules(extends_setnx=True),
    # Only one of several nodes is asked.
    "setnx-many-nodes": Rules(many_nodes=True),
}


class LockError(Exception):
    """An error with one of the codes."""

    def __init__(
        self, code: str, name: bytes | None, reason: str | None = None, *, nodes: Json | None = None, message: str = ""
    ) -> None:
        super().__init__(code)
        self.code = code
        self.json: Json = {
            "code": code,
            "name": name and name.decode(errors="replace"),
            "reason": reason,
            "option": None,
            "nodes": list((nodes or {}).items()),
            "message": message or f"{code}: {name!r} {nodes}",
            "retryable": code in {"timeout", "unavailable"},
        }


class Node:
    """A node, as one client sees it: one connection, on which a release follows its acquire."""

    def __init__(self, url: str) -> None:
        self.url, parts = url, urlsplit(url)
        self.address = (parts.hostname or "", parts.port) if parts.port else Path(parts.path)
        self.login = [word for key in ("user", "pass") for word in parse_qs(parts.query).get(key, [])]
        self.lock = threading.Lock()
        self.connection: Connection | None = None
        self.waiting: deque[Future[Answer]] = deque()

    def start(self, *words: Word) -> Future[Answer]:
        """Starts a request; an error is an answer, too."""
        answer = Future[Answer]()
        with self.lock:
            try:
                connection = self.connection or self.connect()
            except (OSError, ReplyError) as error:
                answer.set_result(error)
                return answer
            self.waiting.append(answer)
            # The reader must learn of a broken connection, too.
            with contextlib.suppress(OSError):
                connection.send(*words)
        return answer

    def connect(self) -> Connection:
        """Connects; tries the user's password before, on another connection."""
        if self.login:
            ask(self.address, "AUTH", *self.login)
        self.connection, self.waiting = Connection(self.address, limit_s=None), deque()
        threading.Thread(target=self.read, args=[self.connection, self.waiting], daemon=True).start()
        return self.connection

    def read(self, connection: Connection, waiting: deque[Future[Answer]]) -> None:
        """Hands out the answers of a connection until it breaks."""
        try:
            while True:
                try:
                    answer: Answer = connection.receive()
                except ReplyError as error:
                    answer = error
                waiting.popleft().set_result(answer)
        except OSError as error:
            with self.lock:
                self.connection = None
            connection.close()
            for unanswered in waiting:
                unanswered.set_result(error)


class Client:
    """The nodes and the options of locks."""

    def __init__(self, rules: Rules, urls: list[str], options: Json) -> None:
        self.rules, self.nodes = rules, [Node(url) for url in urls]
        self.lines: defaultdict[bytes, threading.Lock] = defaultdict(threading.Lock)
        self.options = self.read(options)

    def read(self, options: Json) -> Json:
        """Refuses unknown options."""
        if wrong := self.rules.options(options):
            error = LockError("invalid_argument", None, message=f"no such option: {', '.join(wrong)}")
            error.json["option"] = next(iter(wrong))
            raise error
        return options

    def inspect(self, name: bytes) -> Json:
        """What every node has under a name."""
        views = []
        for node in self.nodes:
            value = node.start("GET", self.rules.key(name)).result(LIMIT_S)
            held = isinstance(value, bytes) and value.count(b":") > 1
            label = self.rules.label(value.decode()) if held and isinstance(value, bytes) else None
            state = "free" if value is None else "held" if held else "foreign"
            views.append({"node": self.rules.shown(node.url), "state": state, "label": label})
        return {"nodes": [{**view, "fence": None, "ttl_left_ms": None} for view in views]}


class Lock:
    """A lock object."""

    def __init__(self, client: Client, name: bytes, options: Json) -> None:
        options = client.options | client.read(options)
        self.rules = client.rules
        self.name = name
        self.label = options.get("label", "")
        self.ttl_s = options.get("ttl_ms", 10_000) / 1000
        self.timeout_s = seconds(options.get("timeout_ms"))
        self.max_hold_s = options.get("max_hold_ms", 1e12) / 1000
        self.keep_ms = int(options.get("fence_ttl_ms", max(3_600_000, 2000 * self.ttl_s)))
        self.node_timeout_s = options.get("node_timeout_ms", min(max(self.ttl_s * 250, 50), 500)) / 1000
        self.nodes = client.nodes
        self.line = client.lines[name]
        self.quorum = self.rules.quorum(len(self.nodes))
        self.token = ""
        self.fence: int | None = None
        self.end, self.limit = 0.0, 0.0
        self.missing: list[Node] = []
        self.over: LockError | None = LockError("not_held", name)

    @property
    def remaining_s(self) -> float:
        """How long the lock is valid."""
        if self.over:
            return 0
        return max(0, self.end - time.monotonic()) if self.rules.over_at_end else self.ttl_s

    def check(self) -> None:
        """Raises unless the lock is held."""
        if self.over:
            raise self.over
        if not self.remaining_s:
            self.lose("expired" if self.end < self.limit else "max_hold")

    def lose(self, reason: str) -> None:
        """Ends the hold, also on the nodes."""
        self.over = LockError("lost", self.name, reason)
        self.round(RELEASE)
        raise self.over

    def hold_from(self, start: float) -> None:
        """Makes the lock valid from this instant for its ttl, and never past max_hold."""
        end = start + self.ttl_s - self.rules.drift(self.ttl_s)
        self.end = min(end, self.limit) if self.rules.over_at_limit else end

    def command(self, script: str, *words: Word) -> list[Word]:
        """The command that runs a script on a node."""
        key = self.rules.key(self.name)
        # A hash tag in the name is that of all its keys.
        fence_key = b"redlock:fence::" + key if b"{" in key else b"redlock:fence:{" + key + b"}"
        return ["EVAL", script, 2, key, fence_key, self.token, *words]

    def round(self, script: str, *words: Word, but: Sequence[Node] = ()) -> dict[Node, Answer]:
        """Runs a script on all nodes; returns the answers that came before enough agreed, or before node_timeout."""
        asked = [node for node in self.nodes if node not in but]
        calls = {node.start(*self.command(script, *words)): node for node in asked}
        enough = self.rules.enough(len(self.nodes))
        answers: dict[Node, Answer] = {}
        # An answer after node_timeout does not count.
        with contextlib.suppress(TimeoutError):
            for call in as_completed(calls, timeout=self.node_timeout_s):
                answers[calls[call]] = call.result()
                if len(granting(answers)) >= enough:
                    break
        return answers

    def attempt(self) -> bool:
        """Tries once; false if others hold it."""
        start, self.token, ttl_ms = time.monotonic(), self.rules.token(self.token), int(self.ttl_s * 1000)
        self.rules.log(self.token)
        answers = self.round(self.rules.acquire, self.rules.kept(ttl_ms), self.label, self.keep_ms)
        if len(granted := granting(answers)) >= self.quorum:
            largest = max(int(str(answers[node])) for node in granted)
            if len(granting(self.round(self.rules.confirm, largest, self.keep_ms))) >= self.quorum:
                self.over, self.limit = None, start + self.max_hold_s
                self.hold_from(start)
                self.fence = self.rules.fence(largest)
                if self.remaining_s or self.rules.wins_late:
                    return True
                self.over = LockError("not_held", self.name)
        if self.rules.cleans_up:
            self.clean_up([node for node in self.nodes if isinstance(answers.get(node, TimeoutError()), OSError)])
        said = {self.rules.shown(node.url): told(answers.get(node, TimeoutError())) for node in self.nodes}
        answered = sum(not isinstance(answer, Exception) for answer in answers.values())
        if answered >= self.quorum or self.rules.down_is_busy:
            return False
        refused = any(answer.startswith(("WRONGPASS", "NOAUTH")) for answer in said.values())
        code = "forbidden" if refused else "unavailable"
        raise LockError(code, self.name, nodes=said if self.rules.votes else {})

    def clean_up(self, silent: list[Node]) -> None:
        """Releases what an attempt has created, or may still create if its acquire is unanswered."""
        follows = self.rules.cleans_up_silent and self.rules.release_follows
        self.round(RELEASE, but=[] if follows else silent)
        for node in silent if self.rules.cleans_up_silent else []:
            threading.Thread(target=self.owe, args=[node, self.command(RELEASE)], daemon=True).start()

    def owe(self, node: Node, release: list[Word]) -> None:
        """Sends a release over new connections until it has deleted the key, for at most one ttl."""
        pause_s, end = 0.05, time.monotonic() + self.ttl_s
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ReplyError):
                if self.rules.released(ask(node.address, *release, limit_s=self.node_timeout_s)):
                    return
            time.sleep(pause_s)
            pause_s *= 2

    def acquire(self, timeout_s: float | None, cancelled: threading.Event) -> bool:
        """Waits for the lock; `None` is for ever. A cancelled call does not acquire it."""
        if self.remaining_s:
            if self.rules.one_holder:
                raise LockError("already_held", self.name)
            return True
        last = time.monotonic() + (1e9 if timeout_s is None else timeout_s) + self.rules.late_s
        while not self.line.acquire(timeout=POLL_S):
            if cancelled.is_set() or time.monotonic() > last:
                return False
        try:
            return self.wait(last, cancelled)
        finally:
            if self.rules.passes_on or not cancelled.is_set():
                self.line.release()

    def wait(self, last: float, cancelled: threading.Event) -> bool:
        """Waits at the front of the queue until `last`; then the result of the last attempt counts."""
        while True:
            failed: LockError | None = None
            try:
                if self.attempt():
                    if cancelled.is_set() and not self.rules.keeps_cancelled:
                        self.release()
                    return True
            except LockError as error:
                if error.code == "forbidden":
                    raise
                failed = error
            if cancelled.wait(self.rules.poll_s):
                return False
            if time.monotonic() > last:
                if failed:
                    raise failed
                return False

    def extend(self, ttl_s: float | None) -> None:
        """Extends the lock from now on."""
        if not self.rules.extends_late:
            self.check()
        self.ttl_s, start = ttl_s or self.ttl_s, time.monotonic()
        answers = self.round(self.rules.extend, int(self.ttl_s * 1000), self.fence or 0, self.keep_ms)
        extended = granting(answers)
        self.missing = [node for node in self.nodes if node not in extended]
        carried = self.nodes[0] in extended if self.rules.first_answer else len(extended) >= self.quorum
        if carried:
            self.hold_from(start)
        elif (reason := self.loss(answers)) or self.rules.silence_is_loss:
            self.lose(reason or "unreachable")
        else:
            said = {node.url: told(answers.get(node, TimeoutError())) for node in self.nodes}
            raise LockError("unavailable", self.name, nodes=said)

    def loss(self, answers: dict[Node, Answer]) -> str | None:
        """Why the lock is lost, if so many nodes lack it that the others are not a quorum."""
        foreign = sum(answer == -1 for answer in answers.values())
        gone = sum(answer is None for answer in answers.values())
        if foreign + gone <= len(self.nodes) - self.quorum:
            return None
        return "taken" if foreign >= self.quorum else "deleted"

    def release(self) -> None:
        """Releases the lock; a second release does nothing."""
        if self.over and self.over.code == "not_held":
            if self.token:
                return
            raise self.over
        last = time.monotonic() + self.rules.release_s
        answers = self.round(self.rules.release)
        while len(granting(answers)) < self.quorum and time.monotonic() < last:
            answers = self.round(self.rules.release)
        if self.rules.restores_late:
            for node in self.missing:
                node.start("SET", self.rules.key(self.name), f"{self.token}:{self.fence}:")
        try:
            self.check()
            if len(granting(answers)) < self.quorum:
                self.lose(self.loss(answers) or "taken")
        finally:
            # A lost lock stays lost.
            self.over = self.over or LockError("not_held", self.name)

    def wait_lost(self, limit_s: float) -> Json:
        """Waits until the validity has ended."""
        time.sleep(min(limit_s, self.remaining_s))
        try:
            self.check()
        except LockError as lost:
            return {"lost": lost.json if self.rules.told else None, "told_ns": now_ns()}
        return {"lost": None, "told_ns": 0}

    def state(self) -> Json:
        """The lock's own view of its state."""
        read_ns, remaining = now_ns(), self.remaining_s
        return {"read_ns": read_ns, "held": remaining > 0, "remaining_ms": remaining * 1000, "fence": self.fence}


class SetnxLock(Lock):
    """A lock object in the SETNX protocol, on one node; `ends` is the second in its key."""

    ends = 0

    def __init__(self, client: Client, name: bytes, options: Json) -> None:
        super().__init__(client, name, options)
        if len(self.nodes) > 1 and not self.rules.many_nodes:
            raise LockError("invalid_argument", name, message="the protocol setnx is for one node")

    def ask(self, script: str, *words: Word) -> Future[Answer]:
        """Runs a script on the node."""
        return self.nodes[0].start(*self.command(script, *words))

    def answer(self, call: Future[Answer]) -> Answer:
        """Returns the node's answer if it comes before node_timeout."""
        try:
            return call.result(self.node_timeout_s)
        except TimeoutError as late:
            return late

    def attempt(self) -> bool:
        """Tries once; false if others hold it."""
        start = time.monotonic()
        if self.rules.clears_expired and self.has_expired():
            ask(self.nodes[0].address, "DEL", self.name)
        call = self.ask(self.rules.setnx_acquire, int(self.ttl_s * 1000))
        match self.answer(call):
            case int(ends):
                self.token, self.ends, self.over, self.limit = "held once", ends, None, start + 1e9
                self.hold_from(start)
                return True
            case Exception() as error:
                if not self.rules.keeps_late_grants:
                    call.add_done_callback(self.give_back)
                raise LockError("unavailable", self.name, nodes={self.nodes[0].url: told(error)})
        return False

    def has_expired(self) -> bool:
        """Whether the key has a second that is over."""
        value = self.answer(self.nodes[0].start("GET", self.name))
        return isinstance(value, bytes) and int(value) < time.time()

    def give_back(self, call: Future[Answer]) -> None:
        """Releases what was granted too late."""
        if isinstance(ends := call.result(), int):
            self.ask(self.rules.setnx_release, ends)

    def extend(self, ttl_s: float | None) -> None:
        """Refuses: there is no extension."""
        if not self.rules.extends_setnx:
            raise LockError("invalid_argument", self.name, message="extend is not available with protocol setnx")

    def release(self) -> None:
        """Releases the lock; a second release does nothing."""
        if self.over and self.over.code == "not_held":
            if self.token:
                return
            raise self.over
        answer = self.answer(self.ask(self.rules.setnx_release, self.ends))
        if self.rules.repeats_release and isinstance(answer, Exception):
            again = [self.nodes[0], self.command(self.rules.setnx_release, self.ends)]
            threading.Thread(target=self.owe, args=again, daemon=True).start()
        try:
            self.check()
            if isinstance(answer, Exception):
                raise LockError("unavailable", self.name, nodes={self.nodes[0].url: told(answer)})
            if answer != 1:
                raise LockError("lost", self.name, "deleted")
        finally:
            # A lost lock stays lost.
            self.over = self.over or LockError("not_held", self.name)


def granting(answers: dict[Node, Answer]) -> list[Node]:
    """The nodes that did what was asked."""
    return [node for node, answer in answers.items() if isinstance(answer, int) and answer > 0]


def told(answer: Answer) -> str:
    """A node's answer in an error."""
    if isinstance(answer, ReplyError):
        return str(answer)
    if isinstance(answer, Exception):
        return type(answer).__name__
    return "held" if answer is None else "granted"


def seconds(ms: float | None) -> float | None:
    """Converts milliseconds to seconds; `None` is without end."""
    return None if ms is None else ms / 1000


def perform(rules: Rules, kept: list[Any], cancels: dict[int, threading.Event], request: Json) -> Json:
    """Performs a request."""

    def keep(value: object) -> Json:
        kept.append(value)
        return {"handle": len(kept) - 1}

    match request["op"]:
        case "client":
            return keep(Client(rules, request["nodes"], request["options"]))
        case "lock":
            of: Client = kept[request["client"]]
            kind = SetnxLock if (of.options | request["options"]).get("protocol") == "setnx" else Lock
            return keep(kind(of, bytes.fromhex(request["name"]), request["options"]))
        case "inspect":
            client: Client = kept[request["client"]]
            return client.inspect(bytes.fromhex(request["name"]))
        case "cancel":
            cancels[request["call"]].set()
            return {}
    return perform_on(kept[request["lock"]], request, cancels[request["id"]])


def perform_on(lock: Lock, request: Json, cancelled: threading.Event) -> Json:
    """Performs a request about a lock."""
    match request["op"]:
        case "acquire" | "try_acquire":
            own = 0 if request["op"] == "try_acquire" else lock.timeout_s
            timeout_s = seconds(request["timeout_ms"]) if "timeout_ms" in request else own
            acquired = lock.acquire(timeout_s, cancelled)
            return {"cancelled": True} if cancelled.is_set() else {"acquired": acquired, **lock.state()}
        case "extend":
            lock.extend(seconds(request.get("ttl_ms")))
        case "release":
            lock.release()
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
