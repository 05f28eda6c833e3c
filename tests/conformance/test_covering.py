"""Nothing is in neither tier: `make test` has each value of each parameter of a story, and `--all` has every case."""

from __future__ import annotations

import itertools
import subprocess

import pytest

from conformance.conftest import HERE, TIERS, given, story, tier, values
from conformance.covering import covering
from conformance.driver import FACES
from support.process import python

SERVERS = ("valkey", "redis")
CASES = [set(case) for case in itertools.product(SERVERS, ("one", "five"), FACES, ("first", "middle", "last"))]


def test_the_choice_is_the_same_each_time_and_differs_between_stories() -> None:
    stories = [f"story {number}" for number in range(20)]
    choices = [covering(name, CASES) for name in stories]
    assert choices == [covering(name, CASES) for name in stories]
    assert len(set(map(frozenset, choices))) > 1


def of_stories(items: list[pytest.Item]) -> dict[str, set[tuple[str, str]]]:
    """All values of each story."""
    found: dict[str, set[tuple[str, str]]] = {}
    for item in items:
        found.setdefault(story(item), set()).update(values(item))
    return found


def test_the_tier_has_each_story_with_each_value(pytestconfig: pytest.Config) -> None:
    """It is about the test cases of this run: about all of them in `make test`."""
    possible, chosen = pytestconfig.stash[TIERS]
    assert of_stories(tier(possible)) == of_stories(possible)
    assert of_stories(chosen) == of_stories(possible)
    for item in possible:
        faces = {value for value in given(item).values() if isinstance(value, str) and value in FACES}
        assert faces <= {value for _, value in values(item)}


@pytest.mark.test_all("it collects the suite once more", gate=True)
def test_with_all_every_case_runs() -> None:
    command = [*python("pytest"), "-q", "--collect-only", "--all", "--disable-plugin-autoload", "-p", "pytest_timeout"]
    result = subprocess.run([*command, str(HERE)], capture_output=True, text=True, check=True)
    assert " tests collected" in result.stdout
    assert "deselected" not in result.stdout
