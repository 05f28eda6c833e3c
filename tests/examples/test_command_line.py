"""The commands of `core/docs/command-line.md` run, and print what the page says."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redlock

from examples.command_line import EXAMPLES, PAGE, Example, crontab, entry, masked
from examples.program import ROOT
from support.clock import until
from support.servers import Cluster

PROGRAM = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "redlock"

HOST = socket.gethostname()

RUNNABLE = {title: example for title, example in EXAMPLES.items() if example.language == "sh"}

PRINTED = {
    "Run a command": "report.sh --all\n",
    "Exit status": "report.sh\nsent\n",
    "Cron, migrations, containers 2": "migrate.sh\nserve.sh\n",
    "Several names and permits": "transfer.sh\ntrain.sh\n",
    "Readers and a writer": "render.sh\nrewrite.sh\n",
    "One lock over several commands": "migrate.sh\nswitch.sh\n",
    "Use the fence": "8\n",
    "wait": "deploy.sh\n",
    "release": f"{EXAMPLES['status'].output}nightly: released on 3 of 3 nodes\n",
    "A script that locks itself": "nobody else is here\n",
}
"""What the other commands print. Each script that they call prints its own name and its arguments."""

NOT_RUN = {"If the lock is lost": "text"}
"""Blocks that are drawings, and their languages."""

SCRIPTS = {word.removeprefix("./") for word in re.findall(r"\./\w+\.sh", PAGE)} | {"scheduler"}

SQLITE = """#!{python}
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as store:
    for row in store.execute(sys.argv[2]):
        print(*row, sep="|")
