"""Performs the suite's requests with the Python package: JSON lines in, JSON lines out, without judging.

The protocol is described in tests/README.md. This is the only file of the suite that imports `redlock`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import inspect
import json
import logging
import math
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from concurrent import futures
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import redlock
import redlock.asyncio
from redlock.testing import MemoryServer, lose

from conformance.library import LINE_LIMIT
from support.clock import now_ns

Json = dict[str, Any]

POLL_S = 0.005
DETACHED_S = 60
"""The ttl of a detached term."""


class Driver:
    """Both faces, which differ only in that the calls of one are awaited."""

    def __init__(self, face: str) -> None:
        self.is_async = face == "asyncio"
        self.library: Any = redlock.asyncio if self.is_async else redlock
        self.clients: dict[int, Any] = {}
        self.locks: dict[int, Any] = {}
        self.candidates: dict[int, Candidate] = {}
        self.servers: dict[int, MemoryServer] = {}
        self.losses: dict[int, futures.Future[tuple[redlock.LockLost | None, int]]] = {}
        """The loss of each lock's last acquisition, and when the lock was notified of it."""
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.traces: Traces | None = None
        """The spans, from the first request for them on."""

    def client_options(self, given: Json) -> Json:
        """Options of a client. `credentials` is the path of a file, from which a provider takes the login."""
        if "credentials" not in given:
            return options(given)
        provider = partial(login, given["credentials"])

        async def later() -> tuple[str, str, float]:
            return provider()

        return options(given) | {"credentials": later if self.is_async else provider}

    async def answer(self, request: Json) -> None:
        """Performs a request and writes its answer."""
        invoke_ns = now_ns()
        answer: Json
        try:
            with self.traces.caller() if self.traces else contextlib.nullcontext():
                answer = {"ok": await self.perform(**request)}
        except asyncio.CancelledError:
            answer = {"ok": {"cancelled": True}}
        except redlock.RedlockError as error:
            answer = {"error": described(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": {"code": "driver", "message": repr(error)}}
        say({"id": request["id"], **answer, "invoke_ns": invoke_ns, "return_ns": now_ns()})

    async def perform(self, id: int, op: str, **of: Any) -> Json:  # noqa: A002, PLR0911, PLR0912
        """Performs `op`; an object that it makes has the request's id as its handle."""
        client: Any = self.clients.get(of.get("client", 0))
        lock: Any = self.locks.get(of.get("lock", 0))
        match op:
            case "client":
                self.clients[id] = self.library.Redlock(of.get("nodes"), **self.client_options(of["options"]))
                return {"handle": id}
            case "lock" | "lock_all" | "semaphore":
                return self.keep(id, made(client, op, of))
            case "attach":
                lock = await done(client.attach(of["text"], **options(of["options"])))
                return {**self.keep(id, lock), **state(lock)}
            case "detach":
                return {"text": await done(lock.detach(**({"ttl": seconds(of["ttl_ms"])} if "ttl_ms" in of else {})))}
            case "acquire" | "try_acquire":
                self.losses[of["lock"]] = futures.Future()
                timeout = {"timeout": seconds(of["timeout_ms"])} if "timeout_ms" in of else {}
                how = {"blocking": False} if op == "try_acquire" else timeout
                acquired = await done(lock.acquire(**how))
                return {"acquired": acquired, **state(lock)}
            case "enter":
                await done((lock.__aenter__ if self.is_async else lock.__enter__)())
            case "is_locked":
                return {"is_locked": await done(lock.locked())}
            case "extend":
                await done(lock.extend(**({"ttl": seconds(of["ttl_ms"])} if "ttl_ms" in of else {})))
                return state(lock)
            case "release":
                await done(lock.release())
            case "leave":
                await done((lock.__aexit__ if self.is_async else lock.__exit__)(None, None, None))
            case "names":
                return {"name": text(lock.name), "names": [text(name).encode().hex() for name in lock.names]}
            case "check":
                lock.check()
            case "state":
                return state(lock)
            case "wait_lost":
                loss = self.losses[of["lock"]]
                limit_s = of["limit_ms"] / 1000
                if self.is_async:
                    await asyncio.wait([asyncio.wrap_future(loss)], timeout=limit_s)
                else:
                    futures.wait([loss], limit_s)
                error, told_ns = loss.result() if loss.done() else (None, 0)
                return {"lost": error and described(error), "told_ns": told_ns}
            case "election" | "run" | "terms" | "end_term" | "stop" | "leader":
                return await self.elect(id, op, **of)
            case "inspect" | "inspect_semaphore" | "diagnose" | "stats" | "count_by_name" | "events":
                return await look(client, op, **of)
            case "list_locks" | "wait_free" | "break_lock":
                return await operate(client, op, **of)
            case "server" | "at_server":
                return self.serve_memory(id, op, **of)
            case "forget" | "live" | "spans":
                return await self.manage(op, **of)
            case "lose":
                lose(lock, of["reason"])
            case "cancel" if self.is_async:
                if of["call"] in self.calls:
                    self.calls[of["call"]].cancel()
            case "close":
                await done((client.aclose if self.is_async else client.close)(limit=of["limit_ms"] / 1000))
            case _:
                raise ValueError(f"no such op on this face: {op}")
        return {}

    def keep(self, id: int, lock: Any) -> Json:  # noqa: A002
        """Keeps a lock with its loss."""
        self.locks[id] = lock
        self.losses[id] = futures.Future()
        lock.on_lost(lambda error: self.losses[id].set_result((error, now_ns())))
        return {"handle": id}

    def serve_memory(self, id: int, op: str, **of: Any) -> Json:  # noqa: A002
        """Performs what is about a server in memory."""
        if op == "server":
            self.servers[id] = MemoryServer()
            return {"handle": id, "url": self.servers[id].url}
        at_server(self.servers[of.pop("server")], **of)
        return {}

    async def manage(self, op: str, **of: Any) -> Json:
        """Performs what is about this process."""
        if op == "forget":
            for kept in (self.locks, self.losses, self.candidates, self.clients):
                kept.pop(of["handle"], None)
            return {}
        if op == "spans":
            self.traces = self.traces or Traces()
            return {"spans": self.traces.ended()}
        gc.collect()
        tasks = {"tasks": len(asyncio.all_tasks())} if self.is_async else {}
        return {"live": sys.getallocatedblocks(), **tasks}

    async def elect(self, id: int, op: str, **of: Any) -> Json:  # noqa: A002
        """Performs what is about an election."""
        if op == "election":
            election = self.clients[of["client"]].election(bytes.fromhex(of["name"]), **options(of["options"]))
            self.candidates[id] = Candidate(election, is_async=self.is_async)
            return {"handle": id}
        candidate = self.candidates[of["election"]]
        match op:
            case "run":
                candidate.lingers, candidate.detaches = of["lingers"], of["detaches"]
                return await candidate.run()
            case "terms":
                candidate.look()
                return {"terms": candidate.terms, "stopped": candidate.election.stopped}
            case "end_term":
                candidate.end.set_result(of["fail"])
            case "stop":
                candidate.election.stop()
            case "leader":
                leader = await done(candidate.election.leader())
                return {"leader": leader and dataclasses.asdict(leader)}
        return {}

    def serve(self) -> None:
        """The blocking face: a thread for every request."""
        for line in sys.stdin:
            threading.Thread(target=complete, args=[self.answer(json.loads(line))]).start()

    async def serve_async(self) -> None:
        """The asynchronous face: a task for every request."""
        # A thread that reads would have to wait for the interpreter's lock at every line.
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        async for line in reader:
            request = json.loads(line)
            call = self.calls[request["id"]] = asyncio.create_task(self.answer(request))
            call.add_done_callback(partial(self.calls.pop, request["id"]))
        await asyncio.gather(*self.calls.values())


class Traces:
    """The spans of locks, and one around each request."""

    def __init__(self) -> None:
        # Few stories need them.
        from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415
        from redlock import otel  # noqa: PLC0415

        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        otel.instrument(tracer_provider=provider)
        self.tracer = provider.get_tracer("driver")
        self.callers = set[int]()

    @contextlib.contextmanager
    def caller(self) -> Iterator[None]:
        """Runs the block in a span of the program."""
        with self.tracer.start_as_current_span("caller") as span:
            self.callers.add(span.get_span_context().span_id)
            yield

    def ended(self) -> list[Json]:
        """The spans of locks that have ended since the last call."""
        spans = [span for span in self.exporter.get_finished_spans() if span.name != "caller"]
        self.exporter.clear()
        return [
            {"name": span.name, "attributes": dict(span.attributes or {}), "failed": not span.status.is_ok}
            | {"parent": "caller" if span.parent and span.parent.span_id in self.callers else None}
            for span in spans
        ]


async def look(client: Any, op: str, /, **of: Any) -> Json:
    """Performs what is about seeing, and changes nothing."""
    match op:
        case "inspect":
            return viewed(await done(client.inspect(bytes.fromhex(of["name"]))))
        case "inspect_semaphore":
            views = await done(client.inspect_semaphore(bytes.fromhex(of["name"]), of["permits"]))
            return {"views": [viewed(view) for view in views]}
        case "diagnose":
            return {"nodes": [dataclasses.asdict(diagnosis) for diagnosis in await done(client.diagnose())]}
        case "stats":
            stats = redlock.stats()
            metrics = {name: measured(metric) for name, metric in stats.items()}
            return {"metrics": metrics, "openmetrics": stats.to_openmetrics()}
        case "count_by_name":
            redlock.count_by_name(of["most"])
        case "events":
            return {"events": [events.pop(0) for _ in range(len(events))]}
    return {}


async def operate(client: Any, op: str, /, **of: Any) -> Json:
    """Performs what is about locks of others."""
    name = bytes.fromhex(of["name"])
    if op == "list_locks":
        held = client.list_locks(name)
        views: list[Json] = []
        while len(views) < of["most"] and (view := await following(held)) is not None:
            views.append(viewed(view))
        return {"views": views}
    if op == "wait_free":
        return {"free": await done(client.wait_free(name, seconds(of["timeout_ms"])))}
    view = await done(client.break_lock(name, of["slot"]))
    return {"views": [viewed(view)] if view else []}


async def following(views: Any) -> Any:
    """The next of what is iterated over, or None."""
    return await anext(views, None) if hasattr(views, "__anext__") else next(views, None)


class BodyError(Exception):
    """The failure of a body that the test lets fail."""


class Candidate:
    """A candidate of an election, whose body lasts until the test ends it."""

    def __init__(self, election: Any, *, is_async: bool) -> None:
        self.election = election
        self.body = self.wait if is_async else self.poll
        self.terms: list[Json] = []
        self.term: tuple[Any, Json] | None = None
        """The lock of the present term, and what is told of it. One step, because threads that look take no turns."""
        self.lingers = self.detaches = False
        self.end = futures.Future[bool]()
        """The end of the present term: whether its body fails."""

    async def run(self) -> Json:
        """Campaigns, and leads until the end."""
        try:
            return {"result": await done(self.election.run(self.body))}
        except BodyError:
            return {"failed": True}

    def poll(self, lock: Any) -> Any:
        """The body of the blocking face, which nothing ends from outside."""
        self.begin(lock)
        if self.detaches:
            with self.refused():
                lock.detach(ttl=DETACHED_S)
        while lock.held and not self.election.stopped:
            if futures.wait([self.end], POLL_S).done:
                return self.over()
        self.cut()
        if self.lingers:
            self.end.result()
        return None

    async def wait(self, lock: Any) -> Any:
        """The body of the asynchronous face."""
        self.begin(lock)
        if self.detaches:
            with self.refused():
                await lock.detach(ttl=DETACHED_S)
        try:
            # The wait for the end of the term goes on if it is cancelled.
            await asyncio.shield(asyncio.wrap_future(self.end))
        except asyncio.CancelledError:
            self.cut()
            if self.lingers:
                await asyncio.wrap_future(self.end)
            raise
        return self.over()

    def begin(self, lock: Any) -> None:
        """A term begins."""
        self.end, began_ns = futures.Future(), now_ns()
        term = {"fence": lock.fence, "began_ns": began_ns, "over_ns": None, "how": None, "lost": None}
        term["valid_until_ns"] = began_ns + int(lock.remaining * 1e9)
        self.terms.append(term)
        self.term = lock, term

    def look(self) -> None:
        """Notes until when the present term is valid, or that it is lost."""
        if self.term is None:
            return
        lock, term = self.term
        try:
            lock.check()
            term["valid_until_ns"] = now_ns() + int(lock.remaining * 1e9)
        except redlock.LockLost as error:
            term["lost"] = described(error)
        except redlock.LockNotHeld:
            """Its client was closed."""

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        """Tells whether the term could be handed over."""
        try:
            yield
        except redlock.RedlockError as error:
            self.terms[-1]["detach"] = error.code

    def over(self) -> Any:
        """The test has ended the term."""
        fails = self.end.result()
        self.ended("failed" if fails else "returned")
        if fails:
            raise BodyError
        return self.terms[-1]["fence"]

    def cut(self) -> None:
        """The term was lost, or the election was stopped."""
        self.ended("cut")

    def ended(self, how: str) -> None:
        """The term is over."""
        self.look()
        self.term = None
        self.terms[-1] |= {"over_ns": now_ns(), "how": how}


def made(client: Any, op: str, of: Json) -> Any:
    """A lock of any kind."""
    given = options(of["options"])
    match op:
        case "lock_all":
            return client.lock_all([bytes.fromhex(name) for name in of["names"]], **given)
        case "semaphore":
            return client.semaphore(bytes.fromhex(of["name"]), of["permits"], **given)
    return client.lock(of["text"] if "text" in of else bytes.fromhex(of["name"]), **given)


def text(name: str | bytes) -> str:
    """A name as text."""
    return name if isinstance(name, str) else name.decode()


def at_server(server: MemoryServer, action: str, name: str = "", **of: Any) -> None:
    """Does to a server in memory what the test says."""
    match action:
        case "hold":
            server.hold(bytes.fromhex(name), **({"ttl": seconds(of["ttl_ms"])} if "ttl_ms" in of else {}))
        case "release":
            server.release(bytes.fromhex(name))
        case "wipe":
            server.wipe()
        case "advance":
            server.advance(of["by_ms"] / 1000)
        case "set_available":
            server.available = of["available"]


class Listener(logging.Handler):
    """Keeps what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        topic = record.name.removeprefix("redlock.")
        level = {"warning": "warn"}.get(record.levelname.lower(), record.levelname.lower())
        fields: Any = vars(record)
        event = {"code": fields["code"], "fields": dict(fields["fields"]), "message": record.getMessage()}
        events.append({"topic": topic, "level": level, **event})


events: list[Json] = []


def measured(metric: redlock.Metric) -> Json:
    """A metric without the infinite end of its histograms, for which JSON has no number."""

    def point(at: Any) -> Json:
        if not isinstance(at.value, redlock.Histogram):
            return {"labels": at.labels, "value": at.value}
        buckets = [(None if end == math.inf else end, inside) for end, inside in at.value.buckets]
        return {"labels": at.labels, "count": at.value.count, "sum": at.value.sum, "buckets": buckets}

    return {"kind": metric.kind, "about": metric.about, "points": [point(at) for at in metric.points]}


async def done(result: Any) -> Any:
    """The result of a call of either face."""
    return await result if inspect.isawaitable(result) else result


def complete(call: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine that never waits, because all its calls block."""
    try:
        call.send(None)
    except StopIteration:
        return
    raise RuntimeError("a call of the blocking face was awaited")


def state(lock: Any) -> Json:
    """The lock's own view of its state."""
    # The clock is read first, so that `remaining` never counts from a later instant than the library means.
    read_ns = now_ns()
    remaining, held = lock.remaining, lock.held
    try:
        fence = lock.fence
    except (redlock.LockNotHeld, redlock.LockInvalidArgument):
        fence = None
    return {"read_ns": read_ns, "held": held, "remaining_ms": remaining * 1000, "fence": fence, "slot": lock.slot}


def options(given: Json) -> Json:
    """Options as Python has them: durations in seconds."""
    return {
        name.removesuffix("_ms"): seconds(value) if name.endswith("_ms") else own(value)
        for name, value in given.items()
    }


def login(path: str) -> tuple[str, str, float]:
    """The login in a file, or the failure that it asks for."""
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    if "error" in given:
        raise OSError(given["error"])
    return given["username"], given["password"], given["ms"] / 1000


def own(value: Any) -> Any:
    """Converts a value that JSON cannot express; returns others unchanged."""
    match value:
        case {"float": text}:
            return float(text)
        case {"timedelta": parts}:
            return timedelta(**parts)
    return value


def seconds(ms: float | None) -> float | None:
    """Converts milliseconds for Python; `None` is without end."""
    return None if ms is None else ms / 1000


def described(error: redlock.RedlockError) -> Json:
    """The fields of an error."""
    return {
        "code": error.code,
        "name": error.name,
        "reason": getattr(error, "reason", None),
        "option": getattr(error, "option", None),
        "nodes": [list(vote) for vote in error.nodes],
        "holder_label": getattr(error, "holder_label", None),
        "holder_ttl_left_ms": left_ms(getattr(error, "holder_ttl_left", None)),
        "held_by_this_process": getattr(error, "held_by_this_process", False),
        "message": str(error),
        "retryable": error.retryable,
    }


def viewed(view: redlock.LockView) -> Json:
    """The fields of a view."""
    shown = ("name", "key", "slot", "state", "label", "fence", "holders", "quorum")
    fields = {name: getattr(view, name) for name in shown}
    since_ms = None if view.since is None else view.since.timestamp() * 1000
    nodes = [node_viewed(node) for node in view.nodes]
    times = {"since_ms": since_ms, "ttl_left_ms": left_ms(view.ttl_left)}
    return {**fields, **times, "waiting": view.waiting, "nodes": nodes}


def node_viewed(view: redlock.NodeView) -> Json:
    """The fields of a node's view."""
    return {
        "node": view.node,
        "key": view.key,
        "state": view.state,
        "label": view.label,
        "fence": view.fence,
        "ttl_left_ms": left_ms(view.ttl_left),
    }


def left_ms(ttl_left: float | None) -> float | None:
    """The time left in milliseconds."""
    return None if ttl_left is None else ttl_left * 1000


def say(line: Json) -> None:
    """Writes a line, whole even if several threads write at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Says hello and serves until the end of input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--face", choices=["python", "asyncio"], required=True)
    face = parser.parse_args().face
    codes = [error.code for error in redlock.RedlockError.__subclasses__()]
    say({"hello": {"language": "python", "face": face, "protocol": 1, "codes": codes}})
    logger = logging.getLogger("redlock")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Listener())
    driver = Driver(face)
    if driver.is_async:
        asyncio.run(driver.serve_async())
    else:
        driver.serve()


if __name__ == "__main__":
    main()
