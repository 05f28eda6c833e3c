"""What a diagnosis shows."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Diagnosis", "Finding", "Level"]

# One union rather than one literal: stubtest takes no other alias for equal.
Level: TypeAlias = Literal["ok"] | Literal["warning"] | Literal["unusable"]  # noqa: PYI030
"""`ok`: as it should be. `warning`: locks work, and something is lost. `unusable`: the node cannot vote, or its vote
does not count."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a node."""

    check: str
    """What was looked at: `connection`, `tls`, `role`, `version`, `resp3`, `info`, `tracking`, `evalsha`, `rights`,
    `eviction`, `persistence`, `replicas`, `clients`, `clock`, `cluster`, `slots`, `coverage`, `map`, `sentinel`,
    `primary`, `failover`, `alias` or `vote`."""

    level: Level
    """How serious it is."""

    message: str
    """What was found, and what to do, in one sentence."""

    def __str__(self) -> str:
        return f"{self.level}: {self.check}: {self.message}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A node and what was found about it.

    >>> import redlock
    >>> for diagnosis in redlock.Redlock("memory://diagnosis").diagnose():
    ...     print(diagnosis.node, diagnosis.level)
    ...     for finding in diagnosis.findings:
    ...         print(finding)
    memory://diagnosis ok
    ok: connection: a store in this process, which excludes nobody outside of it
    """

    node: str
    """The node's address without user name or password."""

    level: Level
    """The level of the most serious finding."""

    findings: list[Finding]
    """The findings, one or more for each check. A node that cannot be asked has one, and those about its sentinels."""
