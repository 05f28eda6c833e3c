"""The older SETNX protocol, for a key that is shared with code that still uses it."""

from conftest import Run
from server import Server

PARENT_AND_CHILD = """
import os
lock = client.lock(name, protocol="setnx", ttl=60)
with lock:
    pid = os.fork()
    if pid == 0:
        assert not lock.held
        assert not lock.acquire(blocking=False)
        with client.lock(name + "-child", protocol="setnx"):
            pass
        del lock
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lock.check()
    assert client.inspect(name).state == "foreign"
print("parent")
"""


def test_a_child_leaves_it_alone(run: Run, server: Server, name: str) -> None:
    done = run(PARENT_AND_CHILD)
    assert (done.stdout, done.stderr, done.returncode) == ("parent\n", "", 0)
    assert not server.has(name)