"""
"""Stands for the shell of SQLite, which not every machine has."""


NODES = ["redis://a", "redis://b", "redis://c"]
"""The nodes of the page."""

DIFFERS = re.compile(r"^(  \w+  \w+  ).*\n(?:   .*\n)*", re.M)
"""A finding of `redlock check`, whose text depends on the server."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """The nodes of all examples, each of which leaves its locks free."""
    with Cluster(len(NODES)) as nodes:
        yield nodes


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the examples are run: with the scripts and the programs that they call."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "redlock").symlink_to(PROGRAM)
    written = {tmp_path / name: '#!/bin/sh\necho "$(basename "$0")" "$@"\n' for name in SCRIPTS}
    written[programs / "sqlite3"] = SQLITE.format(python=sys.executable)
    for path, text in written.items():
        path.write_text(text)
        path.chmod(0o755)
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as store, store:
        store.execute("CREATE TABLE total (value INTEGER, fence INTEGER)")
        store.execute("INSERT INTO total VALUES (7, 0)")
    return tmp_path


def environment(directory: Path, nodes: Cluster) -> dict[str, str]:
    """That of a shell in which `redlock` is installed, and knows its nodes."""
    path = os.pathsep.join([str(directory / "bin"), "/usr/bin", "/bin"])
    return {"PATH": path, "REDLOCK_URLS": ",".join(nodes.urls), "LANG": "C.UTF-8"}


def printed(directory: Path, nodes: Cluster, code: str) -> str:
    """Runs a script, which must succeed, and returns all that it prints."""
    script = directory / "script"
    script.write_text(f"#!/bin/sh -eu\n{code}")
    script.chmod(0o755)
    done = subprocess.run(
        [str(script)],
        cwd=directory,
        env=environment(directory, nodes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextlib.contextmanager
def held(nodes: Cluster, example: Example) -> Iterator[None]:
    """Somebody else holds the lock that an example shows."""
    if example.title not in {"status", "list", "release"}:
        yield
        return
    with redlock.Redlock(nodes.urls, ttl=30) as client:
        lock = client.lock("nightly")
        lock.acquire()
        until(lambda: client.inspect("nightly").holders == len(nodes), "a majority has it, and then the others")
        try:
            yield
        finally:
            with contextlib.suppress(redlock.LockLost):
                lock.release()


def test_every_example_is_run() -> None:
    assert len(re.findall(r"^ *```\w+$", PAGE, re.M)) == sum(1 + bool(ex.output) for ex in EXAMPLES.values())
    others = {title: example.language for title, example in EXAMPLES.items() if title not in RUNNABLE}
    assert others == NOT_RUN | {
        "Cron, migrations, containers": "crontab",
        "Cron, migrations, containers 3": "dockerfile",
    }
    silent = {title for title, example in RUNNABLE.items() if example.output is None}
    assert silent == PRINTED.keys()


@pytest.mark.parametrize("title", RUNNABLE)
def test_what_an_example_prints(directory: Path, nodes: Cluster, title: str) -> None:
    example = RUNNABLE[title]
    code, expected = example.code, example.output or PRINTED[title]
    for name, url in zip(NODES, nodes.urls, strict=True):
        code = re.sub(rf"{name}\b", url, code)
    with held(nodes, example):
        said = printed(directory, nodes, code)
    for name, url in zip(NODES, nodes.urls, strict=True):
        said = said.replace(url, f"{name}:6379")
    said, expected = masked(said, HOST), masked(expected, HOST)
    if title == "check":
        said, expected = DIFFERS.sub(r"\1", said), DIFFERS.sub(r"\1", expected)
    assert said == expected
    with redlock.Redlock(nodes.urls) as client:
        assert client.inspect("nightly").state == "free", "it is released"


@pytest.fixture
def others() -> Iterator[Cluster]:
    """Nodes on which a lock stays for its least time."""
    with Cluster(len(NODES)) as nodes:
        yield nodes


def test_a_job_of_cron_is_done_by_one_host(directory: Path, others: Cluster) -> None:
    variables, (job,) = crontab(EXAMPLES["Cron, migrations, containers"].code)
    assert len(variables.pop("REDLOCK_URLS").split(",")) == 3
    assert not variables
    assert re.fullmatch(r"\d+ \d+ \* \* \*", job.schedule)
    command = job.command.replace("/srv", str(directory))
    hosts = [
        subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=environment(directory, others),
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(3)
    ]
    mails = sorted(host.communicate(timeout=60)[0] for host in hosts)
    assert mails == ["", "", "report.sh\n"]
    assert [host.returncode for host in hosts] == [0, 0, 0]


def test_a_container_runs_its_command(directory: Path, nodes: Cluster) -> None:
    root = {"/redlock": str(directory / "bin/redlock"), "/scheduler": str(directory / "scheduler")}
    command = [root.get(word, word) for word in entry(EXAMPLES["Cron, migrations, containers 3"].code)]
    done = subprocess.run(command, env=environment(directory, nodes), capture_output=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"scheduler\n", b"")


def test_the_fence_is_compared(directory: Path, nodes: Cluster) -> None:
    code = EXAMPLES["Use the fence"].code
    assert printed(directory, nodes, code) == "8\n"
    assert printed(directory, nodes, code) == "9\n"
    with contextlib.closing(sqlite3.connect(directory / "store.db")) as store, store:
        store.execute("UPDATE total SET fence = fence + 1000000000")
    assert printed(directory, nodes, code) == "", "a later holder was there"


def test_readme_and_quick_start_run(directory: Path, nodes: Cluster) -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ["README.md", "core/docs/quick-start.md"])
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    statuses = [
        subprocess.run(
            ["/bin/sh", "-c", line], cwd=directory, env=environment(directory, nodes), capture_output=True, check=False
        ).returncode
        for block in blocks
        for line in block.splitlines()
    ]
    assert statuses == [0, 0, 0, 1, 0], "the lock is free again when its status is asked for"


def rows(title: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    section = re.split(r"^#{2,3} ", PAGE.split(f"# {title}\n")[1], maxsplit=1, flags=re.M)[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.M)
    assert table
    return [re.split(r" \| ", line.strip("| ")) for line in table[0].splitlines()[2:]]


def test_the_page_has_every_option_of_run() -> None:
    shown = subprocess.run([str(PROGRAM), "run", "--help"], capture_output=True, text=True, check=True).stdout
    own = re.split(r"^Nodes:$", shown, flags=re.M)[0]
    options = set(re.findall(r"^\s+(?:-\w, )?(--[\w-]+)", own, re.M)) - {"--help", "--version"}
    assert {re.search(r"--[\w-]+", row[0])[0] for row in rows("Run a command")} == options  # type: ignore[index]
