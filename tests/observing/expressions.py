"""The expressions of the dashboard and the alerts in `observability/`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

from examples.program import ROOT
from observing.told import Metric

PLACE = ROOT / "observability"

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((PLACE / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
"""The alerts."""

TESTS: list[dict[str, Any]] = yaml.safe_load((PLACE / "alerts_test.yml").read_text())["tests"]
"""What promtool tries with them."""

DASHBOARD: dict[str, Any] = json.loads((PLACE / "dashboard.json").read_text())

PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

VARIABLES = {"$__rate_interval": "5m", "$job": ".*"}
"""What Grafana replaces, and something that it could be."""

FROM_SCRAPES = frozenset({"job", "instance"})
"""The labels that Prometheus adds."""

PARTS = ("_bucket", "_sum", "_count")
"""What becomes of the name of a histogram."""


@dataclass(frozen=True)
class Use:
    """A metric in an expression, and the labels that must have a value."""

    name: str
    matched: tuple[tuple[str, str], ...]
    grouped: frozenset[str]


def expressions() -> list[str]:
    """All of them, as Prometheus gets them."""
    found = [rule["expr"] for rule in RULES]
    found += [target["expr"] for panel in PANELS for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


def uses(expression: str) -> list[Use]:
    """The metrics that an expression names."""
    grouped = frozenset(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", expression))))
    found = re.findall(r"\b(redlock_\w+)(?:\{([^}]*)\})?", expression)
    return [Use(name, tuple(re.findall(r'(\w+)="([^"]*)"', matchers)), grouped) for name, matchers in found]


def exported(metrics: dict[str, Metric]) -> dict[str, frozenset[str]]:
    """The names that Prometheus has for these metrics, with their labels."""
    found = {}
    for name, metric in metrics.items():
        if metric.kind != "histogram":
            found[name] = metric.labels
            continue
        for part in PARTS:
            found[name + part] = metric.labels | ({"le"} if part == "_bucket" else set())
    return found
