"""The command: no shell, the same streams, descriptors and signals as without us, and a few variables more."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import each_launcher, every_launcher
from cli.redlock import Redlock, one_line, taken, waiting
from cli.running import Programs
from conformance.history import SLACK_MS
from conformance.story import fence_key, slot_key
from support import tls
from support.clock import until
from support.servers import Cluster, Server

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

SHOW_VARIABLES = [
    *("sh", "-c", 'printf "%s|%s|%s|%s" "$REDLOCK_NAME" "$REDLOCK_FENCE" "$REDLOCK_TTL_MS" "${REDLOCK_SLOT-unset}"')
]


def test_its_variables(redlock: Redlock, node: Server, name: str) -> None:
    fences = []
    for _ in range(2):
        ended = redlock.end("run", "-t", "7s", name, "--", *SHOW_VARIABLES, env={"REDLOCK_SLOT": "of another lock"})
        assert ended.status == 0, ended
        named, fence, ttl_ms, slot = ended.out.split("|")
        assert (named, ttl_ms, slot) == (name, "7000", "unset")
        assert node.get(fence_key(name)) == fence.encode()
        fences.append(int(fence))
    assert fences[0] < fences[1]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [([], "run -w 2s"), (["-s"], "run -w 2s"), (["other"], "run -w 2s"), ([], "acquire -w 2s"), ([], "wait -w 2s")],
)
def test_a_lock_that_is_held_around_it(redlock: Redlock, node: Server, name: str, outer: list[str], inner: str) -> None:
    """The program waits for a lock that is released when it ends."""
    words = [*inner.split(), name, *(["--", "true"] if "run" in inner else [])]
    ended = redlock.end("run", *outer, name, "--", "redlock", *words)
    assert ended.status == 75
    warned, _ = ended.err.splitlines()
    assert f'"{name}"' in warned
    assert "in vain" in warned
    taken(node, name, fence=7)
    left = {"REDLOCK_NAME": name, "REDLOCK_FENCE": "6"}
    one_line(redlock.end(*words, env=left).err)


def test_its_slot(redlock: Redlock, node: Server, name: str) -> None:
    first = redlock.hold("--permits", "2", name)
    named, fence, _, slot = redlock.end("run", "--permits=2", "-n", name, "--", *SHOW_VARIABLES).out.split("|")
    assert named == name
    assert slot in {"0", "1"}
    assert node.get(fence_key(slot_key(name, int(slot)))) == fence.encode()
    second = redlock.hold("--permits", "2", name)
    assert redlock.end("run", "--permits", "2", "-n", name, "--", "true").status == 75, "both slots are taken"
    assert redlock.end("run", "-n", name, "--", "true").status == 0, "the lock of this name is another one"
    redlock.end_work()
    assert (first.end().status, second.end().status) == (0, 0)


def metrics_of(file: Path, name: str) -> dict[str, float]:
    """The metrics in a file for node_exporter, which are those of one lock, and each with its help and type."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = {}
    for helped, typed, line in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        metric, value = line.removeprefix("redlock_run_last_").split(f'{{name="{name}"}} ')
        assert helped.startswith(f"# HELP redlock_run_last_{metric} ")
        assert typed == f"# TYPE redlock_run_last_{metric} gauge"
        found[metric] = float(value)
    return found


def test_a_file_tells_node_exporter_how_it_went(redlock: Redlock, node: Server, name: str, tmp_path: Path) -> None:
    file = tmp_path / "job.prom"
    run = ("run", "-n", "--textfile", file, name, "--")
    umask = functools.partial(os.umask, 0o077)
    assert redlock.end(*run, "sh", "-c", "sleep 0.2; exit 3", before=umask).status == 3
    assert file.stat().st_mode & 0o777 == 0o644, "node_exporter is another user"
    failed = metrics_of(file, name)
    assert (failed["exit_status"], "success_timestamp_seconds" in failed) == (3, False)
    assert failed["hold_seconds"] >= 0.2
    assert redlock.end(*run, "true").status == 0
    done = metrics_of(file, name)
    assert done["exit_status"] == 0
    assert failed["end_timestamp_seconds"] < done["success_timestamp_seconds"] == done["end_timestamp_seconds"]
    taken(node, name)
    assert redlock.end(*run, "true").status == 75
    denied = metrics_of(file, name)
    assert (denied["exit_status"], denied["hold_seconds"]) == (75, 0)
    assert denied["success_timestamp_seconds"] == done["success_timestamp_seconds"], "that of the run before"
    assert [each.name for each in tmp_path.glob("*job*")] == ["job.prom"]


