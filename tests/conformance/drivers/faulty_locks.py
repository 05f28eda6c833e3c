"""The nodes, clients and locks of the driver with planted faults; see faulty.py."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard
from urllib.parse import parse_qs, urlsplit

from conformance.driver import table
from support.clock import now_ns
from support.resp import Connection
from support.servers import LIMIT_S, Reply, ReplyError, Word, ask

if TYPE_CHECKING:
    from conformance.drivers.faulty import Rules

Json = dict[str, Any]
Answer = Reply | Exception

OPTIONS = {option for case in table("options")["cases"] if "ok" in case for option in case["options"]}

# Servers do not notify this driver.
POLL_S = 0.002
# Each attempt that fails leaves releases behind.
FAILED_S = 0.05
# Nodes are reminded well before they forget.
REMIND_S = 0.5
# A cancel is sent right behind its call.
CANCEL_S = 1.0

READERS = re.compile(rb"redlock:shared:\d+")
"""The member that stands for all who share a lock; the others are theirs."""
SHARED = "shared by readers"


class LockError(Exception):
    """An error with one of the codes."""

    def __init__(
        self,
        code: str,
        name: bytes | None,
        reason: str | None = None,
        *,
        nodes: Json | None = None,
        message: str = "",
        option: str | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.json: Json = {
            "code": code,
            "name": name and name.decode(errors="replace"),
            "reason": reason,
            "option": option,
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
        self.waiting: defaultdict[bytes, int] = defaultdict(int)
        """How many wait in each line."""
        self.options = self.read(options)

    def read(self, options: Json) -> Json:
        """Refuses unknown options."""
        if wrong := [option for option in options if option not in OPTIONS]:
            message = f"no such option: {', '.join(wrong)}"
            raise LockError("invalid_argument", None, message=message, option=wrong[0])
        return options

    @property
    def prefix(self) -> bytes:
        """What is in front of each name."""
        return str(self.options.get("key_prefix", "")).encode()

    def inspect(self, name: bytes) -> Json:
        """What the nodes show of a name, together and each."""
        return self.view(name, self.rules.key(self.prefix + name))

    def view(self, name: bytes, key: bytes) -> Json:
        """What the nodes show of a key, together and each."""
        values = [self.value(node, key) for node in self.nodes]
        owners = [value.partition(":")[0] if is_ours(value) else value for value in values]
        quorum = self.rules.quorum(len(self.nodes))
        most = max(filter(None, owners), key=owners.count, default=None)
        held = [value for value, owner in zip(values, owners, strict=True) if owner == most and is_ours(value)]
        view: Json = {"name": name.decode(errors="replace"), "key": key.decode(errors="replace"), "slot": None}
        view |= {"state": "unknown", "label": None, "fence": None, "since_ms": None, "ttl_left_ms": None}
        view["holders"] = owners.count(most) if most else 0
        if owners.count(None) >= quorum:
            view["state"] = "free"
        elif owners.count(SHARED) >= quorum:
            view["state"] = "shared"
        elif owners.count("") >= quorum:
            view["state"] = "foreign"
        elif len(held) >= quorum:
            fences = [int(value.split(":", 2)[1]) for value in held]
            fence = self.rules.least_fence(fences, len(self.nodes) - quorum)
            view |= {"state": "held", "label": self.rules.label(held[0]), "fence": fence}
        nodes = [self.node_view(node, value) for node, value in zip(self.nodes, values, strict=True)]
        return {**view, "quorum": quorum, "waiting": None, "nodes": nodes}

    def value(self, node: Node, key: bytes) -> str | None:
        """What is under the key on a node; empty if it is nothing of a lock, or the node does not answer."""
        value = node.start("GET", key).result(LIMIT_S)
        if isinstance(value, ReplyError) and str(value).startswith("WRONGTYPE"):
            match node.start("ZRANGE", key, -1, -1).result(LIMIT_S):
                case [bytes(last)] if READERS.fullmatch(last):
                    return SHARED
        return value.decode() if isinstance(value, bytes) else "" if value else None

    def node_view(self, node: Node, value: str | None) -> Json:
        """What one node shows."""
        state = "free" if value is None else "held" if is_ours(value) else "foreign" if value else "unavailable"
        state = "shared" if value == SHARED else state
        fence = int(value.split(":", 2)[1]) if is_ours(value) else None
        label = self.rules.label(value) if is_ours(value) else None
        return {"node": self.rules.shown(node.url), "state": state, "label": label, "fence": fence, "ttl_left_ms": None}


class Lock:
    """A lock object."""

    scripts: ClassVar = ""
    """The beginning of the rules that are its scripts."""
    keeps_readers_out: ClassVar = True
    """While it waits, no others begin to share the lock."""

    def __init__(self, client: Client, names: list[bytes], options: Json) -> None:
        options = client.options | client.read(options)
        self.client, self.rules = client, client.rules
        self.names = names
        self.name = b", ".join(client.prefix + name for name in names)
        self.keys = [self.rules.key(client.prefix + name) for name in names]
        self.slot: int | None = None
        self.label = options.get("label", "")
        self.ttl_s = options.get("ttl_ms", 10_000) / 1000
        self.timeout_s = seconds(options.get("timeout_ms"))
        self.max_hold_s = options.get("max_hold_ms", 1e12) / 1000
        self.at_least_s = options.get("at_least_ms", 0) / 1000
        self.margin_s = options.get("margin_ms", 0) / 1000
        self.is_renewed = options.get("auto_renew", True)
        self.keep_ms = int(options.get("fence_ttl_ms", max(3_600_000, 2000 * max(self.ttl_s, self.at_least_s))))
        self.node_timeout_s = options.get("node_timeout_ms", min(max(self.ttl_s * 250, 50), 500)) / 1000
        self.nodes = client.nodes
        self.line = b", ".join(names)
        self.reminded = 0.0
        self.quorum = self.rules.quorum(len(self.nodes))
        self.token = ""
        self.fence: int | None = None
        self.start, self.end, self.limit = 0.0, 0.0, 0.0
        self.missing: list[Node] = []
        self.is_unanswered = False
        self.ended = threading.Event()
        """The end of the present hold."""
        self.over: LockError | None = LockError("not_held", self.name)

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
            self.lose("max_hold" if self.end >= self.limit else "unreachable" if self.is_unanswered else "expired")

    def lose(self, reason: str) -> None:
        """Ends the hold, also on the nodes."""
        self.over = LockError("lost", self.name, reason)
        self.ended.set()
        margin_s = self.end + self.margin_s - time.monotonic()
        release: list[Any] = [self.script("release_lost"), self.rest_ms()]
        if reason in self.rules.margin_after and margin_s > 0:
            later(margin_s, self.round, *release)
        else:
            self.round(*release)
        raise self.over

    def script(self, what: str) -> str:
        """The script that does something with locks of this shape."""
        return str(getattr(self.rules, self.scripts + what))

    def rest_ms(self) -> int:
        """What is left of the least time."""
        return math.ceil(self.rules.least_rest_s(self.at_least_s, time.monotonic() - self.start) * 1000)

    def hold_from(self, start: float, margin_s: float) -> None:
        """Makes the lock valid from this instant for its ttl, and never past max_hold."""
        end = start + self.ttl_s - self.rules.drift(self.ttl_s) - margin_s
        self.end = min(end, self.limit) if self.rules.over_at_limit else end

    @property
    def owner(self) -> str:
        """What stands for it on a node."""
        return self.token

    def command(self, script: str, *words: Word) -> list[Word]:
        """The command that runs a script on a node."""
        fence_keys = [b"redlock:fence:" + tagged(key) for key in self.keys]
        return ["EVAL", script, 2 * len(self.keys), *self.keys, *fence_keys, self.owner, *words]

    def round(self, script: str, *words: Word, but: Sequence[Node] = ()) -> dict[Node, Answer]:
        """Runs a script on all nodes; returns the answers that came before enough agreed, or before node_timeout."""
        return self.answers(self.command(script, *words), [node for node in self.nodes if node not in but])

    def answers(self, command: Sequence[Word], nodes: Iterable[Node]) -> dict[Node, Answer]:
        """Does the same with any command."""
        calls = {node.start(*command): node for node in nodes}
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
        start, self.token = time.monotonic(), self.rules.token(self.token)
        self.rules.log(self.token)
        kept_ms = int(self.rules.kept(self.ttl_s, self.at_least_s) * 1000)
        answers = self.round(self.script("acquire"), kept_ms, self.label, self.keep_ms)
        if len(granted := granting(answers)) >= self.quorum:
            largest = max(int(str(answers[node])) for node in granted)
            if len(granting(self.round(self.script("confirm"), largest, self.keep_ms))) >= self.quorum:
                self.begin(start, largest)
                if self.remaining_s or self.rules.wins_late:
                    return True
                self.ended.set()
                self.over = LockError("not_held", self.name)
        if self.rules.cleans_up:
            self.clean_up([node for node in self.nodes if isinstance(answers.get(node, TimeoutError()), OSError)])
        said = self.said(answers)
        answered = sum(not isinstance(answer, Exception) for answer in answers.values())
        if answered >= self.quorum or self.rules.down_is_busy:
            return False
        refused = any(answer.startswith(("WRONGPASS", "NOAUTH")) for answer in said.values())
        code = "forbidden" if refused else "unavailable"
        raise LockError(code, self.name, nodes=said)

    def begin(self, start: float, fence: int) -> None:
        """A hold begins, with an attempt that began at this instant."""
        self.over, self.start, self.limit = None, start, start + self.max_hold_s
        self.is_unanswered, self.ended = False, threading.Event()
        self.hold_from(start, self.rules.valid_margin(self.margin_s))
        self.fence = self.rules.fence(fence)
        if self.is_renewed:
            threading.Thread(target=self.renew, args=[self.ended], daemon=True).start()

    def renew(self, ended: threading.Event) -> None:
        """Extends the lock again and again, until this hold has ended."""
        while not ended.wait((self.ttl_s - self.margin_s) / 3) and self.remaining_s:
            is_extended, answers = self.prolong(ended)
            if ended.is_set():
                return
            if not is_extended and (reason := self.loss(answers)):
                with contextlib.suppress(LockError):
                    self.lose(reason)

    def prolong(self, ended: threading.Event) -> tuple[bool, dict[Node, Answer]]:
        """Extends the lock on the nodes. Returns whether a quorum has done so, and their answers."""
        start = time.monotonic()
        answers = self.round(self.script("extend"), int(self.ttl_s * 1000), self.fence or 0, self.keep_ms)
        extended = granting(answers)
        self.missing = [node for node in self.nodes if node not in extended]
        is_extended = self.nodes[0] in extended if self.rules.first_answer else len(extended) >= self.quorum
        if not ended.is_set():
            self.is_unanswered = not is_extended
            if is_extended:
                self.hold_from(start, self.rules.valid_margin(self.margin_s))
        return is_extended, answers

    def clean_up(self, silent: list[Node]) -> None:
        """Releases what an attempt has created, or may still create if its acquire is unanswered."""
        follows = self.rules.cleans_up_silent and self.rules.release_follows
        release: list[Any] = [self.script("clean_up"), math.ceil(self.at_least_s * 1000)]
        self.round(*release, but=[] if follows else silent)
        for node in silent if self.rules.cleans_up_silent else []:
            later(0, self.owe, node, self.command(*release))

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
                raise LockError("already_held", self.name, message="it is held; make a lock for each use: `lock(name)`")
            return True
        last = time.monotonic() + (1e9 if timeout_s is None else timeout_s) + self.rules.late_s
        line = self.client.lines[self.line]
        while not line.acquire(timeout=POLL_S):
            if cancelled.is_set() or time.monotonic() > last:
                return False
        try:
            self.client.waiting[self.line] += 1
            return self.wait(last, cancelled)
        finally:
            self.let_readers_in()
            self.client.waiting[self.line] -= 1
            if self.rules.passes_on or not cancelled.is_set():
                line.release()

    def wait(self, last: float, cancelled: threading.Event) -> bool:
        """Waits at the front of the queue until `last`; then the result of the last attempt counts."""
        for tries in itertools.count():
            failed: LockError | None = None
            try:
                if self.attempt():
                    if self.rules.keeps_cancelled:
                        # A cancel that is on its way still comes during the attempt.
                        cancelled.wait(CANCEL_S)
                    elif cancelled.is_set():
                        self.release()
                    return True
            except LockError as error:
                if error.code == "forbidden":
                    raise
                failed = error
            # A call is seen to wait by its second attempt.
            if cancelled.wait(FAILED_S if failed else self.rules.poll_s) or (
                tries and self.is_cancelled(last, cancelled)
            ):
                return False
            if time.monotonic() > last:
                if failed:
                    raise failed
                return False
            self.keep_readers_out()
        return False

    def keep_readers_out(self) -> None:
        """Reminds the nodes that it waits."""
        now = time.monotonic()
        if self.keeps_readers_out and self.rules.keeps_readers_out and now > self.reminded + REMIND_S:
            self.reminded = now
            for node in self.nodes:
                node.start("SET", b"redlock:waiters:" + tagged(self.keys[0]), 1, "PX", self.rules.waiters_ms)

    def let_readers_in(self) -> None:
        """Has the nodes forget that it waits, if they know."""
        if self.reminded and self.rules.lets_readers_in:
            for node in self.nodes:
                node.start("DEL", b"redlock:waiters:" + tagged(self.keys[0]))
        self.reminded = 0

    def is_cancelled(self, last: float, cancelled: threading.Event) -> bool:
        """Waits until another attempt is worth it, or `last`. Returns whether the call was cancelled."""
        return cancelled.is_set()

    def extend(self, ttl_s: float | None) -> None:
        """Extends the lock from now on."""
        if not self.rules.extends_late:
            self.check()
        if ttl_s is not None and ttl_s < 2 * self.margin_s:
            raise LockError("invalid_argument", self.name, message="margin is too long for this ttl", option="margin")
        self.ttl_s = ttl_s or self.ttl_s
        is_extended, answers = self.prolong(self.ended)
        if is_extended:
            return
        if (reason := self.loss(answers)) or self.rules.silence_is_loss:
            self.lose(reason or "unreachable")
        raise LockError("unavailable", self.name, nodes=self.said(answers))

    def said(self, answers: dict[Node, Answer]) -> Json:
        """Each node's answer, as an error shows it."""
        return {self.rules.shown(node.url): told(answers.get(node, TimeoutError())) for node in self.nodes}

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
        if self.over and not self.rules.releases_lost:
            raise self.over
        self.ended.set()
        rest_ms = self.rest_ms()
        release: list[Any] = [self.script("leave"), rest_ms] if rest_ms > 0 else [self.script("release")]
        if self.rules.release_waits and self.margin_s:
            self.over = LockError("not_held", self.name)
            later(self.margin_s, self.round, *release)
            return
        last = time.monotonic() + self.rules.release_s
        answers = self.round(*release)
        while len(granting(answers)) < self.quorum and time.monotonic() < last:
            answers = self.round(*release)
        for node in self.nodes:
            if isinstance(answers.get(node), OSError):
                later(0, self.owe, node, self.command(*release))
        for node in self.missing if self.rules.restores_late else []:
            node.start("SET", self.keys[0], f"{self.token}:{self.fence}:")
        try:
            self.check()
            if reason := self.loss(answers):
                self.lose(reason)
            if len(granting(answers)) < self.quorum:
                raise LockError("unavailable", self.name, nodes=self.said(answers))
        finally:
            if rest_ms <= 0 or not self.rules.held_while_left:
                # A lost lock stays lost.
                self.over = self.over or LockError("not_held", self.name)

    def is_locked(self) -> bool:
        """Whether anybody holds it."""
        return any(self.client.view(self.name, key)["state"] != "free" for key in self.keys)

    def wait_lost(self, limit_s: float) -> Json:
        """Waits until the validity has ended."""
        last = time.monotonic() + limit_s
        while self.remaining_s and time.monotonic() < last:
            time.sleep(POLL_S)
        try:
            self.check()
        except LockError as lost:
            return {"lost": lost.json if self.rules.told else None, "told_ns": now_ns()}
        return {"lost": None, "told_ns": 0}

    def state(self) -> Json:
        """The lock's own view of its state."""
        read_ns, remaining = now_ns(), self.remaining_s
        slot = self.slot if remaining else None
        state = {"read_ns": read_ns, "held": remaining > 0, "remaining_ms": remaining * 1000}
        return {**state, "fence": self.fence, "slot": slot}


