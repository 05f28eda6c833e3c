"""Driver processes: one language each, asked by JSON lines; the protocol is described in tests/README.md.

    with drivers.start("python") as driver:
        lock = driver.client(nodes.urls).lock("a", ttl_ms=1000)
        lock.acquire()

A driver only does what it is told. Its answers are checked here (are they answers at all?) and in the test cases.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil

from conformance.history import History, Kind
from support.clock import now_ns
from support.process import start, stop_process

ANSWER_LIMIT_S = 20.0
"""Longest wait for an answer to any call."""

NOT_INHERITED = {"REDLOCK_URLS", "NODE_EXTRA_CA_CERTS"}
"""What a driver does not see of the environment. Node would read the certificates at each start."""

LINE_LIMIT = 1 << 20
"""Longest line of a driver, in bytes."""

REST_MS = 200
"""What a process may take to close a client, and still serve another test case."""

SHOWN_LINE = 1000
"""How much of a line a failure prints, in characters."""

MOST_PERMITS = 1_000
"""How many can hold a semaphore at most."""

TABLES = Path(__file__).parent / "tables"

Json = dict[str, Any]


@cache
def table(name: str) -> Json:
    """One of the tables that all languages share."""
    content: Json = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class Face:
    """One way to use the library from one language, and where the languages differ by design."""

    name: str
    language: str
    lock_objects: bool
    """A lock object is one holder that can be used again; in Rust a guard is, and release consumes it."""
    denies_by_value: bool
    """`acquire` returns false at the timeout; elsewhere this is an error."""
    cancels: bool
    """A call in flight can be ended from outside."""


FACES = {
    face.name: face
    for face in [
        Face("rust", "rust", lock_objects=False, denies_by_value=False, cancels=True),
        Face("rust-blocking", "rust", lock_objects=False, denies_by_value=False, cancels=False),
        Face("python", "python", lock_objects=True, denies_by_value=True, cancels=False),
        Face("asyncio", "python", lock_objects=True, denies_by_value=True, cancels=True),
        Face("node", "node", lock_objects=True, denies_by_value=False, cancels=True),
    ]
}


class LockError(Exception):
    """An error of the library, as a driver passed it on."""

    def __init__(self, error: Json, op: str) -> None:
        super().__init__(error["message"])
        self.code: str = error["code"]
        self.name: str | None = error["name"]
        self.reason: str | None = error["reason"]
        self.option: str | None = error["option"]
        self.nodes: list[tuple[str, str]] = [(node, answer) for node, answer in error["nodes"]]
        self.holder_label: str | None = error.get("holder_label")
        self.holder_ttl_left_ms: float | None = error.get("holder_ttl_left_ms")
        self.held_by_this_process: bool = error.get("held_by_this_process", False)
        self.message: str = error["message"]
        known = {case["code"]: case for case in table("errors")["cases"]}
        assert self.code in known, f"{self.code} is no code"
        row = known[self.code]
        assert error["retryable"] == row["retryable"], f"retryable is wrong: {error}"
        named = False if op in table("errors")["nameless"] else row["named"]
        assert named in (None, self.name is not None), f"the name is wrong: {error}"
        assert row["votes"] in (None, bool(self.nodes)), f"the answers of the nodes are wrong: {error}"
        reasons = table("errors")["lost_reasons"] if self.code == "lost" else [None]
        assert self.reason in reasons, f"the reason is wrong: {error}"


class DriverError(Exception):
    """The driver itself could not do what it was asked, broke the protocol or ended."""


@dataclass
class Call:
    """A request on its way."""

    id: int
    op: str
    took_ms: float = 0
    """How long it took in the driver, once its result was asked for."""
    _answer: queue.Queue[Json] = field(default_factory=lambda: queue.Queue(1))
    _then: Callable[[Json], None] = lambda _: None

    def deliver(self, answer: Json) -> None:
        """Used by the driver's reader."""
        self._answer.put_nowait(answer)

    @property
    def pending(self) -> bool:
        """Whether the driver has not answered yet."""
        return self._answer.empty()

    def result(self, limit_s: float = ANSWER_LIMIT_S) -> Json:
        """Waits for the answer and returns it, once; raises `LockError` or `DriverError`."""
        try:
            answer = self._answer.get(timeout=limit_s)
        except queue.Empty:
            raise DriverError(f"no answer to {self.op} (id {self.id}) within {limit_s:g} s") from None
        if "gone" in answer:
            raise DriverError(f"the driver ended before it answered {self.op} (id {self.id})")
        self._then(answer)
        self.took_ms = (answer["return_ns"] - answer["invoke_ns"]) / 1_000_000
        if "ok" in answer:
            result: Json = answer["ok"]
            return result | {"invoke_ns": answer["invoke_ns"], "return_ns": answer["return_ns"]}
        if answer["error"]["code"] == "driver":
            raise DriverError(answer["error"]["message"])
        raise LockError(answer["error"], self.op)