def test_a_file_for_node_exporter_that_cannot_be_written(redlock: Redlock, name: str, tmp_path: Path) -> None:
    ended = redlock.end("run", "--textfile", tmp_path / "gone" / "job.prom", name, "--", "sh", "-c", "exit 3")
    assert (ended.status, ended.err.startswith("redlock: cannot write ")) == (3, True)
    ended = redlock.end("run", "--textfile", "job.txt", name, "--", "true")
    assert (ended.status, "*.prom" in ended.err) == (64, True)


def test_its_names(redlock: Redlock, node: Server, name: str) -> None:
    names = [f"{name}/b", f"{name}/a"]
    running = redlock.hold(*names)
    assert all(node.has(each) for each in names)
    assert redlock.end("run", "-n", names[0], "--", "true").status == 75, "each of them is held"
    redlock.end_work()
    assert running.end().status == 0
    assert not any(node.has(each) for each in names)
    taken(node, names[0])
    assert redlock.end("run", "-n", *names, "--", "true").status == 75
    assert not node.has(names[1]), "all or none"
    node.command("DEL", names[0])
    shown = redlock.end("run", *names, "--", *SHOW_VARIABLES).out.split("|")[0]
    assert sorted(shown.split("\n")) == sorted(names)


def test_it_is_shared(redlock: Redlock, node: Server, name: str) -> None:
    """A command that runs alone waits for all that share the lock, and keeps them out."""
    readers = [redlock.hold(word, name) for word in ("-s", "--shared")]
    named, fence, _, slot = redlock.end("run", "-ns", name, "--", *SHOW_VARIABLES).out.split("|")
    assert (named, slot) == (name, "unset")
    assert node.get(fence_key(name)) == fence.encode()
    assert redlock.end("run", "-n", name, "--", "true").status == 75, "others share it"
    writing = redlock.folder / "writing"
    write = 'echo "$REDLOCK_FENCE"; touch "$0"; until test -e "$0.end"; do sleep 0.01; done'
    writer = redlock.start("run", name, "--", "sh", "-c", write, writing)
    waiting(node, name, writer)
    assert redlock.end("run", "-n", "--shared", name, "--", "true").status == 75, "a writer waits"
    assert not writing.exists(), "it runs beside others"
    redlock.end_work()
    assert [reader.end().status for reader in readers] == [0, 0]
    until(writing.exists, "it runs when nobody shares the lock")
    late = redlock.start("run", "-s", name, "--", *SHOW_VARIABLES)
    waiting(node, name, late)
    assert late.runs
    Path(f"{writing}.end").touch()
    ended = writer.end()
    assert (ended.status, ended.err) == (0, "")
    shown = late.end()
    assert shown.status == 0
    assert int(fence) < int(ended.out) < int(shown.out.split("|")[1])
    assert not node.has(name)


@every_launcher
def test_its_arguments_are_not_looked_at(redlock: Redlock, name: str) -> None:
    words = ["-n", "--", "$HOME", "a b", "", "*", "'", "ä", "--help"]
    script = "import os, sys; os.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])))"
    command = [sys.executable, "-I", "-S", "-c", script, *words]
    assert redlock.end("run", name, "--", *command).out == "|".join(words)


