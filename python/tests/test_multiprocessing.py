"""Processes that `multiprocessing` makes: they start anew, harm nobody, and give back what they hold at their end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run
from server import LIMIT, SLACK, Nodes, Server, until

WAYS = ["fork", "spawn", "forkserver"]
TARGETS = ["hold", "hold_and_exit", "hold_at_exit", "nest", "leave_threads"]

PARENT = """
lock.check()
lock.extend()
lock.release()
print("parent")
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_child_gives_back_what_it_holds(run: Run, server: Server, name: str, way: str, target: str) -> None:
    program = f"""
import children, multiprocessing
lock = client.lock(name + "-parent")
lock.acquire()
child = multiprocessing.get_context({way!r}).Process(target=children.{target}, args=(name,))
child.start()
child.join()
assert child.exitcode == 0, child.exitcode
"""
    done = run(program + PARENT)
    said = "worked\nparent\n" if target == "leave_threads" else "parent\n"
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)
    for suffix in ("", "-exit", "-nested", "-work", "-parent"):
        until(lambda suffix=suffix: not server.has(name + suffix), SLACK)  # type: ignore[misc]


@pytest.mark.parametrize("way", WAYS)
def test_a_child_that_alone_uses_the_package(server: Server, name: str, way: str) -> None:
    program = f"""
import multiprocessing, sys
work = "__import__('children').hold_at_exit({name!r})"
child = multiprocessing.get_context({way!r}).Process(target=eval, args=(work,))
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
    until(lambda: not server.has(name) and not server.has(f"{name}-exit"), SLACK)


@pytest.mark.parametrize("way", WAYS)
def test_workers_of_a_pool(run: Run, nodes: Nodes, way: str) -> None:
    program = f"""
import children, multiprocessing
busy = children.Busy(urls, name)
names = [f"{{name}}-child-{{number}}" for number in range(12)]
pool = multiprocessing.get_context({way!r}).Pool(3)
assert all(pool.map(children.hold, names, chunksize=1))
pool.close()
pool.join()
for each in names:
    until(lambda: all(view.state == "free" for view in client.inspect(each)), 1)
busy.end()
print("parent")
"""
    done = run(program, "-W", "error::ResourceWarning", nodes=nodes)
    assert (done.stdout, done.stderr, done.returncode) == ("parent\n", "", 0)