class Driver:
    """A driver process, started at once and after its hello; a context manager that kills it.

    Starting one takes longer than most stories, so it serves others afterwards, if it comes to `rest`.
    """

    def __init__(
        self, face: Face, command: Sequence[str], history: History, label: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.face = face
        self.label = label
        self.history = history
        self.held: dict[int, Lock | Election] = {}
        """What is held, by handle."""
        self.elections: list[Election] = []
        self._clients: list[Client] = []
        self._is_fresh = True
        self._is_spoiled = False
        self._ids = itertools.count(1)
        self._calls: dict[int, Call] = {}
        """The calls without an answer."""
        self._lines: list[str] = []
        self._answers: list[str] = []
        self._lock = threading.Lock()
        self._hello: queue.Queue[Json] = queue.Queue(1)
        self._written = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the driver)
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        self._process = start([*command, "--face", face.name], self._errors, env=inherited | dict(env or {}))
        self._reader = threading.Thread(target=self._read, name=label, daemon=True)
        self._reader.start()
        try:
            self.hello: Json = self._hello.get(timeout=ANSWER_LIMIT_S)
        except queue.Empty:
            self.stop()
            raise DriverError(f"{label} did not say hello within {ANSWER_LIMIT_S:g} s") from None
        if "gone" in self.hello:
            self.stop()
            raise DriverError(f"{label} ended before it said hello: {' '.join(command)}\n{self.log()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, op: str, then: Callable[[Json], None] = lambda _: None, **fields: Any) -> Call:
        """Sends a request; `then` is called with the whole answer when the result is asked for."""
        with self._lock:
            call = Call(next(self._ids), op, _then=then)
            self._calls[call.id] = call
            line = json.dumps({"id": call.id, "op": op, **fields})
            self._note(">", line)
            assert self._process.stdin
            try:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            except OSError as error:
                raise DriverError(f"{self.label} takes no requests any more: {error}") from None
        return call

    def begin(self, history: History, label: str) -> None:
        """Begins to serve another test case."""
        self.history, self.label, self._is_fresh = history, label, False
        self.held, self.elections, self._clients, self._lines, self._answers = {}, [], [], [], []

    def rest(self) -> bool:
        """Closes its clients, so that it can serve another test case; false if it may still be busy with this one."""
        if self._is_spoiled or self.elections or self._calls or self._process.poll() is not None:
            return False
        try:
            closing = [self.start("close", client=each.handle, limit_ms=REST_MS) for each in self._clients]
            for call in closing:
                call.result()
        except (DriverError, LockError):
            return False
        return all(call.took_ms < REST_MS for call in closing)

    def spoil(self) -> None:
        """Lets it serve no other test case."""
        self._is_spoiled = True

    def _of_its_whole_life(self) -> None:
        assert self._is_fresh, "other test cases are in what this process tells of itself: start it with `fresh`"

    def threads(self) -> int:
        """How many threads it has."""
        self._of_its_whole_life()
        return psutil.Process(self._process.pid).num_threads()

    def call(self, op: str, **fields: Any) -> Json:
        """Sends a request and waits for its answer."""
        return self.start(op, **fields).result()

    def client(self, nodes: Sequence[str] | None, **options: object) -> Client:
        """A client in the driver, by default for the nodes in its environment; options as in `tables/options.json`."""
        given = {} if nodes is None else {"nodes": list(nodes)}
        self._clients.append(Client(self, self.call("client", options=options, **given)["handle"], options))
        return self._clients[-1]

    def stats(self) -> Json:
        """The metrics of the process by name."""
        return self.snapshot()[0]

    def snapshot(self) -> tuple[Json, str]:
        """The same, and the text that stands for them in the format of OpenMetrics."""
        self._of_its_whole_life()
        told = self.call("stats")
        return told["metrics"], told["openmetrics"]

    def events(self) -> list[Json]:
        """What the process has logged since the last call."""
        self._of_its_whole_life()
        events: list[Json] = self.call("events")["events"]
        return events

    def limit_open_files(self, most: int) -> None:
        """Lets the process open no file beyond so many."""
        self.spoil()
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (most, most))

    def freeze(self) -> None:
        """Stops the process without ending it, as a suspend or a long pause does."""
        self.spoil()
        if not stop_process(self._process.pid):
            raise DriverError(f"{self.label} ended instead of stopping")

    def thaw(self) -> None:
        """Lets the process continue."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> int:
        """Ends the process as a crash would; returns an instant of `CLOCK_MONOTONIC` after its end, in ns."""
        invoke_ns = now_ns()
        self._process.kill()
        self._process.wait(ANSWER_LIMIT_S)
        return self._abandon(invoke_ns)

    def _abandon(self, invoke_ns: int) -> int:
        """Records that nobody relies on the process's locks any more."""
        return_ns = now_ns()
        for holder in list(self.held.values()):
            holder.abandoned({"invoke_ns": invoke_ns, "return_ns": return_ns})
        return return_ns

    def stop(self) -> None:
        """Kills it, whatever it does, at the end of a test case. How its terms have ended is recorded before."""
        if self._process.poll() is None:
            with contextlib.suppress(DriverError):
                for election in self.elections:
                    election.terms()
            self._process.kill()
            self._process.wait(ANSWER_LIMIT_S)
        self._reader.join(ANSWER_LIMIT_S)
        self._stderr()
        self._errors.close()
        if self._process.stdin:
            # Lines that the driver has not read cannot be flushed.
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def log(self) -> str:
        """Every line in both directions, then what the process wrote to its standard error."""
        errors = self._stderr()
        code = self._process.poll()
        end = "" if code is None else f"\n(exit code {code})"
        return "\n".join(self._lines) + end + (f"\nstandard error:\n{errors}" if errors else "")

    def said(self) -> str:
        """All that the process has written so far, on either output."""
        return "\n".join([*self._answers, self._stderr()])

    def _stderr(self) -> str:
        if not self._errors.closed:
            # This must not move the position, which the process shares.
            self._written = os.pread(self._errors.fileno(), LINE_LIMIT, 0).decode(errors="replace")
        return self._written

    def _note(self, direction: str, line: str) -> None:
        shown = line if len(line) <= SHOWN_LINE else f"{line[:SHOWN_LINE]}..."
        self._lines.append(f"{time.monotonic():.6f} {direction} {shown}")

    def _read(self) -> None:
        assert self._process.stdout
        while line := self._process.stdout.readline(LINE_LIMIT):
            text = line.decode(errors="replace").rstrip("\n")
            self._note("<", text)
            self._answers.append(text)
            try:
                answer = json.loads(text)
                if "hello" in answer:
                    self._hello.put(answer["hello"])
                else:
                    self._calls.pop(answer["id"]).deliver(answer)
            except (ValueError, KeyError, TypeError, queue.Full) as error:
                self._note("!", f"this is no answer that was waited for: {error!r}")
                break
        self._process.stdout.close()
        if self._hello.empty():
            with contextlib.suppress(queue.Full):
                self._hello.put_nowait({"gone": True})
        with self._lock:
            for call in self._calls.values():
                # A full queue has its answer.
                with contextlib.suppress(queue.Full):
                    call.deliver({"gone": True})


