"""The commands of `core/docs/protocol.md`, "By hand", take and release a lock that counts, and release one of ours."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import redlock

from support.servers import Server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "core" / "docs" / "protocol.md").read_text()


def run(server: Server, words: list[str]) -> str:
    """Returns the server's reply to a command of `redis-cli`, which not every machine has."""
    match words[1:]:
        case ["--eval", script, *keys, ",", argument]:
            reply = server.command("EVAL", (ROOT / script).read_text(), len(keys), *keys, argument)
        case command:
            reply = server.command(*command)
    return "" if reply is None else reply.decode() if isinstance(reply, bytes) else str(reply)


def commands() -> list[list[str]]:
    """The commands of the page."""
    found = re.search(r"\*\*By hand\.\*\*.*?```sh\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return [shlex.split(line, comments=True) for line in found[1].splitlines()]


def test_one_of_those_who_share_a_lock_is_removed_by_hand(tmp_path: Path) -> None:
    found = re.search(r"removes one of them:\n\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert found
    show, join, remove = found[1].splitlines()
    with Server() as server, redlock.Redlock(server.url) as client:
        locks = [client.lock("foo", shared=True, label=label) for label in ("one", "other")]
        for lock in locks:
            lock.acquire()
        assert "one" in run(server, shlex.split(show))
        members = server.command("ZRANGE", "foo", 0, 1)
        assert isinstance(members, list)
        member = next(each.decode() for each in members if isinstance(each, bytes) and each.endswith(b":one"))
        script = tmp_path / "release.lua"
        subprocess.run(
            ["/bin/sh", "-c", join.replace(">release.lua", f">{shlex.quote(str(script))}")], cwd=ROOT, check=True
        )
        words = shlex.split(remove.replace("release.lua", str(script)).replace("MEMBER", member))
        assert run(server, words) == "1"
        assert run(server, words) == "0"
        assert client.inspect("foo").labels == ["other"]
        locks[1].release()
        with pytest.raises(redlock.LockLost):
            locks[0].release()


def test_a_lock_by_hand_counts() -> None:
    take, whose, left, release = commands()
    with Server() as server, redlock.Redlock(server.url) as client:
        assert run(server, take) == "OK"
        assert run(server, take) == ""
        assert run(server, whose) == "my-token"
        assert 0 < int(run(server, left)) <= 10_000

        lock = client.lock("foo")
        assert not lock.acquire(timeout=0)
        view = client.inspect("foo")
        assert view.state == "foreign"
        assert view.ttl_left is not None
        assert 0 < view.ttl_left <= 10

        assert run(server, release) == "1"
        assert run(server, release) == "0"
        assert lock.acquire(timeout=0)
        lock.release()


def test_a_lock_of_ours_is_released_by_hand() -> None:
    take, whose, _, release = commands()
    with Server() as server, redlock.Redlock(server.url) as client:
        lock = client.lock("foo")
        lock.acquire()
        assert run(server, take) == ""
        assert run(server, release) == "-1"

        token = run(server, whose).partition(":")[0]
        assert run(server, [*release[:-1], token]) == "1"
        assert run(server, take) == "OK"
        with pytest.raises(redlock.LockLost):
            lock.release()
