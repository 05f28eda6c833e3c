"""The alerts and the dashboard are well formed. `make alerts` plays the alerts in Prometheus' own tool."""

from __future__ import annotations

from typing import Any

import promql_parser
import pytest

from observing.expressions import DASHBOARD, PANELS, RULES, TESTS, expressions
from observing.told import PAGE, quoted, rows

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

SAID = {"summary", "description", "action", "runbook_url"}
"""What each alert says."""


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_can_be_read(expression: str) -> None:
    promql_parser.parse(expression)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_to_do_and_is_tried(rule: dict[str, Any]) -> None:
    assert rule["annotations"].keys() == SAID
    assert rule["labels"]["severity"] in {"critical", "warning"}
    tried = [case for test in TESTS for case in test["alert_rule_test"] if case["alertname"] == rule["alert"]]
    assert {bool(case.get("exp_alerts")) for case in tried} == {True, False}, "it fires, and not always"


def test_the_page_lists_the_alerts() -> None:
    told = [(quoted(alert)[0], severity) for alert, severity, *_ in rows("alert | severity")]
    assert told == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_each_alert_points_to_its_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].rpartition("/")[2].partition("#")
    assert (page, anchor) == ("observing.md", rule["alert"].lower())
    assert f"\n### {rule['alert']}\n" in PAGE


def test_the_only_data_source_is_a_variable() -> None:
    sources = [variable for variable in DASHBOARD["templating"]["list"] if variable["type"] == "datasource"]
    assert [variable["name"] for variable in sources] == ["datasource"]
    for panel in PANELS:
        assert {str(panel["datasource"]), *(str(target["datasource"]) for target in panel["targets"])} == {str(SOURCE)}