class Client:
    """A client in a driver."""

    def __init__(self, driver: Driver, handle: int, options: Json) -> None:
        self.driver = driver
        self.handle = handle
        self.options = options
        self._locks: list[Lock] = []

    def lock(self, name: str | bytes, **options: object) -> Lock:
        """A lock; options are named as in `tables/options.json`."""
        handle = self._make("lock", options, name=in_hex(name))
        return self._kept(handle, [self._key(name)], self.options | options)

    def lock_by_text(self, text: str) -> Lock:
        """A lock whose name is the language's own text, and not bytes."""
        handle = self._make("lock", {}, text=text)
        return self._kept(handle, [text.encode(errors="surrogatepass")], self.options)

    def lock_all(self, names: Sequence[str | bytes], **options: object) -> Lock:
        """A lock of several names."""
        handle = self._make("lock_all", options, names=[in_hex(name) for name in names])
        return self._kept(handle, [self._key(name) for name in names], self.options | options)

    def semaphore(self, name: str | bytes, permits: object, **options: object) -> Lock:
        """A lock of one slot of a semaphore."""
        handle = self._make("semaphore", options, name=in_hex(name), permits=permits)
        return self._kept(handle, [self._key(name)], self.options | options, permits)

    def attach(self, text: str, former: Lock, **options: object) -> Lock:
        """The lock that goes on with the hold of this text, of `former`. It is the same in the history."""
        answer = self.start_attach(text, **options).result()
        lock = self._kept(answer["handle"], former.names, self.options)
        lock.attached(former, answer)
        return lock

    def start_attach(self, text: str, **options: object) -> Call:
        """Starts to attach a detached lock."""
        return self.driver.start("attach", client=self.handle, text=text, options=options)

    def election(self, name: str | bytes, **options: object) -> Election:
        """A candidate of an election."""
        handle = self._make("election", options, name=in_hex(name))
        return Election(self.driver, handle, self._key(name))

    def inspect(self, name: str | bytes) -> Json:
        """What the nodes show of a name, together and each."""
        return self.driver.call("inspect", client=self.handle, name=in_hex(name))

    def inspect_semaphore(self, name: str | bytes, permits: object) -> list[Json]:
        """What the nodes show of each slot of a semaphore."""
        fields = {"name": in_hex(name), "permits": permits}
        views: list[Json] = self.driver.call("inspect_semaphore", client=self.handle, **fields)["views"]
        return views

    def list_locks(self, pattern: str | bytes, most: int = 1_000_000) -> list[Json]:
        """What the nodes show of the locks that are held and match a pattern: all of them, or the first ones only.

        They come in no order, and are sorted here.
        """
        views: list[Json] = self.driver.call("list_locks", client=self.handle, name=in_hex(pattern), most=most)["views"]
        return sorted(views, key=lambda view: (view["name"], view["slot"] or 0))

    def start_wait_free(self, name: str | bytes, timeout_ms: float | None = None) -> Call:
        """Starts to wait until a lock is free, by default for ever."""
        return self.driver.start("wait_free", client=self.handle, name=in_hex(name), timeout_ms=timeout_ms)

    def wait_free(self, name: str | bytes, timeout_ms: float | None = None) -> bool:
        """Waits until a lock is free, and returns whether it was."""
        free: bool = self.start_wait_free(name, timeout_ms).result()["free"]
        return free

    def break_lock(self, name: str | bytes, slot: object = None) -> Json | None:
        """Deletes a lock, and tells whose it was."""
        fields = {"name": in_hex(name), "slot": slot}
        views: list[Json] = self.driver.call("break_lock", client=self.handle, **fields)["views"]
        return views[0] if views else None

    def diagnose(self) -> list[Json]:
        """What was found about every node."""
        nodes: list[Json] = self.driver.call("diagnose", client=self.handle)["nodes"]
        return nodes

    def start_close(self, limit_ms: int = 2000) -> Call:
        """Starts to close the client."""
        return self.driver.start("close", self._closed, client=self.handle, limit_ms=limit_ms)

    def close(self, limit_ms: int = 2000) -> None:
        """Closes the client, and waits up to this long for the release of its locks, which it holds no more."""
        self.start_close(limit_ms).result()

    def _closed(self, answer: Json) -> None:
        for lock in self._locks:
            if lock.handle in self.driver.held:
                lock.abandoned(answer)

    def _kept(self, handle: int, names: Sequence[bytes], options: Json, permits: object = None) -> Lock:
        self._locks.append(Lock(self.driver, handle, names, options, permits))
        return self._locks[-1]

    def _make(self, op: str, options: Json, **fields: object) -> int:
        handle: int = self.driver.call(op, client=self.handle, options=options, **fields)["handle"]
        return handle

    def _key(self, name: str | bytes) -> bytes:
        return str(self.options.get("key_prefix", "")).encode() + in_bytes(name)


