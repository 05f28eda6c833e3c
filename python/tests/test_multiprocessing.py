"""Processes of `multiprocessing`: they start without locks, disturb no others, and release their locks at the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Output, Run
from server import LIMIT, SLACK, Nodes, Server
from support.clock import until

WAYS = ["fork", "spawn", "forkserver"]
LATE = ["hold_at_exit", "leave_threads"]
EARLY = ["hold_and_exit", "nest"]
ENDS = [
    *((way, [*EARLY, *LATE]) for way in ("fork", "newer")),
    *((way, LATE) for way in ("spawn", "forkserver")),
    ("billiard", ["hold", "nest", "leave_threads"]),
]

PARENT = """
lock.check()
lock.extend()
lock.release()
print("parent")
"""


@pytest.mark.parametrize(("way", "targets"), ENDS)
def test_a_child_gives_back_what_it_holds(run: Run, server: Server, name: str, way: str, targets: list[str]) -> None:
    program = f"""
import children
lock = client.lock(name)
lock.acquire()
for target in {targets}:
    child = children.context({way!r}).Process(target=getattr(children, target), args=(f"{{name}}-{{target}}",))
    child.start()
    child.join()
    assert child.exitcode == 0, (target, child.exitcode)
"""
    done = run(program + PARENT)
    # billiard waits for no threads.
    said = "worked\nparent\n" if "leave_threads" in targets and way != "billiard" else "parent\n"
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)
    until(lambda: not server.has(name) and not server.command("KEYS", f"{name}-*"), limit_s=SLACK)


MAKERS = {
    **{way: f"multiprocessing.get_context({way!r})" for way in WAYS},
    "billiard": "__import__('billiard').get_context('fork')",
}


@pytest.mark.parametrize("way", MAKERS)
def test_a_child_that_alone_uses_the_package(server: Server, name: str, way: str) -> None:
    program = f"""
import multiprocessing, sys
work = "__import__('children').hold_at_exit({name!r})"
child = {MAKERS[way]}.Process(target=eval, args=(work,))
child.start()
child.join()
assert "redlock" not in sys.modules
print(child.exitcode)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "REDLOCK_URLS": server.url, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)
    until(lambda: not server.has(name) and not server.has(f"{name}-exit"), limit_s=SLACK)


@pytest.mark.parametrize("way", WAYS)
def test_workers_of_a_pool(output: Output, nodes: Nodes, way: str) -> None:
    program = f"""
import children
busy = children.Busy(urls, name)
names = [f"{{name}}-child-{{number}}" for number in range(12)]
pool = children.context({way!r}).Pool(3)
assert all(pool.map(children.hold, names, chunksize=1))
pool.close()
pool.join()
for each in names:
    until(lambda: all(node.state == "free" for node in client.inspect(each).nodes), limit_s=1)
busy.end()
print("parent")
"""
    assert output(program, "-W", "error::ResourceWarning", nodes=nodes) == "parent\n"


def test_workers_of_an_executor(output: Output) -> None:
    program = """
import children
from concurrent.futures import ProcessPoolExecutor
names = [f"{name}-{number}" for number in range(4)]
with ProcessPoolExecutor(2, mp_context=children.context("newer")) as executor:
    assert all(executor.map(children.hold, names))
for each in names:
    until(lambda: client.inspect(each).state == "free", limit_s=1)
print("parent")
"""
    assert output(program, "-W", "error::ResourceWarning") == "parent\n"


def test_workers_of_a_pool_of_billiard(output: Output) -> None:
    program = """
import billiard.pool, children
lock = client.lock(name + "-parent")
lock.acquire()
names = [f"{name}-{number}" for number in range(4)]

def ends(pid, exitcode):
    # The pool's own way to hear of it comes first.
    assert client.inspect(names[0]).state == "held"
    print("ends", flush=True)

pool = billiard.pool.Pool(1, on_process_exit=ends)
assert all(pool.map(children.hold, names))
pool.close()
pool.join()
for each in names:
    until(lambda: client.inspect(each).state == "free", limit_s=1)
"""
    assert output(program + PARENT, "-W", "error::ResourceWarning") == "ends\nparent\n"
