"""The page lists every event as it is, and each place that emits one tells all of its fields."""

from __future__ import annotations

import pytest

from conformance.driver import table
from observing.told import SOURCES, Call, bindings, calls, catalogue, rows, told_events

LEVELS = {"debug", "info", "warn", "error"}


def test_the_page_has_every_event_in_the_order_of_the_engine() -> None:
    assert list(told_events()) == [*catalogue(), *bindings()]


@pytest.mark.parametrize("code", catalogue())
def test_the_page_has_the_event_as_it_is(code: str) -> None:
    _, event = catalogue()[code]
    assert event.level in LEVELS
    assert told_events()[code] == event


def test_the_table_of_all_languages_has_every_event_as_it_is() -> None:
    engine = [
        {
            "code": code,
            "topic": event.topic,
            "level": event.level,
            "fields": [*event.fields],
            "needs_person": event.needs_person,
        }
        for code, (_, event) in catalogue().items()
    ]
    assert table("events")["cases"] == engine


def test_the_page_has_the_event_of_the_bindings_as_it_is() -> None:
    assert {code: told_events()[code] for code in bindings()} == bindings()


def test_the_page_says_when_and_what_to_do() -> None:
    assert [row[0] for row in rows("code | level") if len(row) != 6 or not all(row)] == []


def wrong(emitted: list[Call]) -> list[Call]:
    """The calls that do not tell exactly what the catalogue says."""
    fields = {name: event.fields for name, event in catalogue().values()}
    return [call for call in emitted if call.fields != fields.get(call.event)]


def test_each_call_tells_all_fields_in_their_order() -> None:
    emitted = calls()
    assert len(emitted) >= len(catalogue())
    assert wrong(emitted) == []


def test_each_event_is_emitted() -> None:
    assert {call.event for call in calls()} == {name for name, _ in catalogue().values()}


def test_no_event_passes_by_the_catalogue() -> None:
    macros = ("tracing::event!", "tracing::error!", "tracing::warn!", "tracing::info!", "tracing::debug!")
    by_hand = [
        str(path.relative_to(SOURCES))
        for path in sorted(SOURCES.rglob("*.rs"))
        if any(macro in path.read_text(encoding="utf-8").split("#[cfg(test)]")[0] for macro in macros)
    ]
    assert by_hand == ["sys/log.rs"]
