"""A driver with one planted fault, which the suite must find; without one it passes the stories that find them.

A lock of its own, in the plain protocol, in the place of the face `python`; see test_suite_bites.py. A fault is a row
of `FAULTS`: what is right is the default of `Rules`, and the row says what is different.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.append(str(Path(__file__).parents[1] / "conformance"))
from driver import table
from history import now_ns
from servers import Reply, ReplyError, Word, ask

Json = dict[str, Any]

# KEYS: the lock's key, its fence key. ARGV: the token, then what the script needs.
ACQUIRE = """
if redis.call("EXISTS", KEYS[1]) == 1 then return false end
local fence = redis.call("INCR", KEYS[2])
redis.call("SET", KEYS[1], ARGV[1] .. ":" .. redis.call("GET", KEYS[2]) .. ":" .. ARGV[3], "PX", ARGV[2])
return fence
"""
OURS = """
local begin = ARGV[1] .. ":"
local ours = string.sub(redis.call("GET", KEYS[1]) or "", 1, #begin) == begin
"""
CONFIRM = (
    OURS
    + """
if ours and tonumber(redis.call("GET", KEYS[2])) < tonumber(ARGV[2]) then redis.call("SET", KEYS[2], ARGV[2]) end
return ours and 1
"""
)
EXTEND = OURS + 'return ours and redis.call("PEXPIRE", KEYS[1], ARGV[2])'
RELEASE = OURS + 'return ours and redis.call("DEL", KEYS[1])'
RECREATE = 'if redis.call("EXISTS", KEYS[1]) == 0 then redis.call("SET", KEYS[1], ARGV[1] .. ":") end'

POLL_S = 0.002
OPTIONS = {option for case in table("options")["cases"] if "ok" in case for option in case["options"]}


@dataclass(frozen=True)
class Rules:
    """What is right, as far as a fault changes it."""

    acquire: str = ACQUIRE
    confirm: str = CONFIRM
    extend: str = EXTEND
    release: str = RELEASE
    key: Callable[[bytes], bytes] = lambda name: name
    fence: Callable[[int], int] = lambda fence: fence
    drift: Callable[[float], float] = lambda ttl_s: ttl_s / 100 + 0.002
    shown: Callable[[str], str] = lambda url: url.partition("?")[0]
    label: Callable[[str], str] = lambda value: value.split(":", 2)[2]
    options: Callable[[Json], Json] = lambda given: {name: given[name] for name in given if name not in OPTIONS}
    over_at_end: bool = True
    told: bool = True
    cleans_up: bool = True
    enough: Callable[[int], int] = lambda n: n // 2 + 1
    late_s: float = 0
    one_holder: bool = True
    votes: bool = True


FAULTS = {
    "none": Rules(),
    # Release deletes the key, whoever owns it.
    "blind-release": Rules(release='return redis.call("DEL", KEYS[1])'),
    # Release deletes the key of a token that only begins like its own.
    "prefix-release": Rules(release=RELEASE.replace(' .. ":"', "")),
    # A lock counts as held until it is released, whatever its ttl.
    "held-for-ever": Rules(over_at_end=False),
    # A lock counts as held for its whole ttl, though clocks differ.
    "no-drift": Rules(drift=lambda _: 0),
    # A fence is smaller than the one before.
    "falling-fence": Rules(fence=lambda fence: (1 << 50) - fence),
    # Of the granted fences the largest is taken, and the other nodes do not hear of it.
    "unconfirmed-fence": Rules(confirm="return 1"),
    # An acquire overwrites the key of a holder.
    "two-holders": Rules(acquire=ACQUIRE.replace("return false end", "end")),
    # Nobody is told of a loss.
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
    # A name that is no UTF-8 is replaced by one that is.
    "mangled-name": Rules(key=lambda name: name.decode(errors="replace").encode()),
    # An option that does not exist is dropped.
    "any-option": Rules(options=lambda _: {}),
    # The error of an attempt does not say what the nodes answered.
    "no-votes": Rules(votes=False),
    # The address in an error is shown with its password.
    "told-password": Rules(shown=lambda url: url),
    # What inspection shows of a holder is the whole value, token and all.
    "told-token": Rules(label=lambda value: value),
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
            "nodes": list((nodes or {}).items()),
            "message": message or f"{code}: {name!r} {nodes}",
            "retryable": code in {"timeout", "unavailable"},
        }


class Node:
    """A node, for one lock: a worker sends one command after the other, so that a delete follows its create."""

    def __init__(self, url: str, node_timeout_s: float) -> None:
        self.url, self.path = url, Path(urlsplit(url).path)
        self.login = [word for key in ("user", "pass") for word in parse_qs(urlsplit(url).query).get(key, [])]
        self.node_timeout_s = node_timeout_s
        self.worker = ThreadPoolExecutor(1)

    def start(self, *words: Word) -> Future[Reply | Exception]:
        """Begins to ask it; an error is an answer, too."""

        def asked() -> Reply | Exception:
            try:
                return self.ask(*words)
            except (OSError, ReplyError) as error:
                return error

        return self.worker.submit(asked)

    def ask(self, *words: Word) -> Reply:
        """Asks it; the user's password is tried before, on a connection of its own."""
        if self.login:
            ask(self.path, "AUTH", *self.login, limit_s=self.node_timeout_s)
        return ask(self.path, *words, limit_s=self.node_timeout_s)


class Client:
    """The nodes and the options of locks."""

    def __init__(self, rules: Rules, urls: list[str], options: Json) -> None:
        self.rules, self.urls = rules, urls
        self.options = self.read(options)

    def read(self, options: Json) -> Json:
        """Refuses options that do not exist."""
        if wrong := self.rules.options(options):
            raise LockError("invalid", None, message=f"no such option: {', '.join(wrong)}")
        return options

    def inspect(self, name: bytes) -> Json:
        """What every node has under a name."""
        views = []
        for url in self.urls:
            value = Node(url, 1).ask("GET", self.rules.key(name))
            held = isinstance(value, bytes) and value.count(b":") > 1
            label = self.rules.label(value.decode()) if held and isinstance(value, bytes) else None
            state = "free" if value is None else "held" if held else "foreign"
            views.append({"node": self.rules.shown(url), "state": state, "label": label})
        return {"nodes": [{**view, "fence": None, "ttl_left_ms": None} for view in views]}


class Lock:
    """A lock object."""

    def __init__(self, client: Client, name: bytes, options: Json) -> None:
        options = client.options | client.read(options)
        self.rules = client.rules
        self.name = name
        self.label = options.get("owner", "")
        self.ttl_s = options.get("ttl_ms", 10_000) / 1000
        self.timeout_s = seconds(options.get("timeout_ms"))
        self.node_timeout_s = options.get("node_timeout_ms", 500) / 1000
        self.nodes = [Node(url, self.node_timeout_s) for url in client.urls]
        self.quorum = len(self.nodes) // 2 + 1
        self.token = ""
        self.fence: int | None = None
        self.end = 0.0
        self.over: LockError | None = LockError("not_held", name)

    @property
    def remaining_s(self) -> float:
        """How long it is valid."""
        if self.over:
            return 0
        return max(0, self.end - time.monotonic()) if self.rules.over_at_end else self.ttl_s

    def check(self) -> None:
        """Fails unless it is held."""
        if self.over:
            raise self.over
        if not self.remaining_s:
            self.lose("expired")

    def lose(self, reason: str) -> None:
        """Ends the hold."""
        self.over = LockError("lost", self.name, reason)
        raise self.over

    def round(self, script: str, *words: Word) -> dict[Node, Reply | Exception]:
        """Runs a script on all nodes; the answers that came before enough agreed, or before node_timeout."""
        key = self.rules.key(self.name)
        keys = (2, key, b"redlock:fence:{" + key + b"}")
        calls = {node.start("EVAL", script, *keys, self.token, *words): node for node in self.nodes}
        enough = self.rules.enough(len(calls))
        answers: dict[Node, Reply | Exception] = {}
        # What comes later than node_timeout does not count.
        with contextlib.suppress(TimeoutError):
            for call in as_completed(calls, timeout=self.node_timeout_s):
                answers[calls[call]] = call.result()
                if len(granting(answers)) >= enough:
                    break
        return answers

    def attempt(self) -> bool:
        """Tries once; false if others hold it."""
        start, self.token, ttl_ms = time.monotonic(), secrets.token_hex(16), int(self.ttl_s * 1000)
        answers = self.round(self.rules.acquire, ttl_ms, self.label)
        if len(granted := granting(answers)) >= self.quorum:
            largest = max(int(str(answers[node])) for node in granted)
            if len(granting(self.round(self.rules.confirm, largest))) >= self.quorum:
                self.over, self.end = None, start + self.ttl_s - self.rules.drift(self.ttl_s)
                self.fence = self.rules.fence(largest)
                return True
        if self.rules.cleans_up:
            self.round(RELEASE)
        said = {self.rules.shown(node.url): told(answers.get(node, TimeoutError())) for node in self.nodes}
        if sum(not isinstance(answer, Exception) for answer in answers.values()) >= self.quorum:
            return False
        refused = any(answer.startswith(("WRONGPASS", "NOAUTH")) for answer in said.values())
        code = "forbidden" if refused else "unavailable"
        raise LockError(code, self.name, nodes=said if self.rules.votes else {})

    def acquire(self, timeout_s: float | None) -> bool:
        """Waits for it; `None` is for ever."""
        if self.remaining_s:
            if self.rules.one_holder:
                raise LockError("already_held", self.name)
            return True
        last = time.monotonic() + (1e9 if timeout_s is None else timeout_s) + self.rules.late_s
        while True:
            try:
                if self.attempt():
                    return True
            except LockError as error:
                if error.code == "forbidden" or time.monotonic() > last:
                    raise
            else:
                if time.monotonic() > last:
                    return False
            time.sleep(POLL_S)

    def extend(self, ttl_s: float | None) -> None:
        """Extends it from now."""
        self.check()
        self.ttl_s, start = ttl_s or self.ttl_s, time.monotonic()
        if len(granting(self.round(self.rules.extend, int(self.ttl_s * 1000)))) < self.quorum:
            self.lose("deleted")
        self.end = start + self.ttl_s - self.rules.drift(self.ttl_s)

    def release(self) -> None:
        """Releases it; again is a no-op."""
        if self.over and self.over.code == "not_held":
            if self.token:
                return
            raise self.over
        released = len(granting(self.round(self.rules.release))) >= self.quorum
        try:
            self.check()
            if not released:
                self.lose("taken")
        finally:
            # What was lost stays lost.
            self.over = self.over or LockError("not_held", self.name)

    def wait_lost(self, limit_s: float) -> Json:
        """Waits until its validity is over."""
        time.sleep(min(limit_s, self.remaining_s))
        try:
            self.check()
        except LockError as lost:
            return {"lost": lost.json if self.rules.told else None, "told_ns": now_ns()}
        return {"lost": None, "told_ns": 0}

    def state(self) -> Json:
        """What it says of itself."""
        read_ns, remaining = now_ns(), self.remaining_s
        return {"read_ns": read_ns, "held": remaining > 0, "remaining_ms": remaining * 1000, "fence": self.fence}


def granting(answers: dict[Node, Reply | Exception]) -> list[Node]:
    """The nodes that did what was asked."""
    return [node for node, answer in answers.items() if isinstance(answer, int)]


def told(answer: Reply | Exception) -> str:
    """A node's answer in an error."""
    if isinstance(answer, ReplyError):
        return str(answer)
    if isinstance(answer, Exception):
        return type(answer).__name__
    return "held" if answer is None else "granted"


def seconds(ms: float | None) -> float | None:
    """Milliseconds in seconds; `None` is without end."""
    return None if ms is None else ms / 1000


def perform(rules: Rules, kept: list[Any], request: Json) -> Json:
    """Does what a request asks for."""

    def keep(value: object) -> Json:
        kept.append(value)
        return {"handle": len(kept) - 1}

    match request["op"]:
        case "client":
            return keep(Client(rules, request["nodes"], request["options"]))
        case "lock":
            return keep(Lock(kept[request["client"]], bytes.fromhex(request["name"]), request["options"]))
        case "inspect":
            client: Client = kept[request["client"]]
            return client.inspect(bytes.fromhex(request["name"]))
    return perform_on(kept[request["lock"]], request)


def perform_on(lock: Lock, request: Json) -> Json:
    """Does what is asked of a lock."""
    match request["op"]:
        case "acquire":
            timeout_s = seconds(request["timeout_ms"]) if "timeout_ms" in request else lock.timeout_s
            return {"acquired": lock.acquire(timeout_s), **lock.state()}
        case "try_acquire":
            return {"acquired": lock.acquire(0), **lock.state()}
        case "extend":
            lock.extend(seconds(request.get("ttl_ms")))
        case "release":
            lock.release()
        case "check":
            lock.check()
        case "wait_lost":
            return lock.wait_lost(request["limit_ms"] / 1000)
    return lock.state()


def answer(rules: Rules, kept: list[Any], request: Json) -> None:
    """Performs a request and writes its answer."""
    invoke_ns, result = now_ns(), {}
    try:
        result = {"ok": perform(rules, kept, request)}
    except LockError as error:
        result = {"error": error.json}
    say({"id": request["id"], **result, "invoke_ns": invoke_ns, "return_ns": now_ns()})


def say(line: Json) -> None:
    """Writes a line, whole even where threads write at once."""
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
    for line in sys.stdin:
        threading.Thread(target=answer, args=[FAULTS[given.fault], kept, json.loads(line)]).start()


if __name__ == "__main__":
    main()