class Restoring(Lock):
    """A lock that is restored on nodes that have lost it, or a part of it."""

    def prolong(self, ended: threading.Event) -> tuple[bool, dict[Node, Answer]]:
        """Extends the lock, and restores it."""
        is_extended, answers = super().prolong(ended)
        if is_extended and self.rules.restores and not ended.is_set():
            value = [int(self.ttl_s * 1000), self.fence or 0, self.keep_ms, self.label]
            # A node that has not answered yet may lack it too. It executes this behind the extension.
            for node in (node for node in self.nodes if answers.get(node) is None):
                node.start(*self.command(self.script("restore"), *value))
        return is_extended, answers


class SetnxLock(Lock):
    """A lock object in the SETNX protocol, on one node; `ends` is the second in its key."""

    keeps_readers_out: ClassVar = False
    ends = 0

    def __init__(self, client: Client, names: list[bytes], options: Json) -> None:
        super().__init__(client, names, options)
        self.is_renewed = False
        if len(self.nodes) > 1:
            raise LockError("invalid_argument", self.name, message="the protocol setnx is for one node")

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
            ask(self.nodes[0].address, "DEL", self.keys[0])
        call = self.ask(self.rules.setnx_acquire, int(self.ttl_s * 1000))
        match self.answer(call):
            case int(ends):
                self.token, self.ends, self.over, self.limit = "held once", ends, None, start + 1e9
                self.hold_from(start, 0)
                return True
            case Exception() as error:
                if not self.rules.keeps_late_grants:
                    call.add_done_callback(self.give_back)
                raise LockError("unavailable", self.name, nodes={self.nodes[0].url: told(error)})
        return False

    def has_expired(self) -> bool:
        """Whether the key has a second that is over."""
        value = self.answer(self.nodes[0].start("GET", self.keys[0]))
        return isinstance(value, bytes) and int(value) < time.time()

    def give_back(self, call: Future[Answer]) -> None:
        """Releases what was granted too late."""
        if isinstance(ends := call.result(), int):
            self.ask(self.rules.setnx_release, ends)

    def extend(self, ttl_s: float | None) -> None:
        """Refuses: there is no extension."""
        raise LockError("invalid_argument", self.name, message="extend is not available with protocol setnx")

    def release(self) -> None:
        """Releases the lock; a second release does nothing."""
        if self.over and self.over.code == "not_held":
            if self.token:
                return
            raise self.over
        answer = self.answer(self.ask(self.rules.setnx_release, self.ends))
        if self.rules.repeats_release and isinstance(answer, Exception):
            later(0, self.owe, self.nodes[0], self.command(self.rules.setnx_release, self.ends))
        try:
            self.check()
            if isinstance(answer, Exception):
                raise LockError("unavailable", self.name, nodes={self.nodes[0].url: told(answer)})
            if answer != 1:
                raise LockError("lost", self.name, "deleted")
        finally:
            # A lost lock stays lost.
            self.over = self.over or LockError("not_held", self.name)


def tagged(name: bytes) -> bytes:
    """The end of a key that is in the slot of a cluster that has the name."""
    return b":" + name if b"{" in name else b"{" + name + b"}"


def is_ours(value: str | None) -> TypeGuard[str]:
    """Whether a value has a token, a fence and a label."""
    return value is not None and re.match(r"[^:]*:\d+:", value) is not None


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


def later(pause_s: float, action: Callable[..., object], *of: object) -> None:
    """Does something after a pause, in a thread that does not keep the process alive."""
    timer = threading.Timer(pause_s, action, of)
    timer.daemon = True
    timer.start()


def seconds(ms: float | None) -> float | None:
    """Converts milliseconds to seconds; `None` is without end."""
    return None if ms is None else ms / 1000