def in_bytes(name: str | bytes) -> bytes:
    """A name as bytes."""
    return name.encode() if isinstance(name, str) else name


def in_hex(name: str | bytes) -> str:
    """A name as it travels."""
    return in_bytes(name).hex()


class MemoryServer:
    """A server in memory in a driver, as the library offers it to the tests of programs."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        answer = driver.call("server")
        self.url: str = answer["url"]
        self._handle = answer["handle"]

    def hold(self, name: str, **ttl: float) -> None:
        """Has somebody else hold a name, with `ttl_ms=...` for so long."""
        self._act("hold", name=name.encode().hex(), **ttl)

    def release(self, name: str) -> None:
        """Has somebody else release it."""
        self._act("release", name=name.encode().hex())

    def wipe(self) -> None:
        """Deletes every key."""
        self._act("wipe")

    def advance(self, by_ms: float) -> None:
        """Moves its clock forward."""
        self._act("advance", by_ms=by_ms)

    def set_available(self, available: bool) -> None:
        """Whether it does what it is asked."""
        self._act("set_available", available=available)

    def _act(self, action: str, **of: object) -> None:
        self._driver.call("at_server", server=self._handle, action=action, **of)


class Lock:
    """A lock object in a driver (in Rust: a lock and its current guard). Records its history."""

    def __init__(
        self, driver: Driver, handle: int, names: Sequence[bytes], options: Json, permits: object = None
    ) -> None:
        self.driver = driver
        self.handle = handle
        self.names = sorted(set(names))
        self.name = b", ".join(self.names)
        self.fence: int | None = None
        self.slot: int | None = None
        self._options = options
        # Other numbers are refused.
        self._permits = permits if isinstance(permits, int) and 0 < permits <= MOST_PERMITS else None
        self._hold: int | None = None
        """The fence; in a protocol without fences, the time of the acquire stands for it in the history."""
        self._recorded_as = f"{driver.label}/{handle}"
        self._renewed = options.get("auto_renew", options.get("protocol") != "setnx")

    def start_acquire(self, **timeout: Any) -> Call:
        """Starts an acquire: with `timeout_ms=...` (`None`: for ever), or the lock's own timeout."""
        return self.driver.start("acquire", self._acquired, lock=self.handle, **timeout)

    def acquire(self, **timeout: Any) -> Json:
        """Acquires the lock, and fails if it does not get it."""
        result = self.start_acquire(**timeout).result()
        assert result["acquired"], "denied by value"
        return result

    def denied(self, call: Call) -> bool:
        """Whether `call`, an acquire, has ended at its timeout, which every language reports in its own way."""
        try:
            acquired: bool = call.result()["acquired"]
        except LockError as error:
            return error.code == "timeout" and not self.driver.face.denies_by_value
        return not acquired and self.driver.face.denies_by_value

    def timeout(self) -> LockError:
        """The error of an acquire that does not get the lock in time; in Python, of entering the block."""
        if not self.driver.face.denies_by_value:
            call = self.start_acquire()
        else:
            call = self.driver.start("enter", lock=self.handle)
        try:
            call.result()
        except LockError as error:
            if error.code != "timeout":
                raise
            return error
        raise AssertionError("acquired")

    def start_try_acquire(self) -> Call:
        """Starts a single try."""
        return self.driver.start("try_acquire", self._acquired, lock=self.handle)

    def try_acquire(self) -> bool:
        """Tries once."""
        acquired: bool = self.start_try_acquire().result()["acquired"]
        return acquired

    def detach(self, **ttl: Any) -> str:
        """Ends its hold without a release, with `ttl_ms=...` after an extension. Returns the text."""
        text: str = self.driver.call("detach", lock=self.handle, **ttl)["text"]
        self.over()
        return text

    def attached(self, former: Lock, state: Json) -> None:
        """Goes on with the hold of `former`."""
        self.fence, self.slot, self._hold = state["fence"], state["slot"], former._hold
        self._recorded_as, self._options, self._permits = former._recorded_as, former._options, former._permits
        self.driver.held[self.handle] = self

    def lose(self, reason: str) -> None:
        """Has it lose its lock, as the library offers it to the tests of programs."""
        self.driver.start("lose", self._given_up, lock=self.handle, reason=reason).result()

    def is_locked(self) -> bool:
        """Whether anybody holds it, asked of the nodes."""
        is_locked: bool = self.driver.call("is_locked", lock=self.handle)["is_locked"]
        return is_locked

    def extend(self, **ttl: Any) -> Json:
        """Extends it: `ttl_ms=...`, or the ttl in force."""
        fence = self._hold

        def then(answer: Json) -> None:
            # An extend of a lock that was never acquired does not belong to any hold.
            if fence is not None:
                self.record(Kind.EXTEND, answer, ok="ok" in answer, fence=fence, state=answer.get("ok"))

        return self.driver.start("extend", then, lock=self.handle, **ttl).result()

    def release(self) -> None:
        """Releases it. Only the first release of an acquisition is recorded; later ones change nothing."""
        self.driver.start("release", self._given_up, lock=self.handle).result()

    def leave(self) -> None:
        """Leaves the block that holds it; in Rust, its guard is dropped."""
        self.driver.start("leave", self._given_up, lock=self.handle).result()

    def check(self) -> None:
        """Asks whether it is held; raises `LockError` if not."""
        self.driver.call("check", lock=self.handle)

    def state(self) -> Json:
        """`held`, `remaining_ms`, `fence`, `slot`, and `read_ns`, an instant just before they were read."""
        return self.driver.call("state", lock=self.handle)

    def shown_names(self) -> Json:
        """Its `name` and its `names`, as its language shows them while it is held."""
        answer = self.driver.call("names", lock=self.handle)
        return {"name": answer["name"], "names": [bytes.fromhex(name).decode() for name in answer["names"]]}

    def start_wait_lost(self, limit_ms: int) -> Call:
        """Starts to wait for the loss; the result's `lost` is the error or `None`."""

        def then(answer: Json) -> None:
            if answer.get("ok", {}).get("lost"):
                told_ns, reason = answer["ok"]["told_ns"], answer["ok"]["lost"]["reason"]
                self.record(Kind.LOST, {"invoke_ns": told_ns, "return_ns": told_ns}, ok=True, reason=reason)

        return self.driver.start("wait_lost", then, lock=self.handle, limit_ms=limit_ms)

    def cancel(self, call: Call) -> None:
        """Cancels a call in flight."""
        self.driver.call("cancel", call=call.id)

    def over(self) -> None:
        """Records that nobody relies on the lock any more."""
        self.driver.held.pop(self.handle, None)

    def abandoned(self, end: Json) -> None:
        """Records that its process has ended."""
        self.record(Kind.RELEASE, end, ok=False)
        self.over()

    def record(
        self,
        kind: Kind,
        answer: Json,
        *,
        ok: bool,
        fence: int | None = None,
        state: Json | None = None,
        **more: int | str | None,
    ) -> None:
        """Adds what happened to the history."""
        until_ns = None
        if state and not self._renewed:
            # The end of a renewed lock is not known here: its hold ends with the release or the loss.
            until_ns = state["read_ns"] + int(state["remaining_ms"] * 1e6)
        names = [name.decode(errors="backslashreplace") for name in self.names]
        self.driver.history.add(
            client=self._recorded_as,
            name=", ".join(names),
            kind=kind,
            invoke_ns=answer["invoke_ns"],
            return_ns=answer["return_ns"],
            ok=ok,
            fence=self._hold if fence is None and kind is not Kind.ACQUIRE else fence,
            valid_until_ns=until_ns,
            names=names if len(names) > 1 else None,
            slot=self.slot if ok or kind is not Kind.ACQUIRE else None,
            permits=self._permits if kind is Kind.ACQUIRE else None,
            shared=True if self._options.get("shared") else None,
            **more,
        )

    def _kept(self, state: Json) -> dict[str, int | None]:
        """Until when others cannot get a lock that was just acquired, whatever becomes of it."""
        ttl_ms = self._options.get("ttl_ms", 10_000)
        margin_ms = self._options.get("margin_ms")
        at_least_ms = self._options.get("at_least_ms")
        least_until_ns = None
        if at_least_ms is not None:
            # The end of the validity tells when its attempt began, or a little earlier because of the drift.
            began_ms = state["read_ns"] / 1e6 + state["remaining_ms"] - ttl_ms + (margin_ms or 0)
            # Clocks of servers may run faster.
            least_until_ns = int((began_ms + at_least_ms - at_least_ms / 100 - 2) * 1e6)
        # The end of a renewed lock is not known here, and so neither is that of its margin.
        margin_ns = None if margin_ms is None or self._renewed else int(margin_ms * 1e6)
        return {"least_until_ns": least_until_ns, "margin_ns": margin_ns}

    def _given_up(self, answer: Json) -> None:
        if self.handle in self.driver.held:
            # What is left of a lost lock is released too.
            self.record(Kind.RELEASE, answer, ok="ok" in answer or answer["error"]["code"] == "lost")
            self.over()

    def _acquired(self, answer: Json) -> None:
        state = answer.get("ok", {})
        if state.get("acquired"):
            self.fence = state["fence"]
            self.slot = state.get("slot")
            self._hold = answer["return_ns"] if self.fence is None else self.fence
            self.driver.held[self.handle] = self
            self.record(Kind.ACQUIRE, answer, ok=True, fence=self._hold, state=state, **self._kept(state))
        else:
            self.record(Kind.ACQUIRE, answer, ok=False)


