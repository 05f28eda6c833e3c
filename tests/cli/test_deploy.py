"""The files in `deploy/` are well formed, and their commands are ones that the program takes."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cli.redlock import STATUS, Redlock
from conformance.conftest import ROOT

PLACE = ROOT / "deploy"

Pod = dict[str, Any]


def service() -> list[str]:
    """The command of the unit, which stops as `redlock run` needs it."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((PLACE / "scheduler.service").read_text(encoding="utf-8"))
    assert int(unit["Unit"]["StartLimitIntervalSec"]) == 0, "it starts again, however often it has failed"
    assert unit["Service"]["KillMode"] == "mixed"
    assert int(unit["Service"]["TimeoutStopSec"]) > 0
    assert int(unit["Service"]["SuccessExitStatus"]) == STATUS["TERM"], "a host that waits is stopped without a failure"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    return shlex.split(unit["Service"]["ExecStart"])


def pod(name: str, kind: str, version: str) -> Pod:
    """The pod of an object of Kubernetes."""
    document: dict[str, Any] = yaml.safe_load((PLACE / name).read_text(encoding="utf-8"))
    assert (document["kind"], document["apiVersion"]) == (kind, version)
    spec: dict[str, Any] = document["spec"]
    if kind == "CronJob":
        assert re.fullmatch(r"(\S+ ){4}\S+", spec["schedule"])
        spec = spec["jobTemplate"]["spec"]
        assert spec["template"]["spec"]["restartPolicy"] == "Never"
    else:
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        assert "-w" in spec["template"]["spec"]["containers"][0]["command"], "a replica waits until nodes are back"
    found: Pod = spec["template"]["spec"]
    return found


def command(of: Pod) -> list[str]:
    """The command of its only container, which is told where the nodes are."""
    assert of["terminationGracePeriodSeconds"] > 0
    (container,) = of["containers"]
    assert [each["name"] for each in container["env"]] == ["REDLOCK_URLS"]
    words: list[str] = container["command"]
    return words


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "scheduler.service": service,
    "cronjob.yaml": lambda: command(pod("cronjob.yaml", "CronJob", "batch/v1")),
    "election.yaml": lambda: command(pod("election.yaml", "Deployment", "apps/v1")),
}


def test_every_file_is_tried_and_on_the_page() -> None:
    page = (ROOT / "core" / "docs" / "command-line.md").read_text(encoding="utf-8")
    for file in PLACE.iterdir():
        # `make dist` lays the image out and runs it.
        assert file.name in {*COMMANDS, "Containerfile"}
        assert f"/deploy/{file.name}" in page


@pytest.mark.parametrize("file", COMMANDS)
def test_the_command_is_taken(redlock: Redlock, file: str) -> None:
    program, *words = COMMANDS[file]()
    place = words.index("--")
    assert program.rpartition("/")[2] == "redlock"
    assert words[place + 1].startswith("/srv/")
    # Nobody waits here for the least time.
    ended = redlock.end(*words[:place], "--", "true")
    assert (ended.status, ended.out, ended.err) == (0, "", "")
