"""Servers, workers and faults. All processes are ended afterwards, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.fight import NAME, NODES, TTL_S, Fault, Fight, Hold, Message, Worker
from support.clock import now_ns
from support.process import die_with_parent
from support.servers import Cluster

HERE = Path(__file__).resolve().parent

LIMIT_S = 60.0
"""Longest wait for anything; far more than a slow machine needs."""

TIMEOUT_S = 30.0
"""How long a worker may wait for the lock. No worker should need it, whatever happens to two nodes of five."""


class StageError(Exception):
    """The fight cannot continue."""


@dataclass
class Actor:
    """A worker and its process."""

    worker: Worker
    process: asyncio.subprocess.Process
    errors: Path
    reader: asyncio.Task[None] | None = field(default=None)

    def tell(self, order: str) -> None:
        """Writes one line to its input."""
        assert self.process.stdin
        self.process.stdin.write(f"{order}\n".encode())


def cast(programs: Path) -> list[tuple[Worker, list[str]]]:
    """All workers, with the commands that start them."""
    rust = str(programs / "redlock-demo")
    node = shutil.which("node")
    if node is None:
        raise StageError("node is not on the PATH")
    python = [sys.executable, str(HERE / "worker.py")]
    return [
        (Worker("rust-1", "Rust", "async"), [rust, "--face", "async"]),
        (Worker("rust-2", "Rust", "blocking"), [rust, "--face", "blocking"]),
        (Worker("python-1", "Python", "sync"), [*python, "--face", "sync"]),
        (Worker("python-2", "Python", "asyncio"), [*python, "--face", "asyncio"]),
        (Worker("node-1", "Node", "async"), [node, str(HERE / "worker.mjs")]),
        (Worker("node-2", "Node", "async"), [node, str(HERE / "worker.mjs")]),
    ]


class Stage:
    """Five servers and the workers that fight over them. An async context manager that ends them all."""

    def __init__(self, crew: Sequence[tuple[Worker, list[str]]]) -> None:
        self.fight = Fight(workers=[worker for worker, _ in crew])
        self._commands = [command for _, command in crew]
        self._actors: dict[str, Actor] = {}
        self._heard = asyncio.Event()
        self._stopping = False
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        try:
            self._nodes = self._stack.enter_context(Cluster(NODES))
            self.program = self._nodes[0].program.name
            self._dir = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-")))
            self._file = self._dir / "counter"
            self._file.write_text("0 0\n")
            for worker, command in zip(self.fight.workers, self._commands, strict=True):
                await self._start(worker, command)
            await self.reached("ready workers", lambda: all(w.state == "idle" for w in self.fight.workers))
        except BaseException:
            await self._clear()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clear()

    def begin(self) -> None:
        """Lets the fight begin."""
        self.fight.start_ns = now_ns()
        for actor in self._actors.values():
            actor.tell("go")

    async def finish(self) -> None:
        """Tells the workers to stop and waits until they have; reports those that do not."""
        self._stopping = True
        for actor in self._living():
            assert actor.process.stdin
            actor.process.stdin.close()
        for actor in self._living():
            with contextlib.suppress(ProcessLookupError):
                # A frozen one could not hear it.
                os.kill(actor.process.pid, signal.SIGCONT)
            try:
                async with asyncio.timeout(LIMIT_S):
                    await self._gone(actor)
            except TimeoutError:
                self.fight.troubles.append(f"{actor.worker.name} did not come to its end within {LIMIT_S:g} s")
                continue
            self._ended(actor)
        self.fight.end_ns = now_ns()
        text = self._file.read_text()
        try:
            self.fight.count = int(text.split()[0])
        except (IndexError, ValueError):
            self.fight.troubles.append(f"the file says {text!r} in the end")

    async def until(self, seconds: float) -> None:
        """Waits until so long after the start."""
        left_s = seconds - self.fight.seconds(now_ns())
        if left_s > 0:
            await self.pause(left_s)

    async def pause(self, seconds: float) -> None:
        """Waits for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.reached("trouble", lambda: False)

    async def reached(self, what: str, condition: Callable[[], bool]) -> None:
        """Waits for a state; raises `StageError` if it does not come in time, or a worker has failed."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not condition():
                    if self.fight.troubles:
                        raise StageError(self.fight.troubles[0])
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise StageError(f"no {what} within {LIMIT_S:g} s") from None

    def freeze_node(self, i: int) -> Fault:
        """Node `i` takes connections and answers nothing."""
        self._nodes[i].freeze()
        return self._node_fault(i, "node frozen")

    def thaw_node(self, i: int, fault: Fault) -> None:
        """Node `i` continues where it was."""
        self._nodes[i].thaw()
        self._node_healed(i, fault, "goes on")

    def kill_node(self, i: int) -> Fault:
        """Node `i` crashes."""
        self._nodes[i].kill()
        return self._node_fault(i, "node killed")

    def restart_node(self, i: int, fault: Fault) -> None:
        """Node `i` comes back without any data."""
        self._nodes[i].wipe()
        self._node_healed(i, fault, "restarted, empty")

    async def keep(self, name: str, seconds: float) -> Hold:
        """Lets a worker hold the lock so long when it next gets it; returns when it holds it."""
        actor = self._actors[name]
        actor.tell(f"keep {round(seconds * 1000)}")
        await self.reached(f"kept lock of {name}", lambda: (hold := actor.worker.hold) is not None and hold.kept)
        assert actor.worker.hold
        return actor.worker.hold

    async def followed(self, hold: Hold) -> None:
        """Waits until another worker has the lock after this hold."""
        await self.reached(f"successor of {hold.worker.name}", lambda: self.fight.after(hold) is not None)

    async def over(self, hold: Hold) -> None:
        """Waits until the holder has reported the end of its hold."""
        await self.reached(f"end of the hold of {hold.worker.name}", lambda: hold.end is not None)

    async def kill_holder(self, hold: Hold) -> Fault:
        """Kills a worker while it holds the lock."""
        worker, actor = hold.worker, self._actors[hold.worker.name]
        worker.state = "killed"
        actor.process.kill()
        await self._gone(actor)
        at_ns = now_ns()
        self.fight.killed(worker, at_ns)
        self.fight.note(at_ns, f"{worker.name} killed while it holds the lock")
        return self._fault(Fault("holder killed", worker.name, at_ns, hold=hold))

    def freeze_holder(self, hold: Hold) -> Fault:
        """Stops a worker while it holds the lock, so that it does not notice how the time passes."""
        worker = hold.worker
        os.kill(self._actors[worker.name].process.pid, signal.SIGSTOP)
        at_ns = now_ns()
        worker.state = "frozen"
        self.fight.note(at_ns, f"{worker.name} frozen while it holds the lock")
        return self._fault(Fault("holder frozen", worker.name, at_ns, hold=hold))

    def thaw_holder(self, fault: Fault) -> None:
        """Lets it continue."""
        fault.to_ns = now_ns()
        if fault.hold:
            fault.hold.worker.state = "holding"
        self.fight.note(fault.to_ns, f"{fault.subject} goes on, as if nothing had happened")
        os.kill(self._actors[fault.subject].process.pid, signal.SIGCONT)

    def _node_fault(self, i: int, kind: str) -> Fault:
        at_ns, name = now_ns(), f"node {i + 1}"
        self.fight.nodes[i] = "frozen" if kind == "node frozen" else "dead"
        text = "frozen: takes connections, answers nothing" if kind == "node frozen" else "killed"
        self.fight.note(at_ns, f"{name} {text}")
        return self._fault(Fault("node frozen" if kind == "node frozen" else "node killed", name, at_ns))

    def _node_healed(self, i: int, fault: Fault, text: str) -> None:
        fault.to_ns = now_ns()
        self.fight.nodes[i] = "up"
        self.fight.note(fault.to_ns, f"node {i + 1} {text}")

    def _fault(self, fault: Fault) -> Fault:
        self.fight.faults.append(fault)
        return fault

    async def _start(self, worker: Worker, command: Sequence[str]) -> None:
        errors = self._dir / f"{worker.name}.log"
        given = ["--name", NAME, "--ttl", str(round(TTL_S * 1000)), "--timeout", str(round(TIMEOUT_S * 1000))]
        with errors.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                *given,
                "--file",
                str(self._file),
                *self._nodes.urls,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for this process alone, which ends the others.
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        actor = Actor(worker, process, errors)
        self._actors[worker.name] = actor
        actor.reader = asyncio.create_task(self._listen(actor))

    async def _listen(self, actor: Actor) -> None:
        assert actor.process.stdout
        worker = actor.worker
        async for line in actor.process.stdout:
            try:
                message: Message = json.loads(line)
                self.fight.hear(worker, message)
            except (ValueError, KeyError, TypeError) as error:
                self.fight.troubles.append(f"{worker.name} said {line.decode(errors='replace').strip()!r}: {error}")
            self._heard.set()
        if not (self._stopping or worker.state == "killed"):
            await actor.process.wait()
            self._ended(actor)
            self._heard.set()

    def _living(self) -> list[Actor]:
        return [actor for actor in self._actors.values() if actor.worker.state not in ("killed", "ended")]

    def _ended(self, actor: Actor) -> None:
        actor.worker.state = "ended"
        if actor.process.returncode or not self._stopping:
            said = actor.errors.read_text(errors="replace").strip()
            self.fight.troubles.append(f"{actor.worker.name} ended with {actor.process.returncode}: {said[-2000:]}")

    async def _gone(self, actor: Actor) -> None:
        """Waits until a process has ended and all of its output has been read."""
        await actor.process.wait()
        assert actor.reader
        await actor.reader

    async def _clear(self) -> None:
        try:
            for actor in self._actors.values():
                self._stopping = True
                with contextlib.suppress(ProcessLookupError):
                    actor.process.kill()
                await self._gone(actor)
        finally:
            self._stack.close()