class Election:
    """A candidate in a driver, whose body lasts until the test ends it. Records its terms."""

    def __init__(self, driver: Driver, handle: int, name: bytes) -> None:
        self.driver = driver
        self.handle = handle
        self.name = name
        self._campaigns_ns = 0
        self._terms: list[Json] = []
        """The terms, as they were at the last look."""
        self._ended = 0
        """How many of them were over."""
        driver.elections.append(self)

    def start_run(self, *, lingers: bool = False, detaches: bool = False) -> Call:
        """Starts a candidacy; the result is what the body returned: the fence of its term.

        A body that lingers does not end when it is told to, but only when the test ends it. One that detaches first
        tries to hand over its term, whose entry `detach` then has the code of the refusal.
        """
        self._campaigns_ns = now_ns()
        return self.driver.start("run", election=self.handle, lingers=lingers, detaches=detaches)

    def terms(self) -> list[Json]:
        """Every term so far: `fence`, `began_ns`, and once it is over `over_ns` and `how`: returned, failed or cut."""
        seen = self.driver.call("terms", election=self.handle)
        begun, self._terms = len(self._terms), seen["terms"]
        for number, term in enumerate(self._terms):
            if number >= begun:
                self._record(Kind.ACQUIRE, term, self._campaigns_ns, term["began_ns"], number=term["fence"])
                self.driver.held[self.handle] = self
            over_ns = term["over_ns"]
            if number >= self._ended and over_ns is not None:
                is_lost = term["how"] == "cut" and not seen["stopped"]
                self._record(Kind.LOST if is_lost else Kind.RELEASE, term, over_ns, over_ns)
                self._ended, self._campaigns_ns = number + 1, over_ns
                self.driver.held.pop(self.handle, None)
        return self._terms

    @property
    def leads(self) -> bool:
        """Whether its body runs."""
        terms = self.terms()
        return bool(terms) and terms[-1]["over_ns"] is None

    def end_term(self, *, fail: bool = False) -> None:
        """Has the body return, or fail."""
        self.driver.call("end_term", election=self.handle, fail=fail)

    def stop(self) -> None:
        """Stops it."""
        self.driver.call("stop", election=self.handle)

    def is_stopped(self) -> bool:
        """Whether it was stopped."""
        stopped: bool = self.driver.call("terms", election=self.handle)["stopped"]
        return stopped

    def leader(self) -> Json | None:
        """Who leads, as the nodes show it: `label` and `term`."""
        leader: Json | None = self.driver.call("leader", election=self.handle)["leader"]
        return leader

    def abandoned(self, end: Json) -> None:
        """Records that its process has ended."""
        self._record(Kind.RELEASE, self._terms[-1], end["invoke_ns"], end["return_ns"], ok=False)
        self.driver.held.pop(self.handle, None)

    def _record(
        self, kind: Kind, term: Json, invoke_ns: int, return_ns: int, *, ok: bool = True, number: int | None = None
    ) -> None:
        self.driver.history.add(
            client=f"{self.driver.label}/{self.handle}",
            name=self.name.decode(errors="backslashreplace"),
            kind=kind,
            invoke_ns=invoke_ns,
            return_ns=return_ns,
            ok=ok,
            fence=term["fence"],
            term=number,
        )
