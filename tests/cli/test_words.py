"""What the program says of itself: help, version, the manual page and completions."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest

from cli.conftest import every_launcher
from cli.redlock import Redlock
from conformance.conftest import ROOT

COMMANDS = ["run", "acquire", "extend", "status", "wait", "list", "release", "check", "manual", "completions"]

WIDEST = 100
"""Longer lines are hard to read, and terminals are about as wide."""


@every_launcher
def test_version(redlock: Redlock) -> None:
    version = tomllib.loads((ROOT / "core" / "cli" / "Cargo.toml").read_text(encoding="utf-8"))["package"]["version"]
    for word in ("--version", "-V"):
        ended = redlock.end(word)
        assert (ended.status, ended.out, ended.err) == (0, f"redlock {version}\n", "")


def test_help(redlock: Redlock) -> None:
    ended = redlock.end("--help")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("redlock run nightly -- ./report.sh")
    assert "Usage: redlock" in ended.out
    for word in ("REDLOCK_URLS", "core/docs/command-line.md", "64", "69", "70", "74", "75", "76", "77"):
        assert word in ended.out
    assert [each for each in COMMANDS if re.search(rf"^  {each}\b", ended.out, re.M)] == COMMANDS
    assert redlock.end("-h").out == redlock.end("help").out == ended.out
    assert redlock.end("help", "run").out == redlock.end("run", "--help").out


@pytest.mark.parametrize("words", [["./report.sh"], ["./report.sh", "--all"]], ids=" ".join)
def test_a_command_without_what_separates_it(redlock: Redlock, words: list[str]) -> None:
    ended = redlock.end("run", "nightly", *words)
    assert (ended.status, ended.out) == (64, "")
    assert ended.err.startswith("redlock: put -- before the command; ")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(redlock: Redlock, command: str) -> None:
    for word in ("--help", "-h"):
        ended = redlock.end(command, word)
        assert (ended.status, ended.err) == (0, "")
        assert f"Usage: redlock {command}" in ended.out
        assert max(map(len, ended.out.splitlines())) <= WIDEST
        assert "\x1b" not in ended.out, "no colours without a terminal"


@pytest.mark.parametrize("words", [[], ["run"], ["status"], ["release"], ["list"]], ids=" ".join)
def test_the_manual_page(redlock: Redlock, words: list[str]) -> None:
    ended = redlock.end("manual", *words)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith((".", "'"))
    assert re.search(r"^\.SH NAME$", ended.out, re.M)
    version = redlock.end("--version").out.strip()
    assert re.search(rf'^\.TH REDLOCK\S* 1 " " "{version}" "User Commands"$', ended.out, re.M)
    if groff := shutil.which("groff"):
        formatted = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww"], input=ended.out, capture_output=True, text=True, check=True
        )
        assert not formatted.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(redlock: Redlock, shell: str) -> None:
    ended = redlock.end("completions", shell)
    assert (ended.status, ended.err) == (0, "")
    assert "on-loss" in ended.out
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=ended.out, text=True, check=True)


def test_bash_completes(redlock: Redlock) -> None:
    """As a person who presses the tabulator."""
    script = """
        source <(redlock completions bash)
        COMP_WORDS=(redlock "$1") COMP_CWORD=1 COMP_LINE="redlock $1" COMP_POINT=$((8 + ${#1}))
        _redlock redlock "$1" redlock
        echo "${COMPREPLY[*]}"
    """
    ended = redlock.programs.start(["bash", "-c", script, "bash", "st"], env=redlock.environment()).end()
    assert ended.out.split() == ["status"]
