"""Nothing is in neither tier: `make test` has each value of each parameter of a story, and `--all` has every case."""

from __future__ import annotations

import pytest

from conformance.conftest import TIERS, story, tier, values


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
