"""Code that uses another library and what it becomes exclude each other, as `core/docs/moving.md` says of its code."""

from __future__ import annotations

import functools
import os
import subprocess
import threading
from pathlib import Path

import pytest
import redis_lock
import redlock
from redis import Redis

from examples.moving import MOVES, Block, Move
from examples.program import NODE_PACKAGES, ROOT, Running, interpreted, link_packages
from support.clock import until
from support.servers import LIMIT_S, Cluster, Server

PEERS = Path(__file__).parent
TARGET = ROOT / "target" / "peers"

# How long cargo may take, dependencies included.
BUILD_S = 900

# What the other languages' `work` does.
RUST_WORK = """async fn work() {
    println!("working");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}"""


@functools.cache
def rust_programs() -> dict[Block, Path]:
    """The Rust programs of the page, built."""
    ((before, after),) = ((move.before, move.after) for move in MOVES if move.after.language == "rust")
    programs = {before: "before", after: "after"}
    sources = TARGET / "moving"
    sources.mkdir(parents=True, exist_ok=True)
    for block, name in programs.items():
        assert block.code.count("async fn work() {}") == 1
        (sources / f"{name}.rs").write_text(block.code.replace("async fn work() {}", RUST_WORK))
    subprocess.run(
        ["cargo", "build", "--locked", "--quiet", "--target-dir", str(TARGET)],
        cwd=PEERS / "moving",
        env={**os.environ, "PROGRAMS": str(sources)},
        timeout=BUILD_S,
        check=True,
    )
    return {block: TARGET / "debug" / name for block, name in programs.items()}


def start(block: Block, nodes: Cluster, directory: Path) -> Running:
    """Runs a program of the page on these nodes."""
    directory.mkdir()
    if block.language in {"rs", "rust"}:
        return Running(nodes.urls, directory, str(rust_programs()[block]))
    installed = (PEERS / "node" / "node_modules").iterdir()
    link_packages(directory, NODE_PACKAGES | {path.name: path for path in installed if path.name[0] != "."})
    return Running(nodes.urls, directory, *interpreted(directory, block.language, block.code))


@pytest.mark.timeout(BUILD_S)
@pytest.mark.parametrize("old_first", [True, False], ids=["old holds", "new holds"])
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_exclude_each_other(move: Move, old_first: bool, tmp_path: Path) -> None:
    first, second = (move.before, move.after) if old_first else (move.after, move.before)
    with Cluster(move.nodes, tcp=True) as nodes:
        with start(first, nodes, tmp_path / "holds") as holder:
            holder.wait_for_work()
            with start(second, nodes, tmp_path / "denied") as denied:
                denied.end()
                assert not denied.works, "both hold the lock"
            assert holder.end(), holder.said
        until(lambda: move.is_free(nodes), "it is released")
        with start(second, nodes, tmp_path / "follows") as follower:
            follower.wait_for_work()
            assert follower.end(), follower.said


def test_python_redis_lock_is_woken_by_hand() -> None:
    with Server(tcp=True) as server, Redis.from_url(server.url, socket_timeout=None) as redis:
        ours = redlock.Redlock(server.url).lock("lock:invoice:17")
        ours.acquire()
        theirs = redis_lock.Lock(redis, "invoice:17")
        waiter = threading.Thread(target=theirs.acquire, daemon=True)
        waiter.start()
        until(lambda: b"blocked_clients:1\r" in server.info("clients"), "it sleeps")
        ours.release()
        assert b"blocked_clients:1\r" in server.info("clients")
        redis.lpush("lock-signal:invoice:17", 1)
        redis.pexpire("lock-signal:invoice:17", 1000)
        waiter.join(LIMIT_S)
        assert theirs.locked()