@every_launcher
def test_its_arguments_may_be_any_bytes(redlock: Redlock, name: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = 'printf "%s" "$1" >"$2"'
    assert redlock.end("run", name, "--", "sh", "-c", script, "sh", b"caf\xe9 \xff", told).status == 0
    assert told.read_bytes() == b"caf\xe9 \xff"


@every_launcher
def test_its_input_is_ours(redlock: Redlock, name: str) -> None:
    running = redlock.start("run", name, "--", "cat", stdin=subprocess.PIPE)
    running.stdin.write(b"hello\n" * 20_000)
    running.stdin.close()
    assert running.end().out == "hello\n" * 20_000


def test_only_the_command_reads_the_input(redlock: Redlock, name: str) -> None:
    """What it leaves is still there for who comes next."""
    script = 'redlock run "$1" -- sh -c "read line; echo first \\$line"; read line; echo "second $line"'
    running = redlock.programs.start(["sh", "-c", script, "sh", name], env=redlock.environment(), stdin=subprocess.PIPE)
    running.stdin.write(b"one\ntwo\n")
    running.stdin.close()
    assert running.end().out == "first one\nsecond two\n"


def test_its_folder_and_its_mask_are_ours(redlock: Redlock, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    ended = redlock.end(
        "run", name, "--", "sh", "-c", "pwd; umask", cwd=folder, before=functools.partial(os.umask, 0o027)
    )
    assert ended.out.split() == [str(folder), "0027"]


@every_launcher
def test_it_has_the_descriptors_that_we_were_given(redlock: Redlock, name: str, tmp_path: Path) -> None:
    """A descriptor of ours in the command would keep a connection open, or keep the command alive after us."""
    with (tmp_path / "given").open("wb") as given:
        command = [sys.executable, "-I", "-S", "-c", SHOW_DESCRIPTORS]
        without = redlock.programs.start(command, pass_fds=[given.fileno()]).end().out.split()
        with_lock = redlock.end("run", name, "--", *command, pass_fds=[given.fileno()]).out.split()
        assert f"{given.fileno()}:{os.fstat(given.fileno()).st_ino}" in with_lock
    assert [each.partition(":")[0] for each in with_lock] == [each.partition(":")[0] for each in without]


SHOW_DESCRIPTORS = """
import os
for fd in sorted(map(int, os.listdir("/dev/fd"))):
    try:
        print(f"{fd}:{os.fstat(fd).st_ino}")
    except OSError:
        pass  # that of listdir itself
"""


SHOW_SIGNALS = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]


def signals(shown: str) -> dict[str, int]:
    """The masks that `SHOW_SIGNALS` shows, without the real-time signals, which C libraries keep for themselves."""
    masks = dict(line.split(":\t") for line in shown.splitlines())
    assert masks.keys() == {"SigBlk", "SigIgn", "SigCgt"}
    return {name: int(mask, 16) & 0x7FFF_FFFF for name, mask in masks.items()}


@linux_only
@pytest.mark.parametrize("launcher", ["rust", "python"], indirect=True)
def test_its_ignored_signals_are_ours(redlock: Redlock, name: str) -> None:
    """`nohup` is for the command, and a shell has what runs in the background of a script ignore interrupts."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGUSR2)

    def ignore() -> None:
        for each in ignored:
            signal.signal(each, signal.SIG_IGN)

    without = signals(redlock.programs.start(SHOW_SIGNALS, before=ignore).end().out)
    assert without["SigIgn"] == sum(1 << each - 1 for each in ignored)
    assert signals(redlock.end("run", name, "--", *SHOW_SIGNALS, before=ignore).out) == without


@linux_only
@every_launcher
def test_its_signals_have_their_defaults(redlock: Redlock, name: str) -> None:
    """Whatever the host of the program has done to them: a command behind a closed pipe ends, for example."""
    without = signals(redlock.programs.start(SHOW_SIGNALS).end().out)
    assert signals(redlock.end("run", name, "--", *SHOW_SIGNALS).out) == without


@every_launcher
def test_the_end_of_children_was_ignored(redlock: Redlock, name: str) -> None:
    """Then the system keeps the status of no child, unless somebody asks for it again."""
    before = functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    assert redlock.end("run", name, "--", "sh", "-c", "exit 3", before=before).status == 3


def test_signals_that_were_blocked(redlock: Redlock, name: str) -> None:
    """They are heard all the same."""
    before = functools.partial(signal.pthread_sigmask, signal.SIG_BLOCK, set(signal.Signals))
    running = redlock.hold(name, work=["--end-on", "TERM", "--status", "3"], before=before)
    running.send(signal.SIGTERM)
    assert running.end(SLACK_MS / 1000).status == 3


def test_what_it_leaves_running_goes_on(redlock: Redlock, node: Server, name: str) -> None:
    """The lock is released, and nobody waits for a process that the command has left in the background."""
    script = '$work & while ! test -s "$0"; do sleep 0.01; done; exit 3'
    running = redlock.start("run", name, "--", "sh", "-c", script, redlock.diary.path, env=redlock.variables)
    ended = running.end()
    assert ended.status == 3
    assert not node.has(name)
    (left,) = redlock.diary.begun()
    assert {process.pid for process in redlock.programs.alive()} == {left.pid}, "neither our keeper nor we are left"
    redlock.end_work()
    until(redlock.programs.only, "it ends")
    assert redlock.diary.of("end"), "by itself"


def test_a_full_disk_is_the_commands_own_trouble(redlock: Redlock, node: Server, name: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = redlock.end("run", name, "--", "sh", "-c", "echo hello; exit $?", stdout=full)
    without = subprocess.run(["sh", "-c", "echo hello >/dev/full"], check=False, capture_output=True).returncode
    assert ended.status == without != 0
    assert not node.has(name)


@each_launcher("closed", [[0, 1, 2], [0], [1], [2]])
def test_streams_that_are_closed(redlock: Redlock, node: Server, name: str, closed: list[int], tmp_path: Path) -> None:
    """Nothing of ours gets their numbers, to be written to by a command that prints."""
    redirections = " ".join(f"{fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
    told = tmp_path / "told"
    script = f'redlock run "$0" -- sh -c \'echo hello; echo oh >&2; read line; echo $REDLOCK_FENCE >"$0"\' {told}'
    shell = redlock.programs.start(["sh", "-c", f"{script} {redirections}", name], env=redlock.environment())
    assert shell.end().status == 0
    assert int(told.read_text()) > 0
    assert not node.has(name)


def test_the_ttl_without_options(redlock: Redlock, name: str) -> None:
    assert redlock.end("run", name, "--", *SHOW_VARIABLES).out.split("|")[2] == "30000"


def test_a_node_may_take_longer_than_the_ttl_of_other_locks(redlock: Redlock, name: str) -> None:
    slow = ["-t", "60s", "--node-timeout", "12s", name]
    assert redlock.end("run", *slow, "--", "true").err == ""
    acquired = redlock.end("acquire", *slow)
    assert acquired.err == ""
    extended = redlock.end("extend", *slow[:-1], "--token", acquired.out.strip())
    assert (extended.status, extended.err) == (0, "")


def test_a_prefix_of_keys(redlock: Redlock, node: Server, name: str) -> None:
    running = redlock.hold("--key-prefix", "app:", name)
    assert node.has(f"app:{name}")
    assert not node.has(name)
    redlock.end_work()
    assert running.end().status == 0
    assert not node.has(f"app:{name}")


def test_a_password_in_a_file(redlock: Redlock, own_node: Server, name: str, tmp_path: Path) -> None:
    """It is on no command line and in no environment, so the command does not know it."""
    own_node.set_user("worker", "on", ">correct-horse", "+@all", "~*")
    file = tmp_path / "password"
    file.write_text("correct-horse\n")
    options = ["--node", own_node.url_as("worker"), "--password-file", str(file)]
    ended = redlock.end("run", *options, name, "--", "env")
    assert ended.status == 0, ended
    assert "correct-horse" not in ended.out
    script = 'redlock run --node "$0" --password-file <(cat "$1") name -- true'
    piped: list[str | Path] = ["bash", "-c", script, own_node.url_as("worker"), file]
    ended = redlock.programs.start(piped, env=redlock.environment()).end()
    assert ended.status == 64, "only its first connection would log in"


def test_encryption(redlock: Redlock, start_nodes: Callable[..., Cluster], name: str) -> None:
    """With a certificate of the server's that an authority of ours has signed, and one of our own."""
    program = tls.program_with_tls()
    if program is None:
        pytest.skip("no server on this machine has TLS")
    with Server(tcp=True, program=program, tls=tls.options(certificates=True)) as server:
        ca, ours = ["--tls-ca", str(tls.CA)], ["--tls-cert", str(tls.CLIENT), "--tls-key", str(tls.CLIENT_KEY)]
        for options, status in (
            ([*ca, *ours], 0),
            (ca, 69),
            (ours, 69),
            ([*ca, *ours, "--tls-server-name", "example.org"], 69),
        ):
            ended = redlock.at(server).end("run", "-n", *options, name, "--", "true")
            assert ended.status == status, ended


def test_a_name_of_any_bytes(redlock: Redlock, node: Server) -> None:
    name = "naïve ☃"
    assert redlock.end("run", name, "--", *SHOW_VARIABLES).out.split("|")[0] == name
    raw = b"bytes/\xff"
    running = redlock.hold(raw)
    assert node.has(raw)
    redlock.end_work()
    assert running.end().status == 0


def test_it_is_kept_at_least_so_long(redlock: Redlock, node: Server, name: str) -> None:
    """For hosts whose clocks do not agree on when a job is due."""
    ended = redlock.end("run", "--at-least", "4s", "-t", "6s", name, "--", "true")
    assert ended.status == 0
    assert ended.took_s < 4, "nobody waits for that here"
    left_ms = node.left_ms(name)
    assert 0 < left_ms <= 4000
    assert redlock.end("run", "-n", name, "--", "true").status == 75
    assert redlock.end("run", "-w", f"{left_ms + SLACK_MS}ms", name, "--", "true").status == 0


def test_programs_are_found(programs: Programs) -> None:
    """The test itself: a process that is left behind is found, whatever its group."""
    running = programs.start(["sh", "-c", "setsid sleep 60 & exit 0"])
    assert running.end().status == 0
    # A process that is becoming another program shows no environment, and the look knows it by that.
    until(lambda: [process.name() for process in programs.alive()] == ["sleep"], "it has begun")
    with pytest.raises(AssertionError, match="left behind"):
        programs.stop()
    until(programs.only, "it is ended")


def test_a_lock_over_several_commands(redlock: Redlock, node: Server, name: str) -> None:
    acquired = redlock.end("acquire", name, "--ttl", "1m", "--timeout", "0")
    assert (acquired.status, acquired.err) == (0, ""), acquired
    token = acquired.out.strip()
    assert redlock.end("run", "-n", name, "--", "true").status == 75
    for one_try in (["-w", "0"], ["-n"]):
        assert redlock.end("acquire", *one_try, name).status == 75
    fence = node.get(fence_key(name))
    extended = redlock.end("extend", "--token", token, "--ttl", "2m")
    assert (extended.status, extended.out, extended.err) == (0, "", ""), extended
    assert node.left_ms(name) > 60_000
    assert redlock.end("extend", "--token", token, "--ttl", "1s").status == 0
    assert node.left_ms(name) > 60_000
    assert "at least; never shortens" in " ".join(redlock.end("extend", "--help").out.split())
    damaged = redlock.end("release", "--token", token[:-1])
    assert damaged.status == 64
    assert "--token" in damaged.err
    assert "`redlock acquire` has printed" in damaged.err
    assert redlock.end("release", "--token", token).status == 0
    assert not node.has(name)
    assert node.get(fence_key(name)) == fence, "it was one hold"
    for command in ("extend", "release"):
        lost = redlock.end(command, "--token", token)
        assert lost.status == 76, lost
        assert token not in lost.err


@every_launcher
def test_a_token_that_nobody_can_read(redlock: Redlock, node: Server, name: str) -> None:
    """The lock is not kept until its ttl has passed: nobody could release it."""
    read, pipe = os.pipe()
    os.close(read)
    for output, status in ((pipe, 141), (os.open("/dev/full", os.O_WRONLY), 74)):
        assert redlock.end("acquire", name, stdout=output).status == status
        os.close(output)
        assert not node.has(name)
    assert redlock.shell('redlock acquire "$name" >&-', env={"name": name}).end().status == 74
    assert not node.has(name)
