"""Makes the CPU scarce for the programs that run under a condition: a quota, or neighbours that compete for it.

A quota is that of a control group where one can be made, else that of `systemd-run --user`. Where neither works, the
programs share one core with processes that spin, so that their share is about the quota.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from setup.outcomes import Condition
from support.process import dying

CONTROL_GROUPS = Path("/sys/fs/cgroup")
GROUP = "redlock-stress-"
PERIOD_US = 100_000
READY = 2
"""How many processes of the tests want the CPU at a time, about."""

NEIGHBOURS = 2
SPIN = [sys.executable, "-S", "-c", "while True: pass"]
# It replaces itself by the command, so the process stays the one that was started.
ENTER = ["sh", "-c", 'echo $$ >"$0" && exec "$@"']
ONE_CORE = (
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execvp(sys.argv[1], sys.argv[1:])"
)
PIN = [sys.executable, "-S", "-c", ONE_CORE]
END_S = 10


@contextlib.contextmanager
def scarce(condition: Condition) -> Iterator[tuple[list[str], str]]:
    """Holds the condition for the block, with the start of each command and a sentence about the way."""
    if condition.quota is None:
        with spinning(NEIGHBOURS, []):
            yield [], f"{NEIGHBOURS} processes spin"
        return
    if group := limited(condition.quota):
        try:
            yield [*ENTER, str(group / "cgroup.procs")], f"the control group {group}"
        finally:
            remove(group)
        return
    share = f"CPUQuota={condition.quota:.0%}"
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property", share, "--"]
    if starts(scope):
        yield scope, "systemd-run"
        return
    pin = PIN if hasattr(os, "sched_setaffinity") else []
    cores = 1 if pin else os.cpu_count() or 1
    with spinning(round(READY * cores * (1 / condition.quota - 1)), pin):
        yield pin, "neighbours that spin, because no quota can be set here"


def starts(prefix: Sequence[str]) -> bool:
    """Whether a program can be started in this way."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = [*prefix, "true"]
        return subprocess.run(command, capture_output=True, check=False, timeout=END_S).returncode == 0
    return False


def limited(quota: float) -> Path | None:
    """Makes a control group with this quota; returns none where none can be made."""
    for parent, file, limit in parents(quota):
        for old in parent.glob(f"{GROUP}*"):
            # The program that made it was killed, and so were the processes in it.
            if not Path("/proc", old.name.removeprefix(GROUP)).exists():
                with contextlib.suppress(OSError):
                    old.rmdir()
        group = parent / f"{GROUP}{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            (group / file).write_text(limit, encoding="utf-8")
            if starts([*ENTER, str(group / "cgroup.procs")]):
                return group
        with contextlib.suppress(OSError):
            group.rmdir()
    return None


def parents(quota: float) -> Iterator[tuple[Path, str, str]]:
    """The control groups that this process is in and those above, each with the file of a quota and its text."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            runtime = f"{quota * PERIOD_US:.0f}"
            if not controllers:
                root, file, limit = CONTROL_GROUPS, "cpu.max", f"{runtime} {PERIOD_US}"
            elif "cpu" in controllers.split(","):
                root, file, limit = CONTROL_GROUPS / controllers, "cpu.cfs_quota_us", runtime
            else:
                continue
            own = root / path.lstrip("/")
            yield from ((each, file, limit) for each in (own, *own.parents) if each.is_relative_to(root))


def remove(group: Path) -> None:
    """Kills what is left in a control group, and removes it."""
    end = time.monotonic() + END_S
    while group.exists() and time.monotonic() < end:
        for pid in (group / "cgroup.procs").read_text(encoding="utf-8").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
        time.sleep(0.02)


@contextlib.contextmanager
def spinning(count: int, prefix: Sequence[str]) -> Iterator[None]:
    """Lets so many processes spin for the block."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(dying([*prefix, *SPIN]), start_new_session=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
