"""A grant in quarantine is found, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.quarantine import LEAST_S, Quarantine

LEAST_NS = round(LEAST_S * 1e9)
LOST_NS, REPLACED_NS = 1000, 5000
QUARANTINE = Quarantine("shard 1", frozenset({"a"}), LOST_NS, REPLACED_NS)


def won(client: str, invoke_ns: int, return_ns: int, name: str = "a") -> str:
    record = {"kind": "acquire", "ok": True, "client": client, "name": name}
    return json.dumps(record | {"invoke_ns": invoke_ns, "return_ns": return_ns})


def found(folder: Path, *lines: str) -> list[str]:
    """What is found in a history in which one process has used the former primary."""
    history = folder / "history.jsonl"
    history.write_text("\n".join([won("old/0", 1, 2), won("elsewhere/0", 1, 2, "b"), *lines]))
    return list(QUARANTINE.broken_in(history))


def test_a_process_that_used_the_former_primary_may_not_acquire_at_once(tmp_path: Path) -> None:
    (said,) = found(tmp_path, won("old/3", LOST_NS + 1, REPLACED_NS + LEAST_NS - 1))
    assert said == (
        'granted in quarantine: shard 1 had another primary, and lock "a": "old/3" had it 1.00 s after that'
    )


@pytest.mark.parametrize(
    "line",
    [
        won("old/3", LOST_NS + 1, REPLACED_NS + LEAST_NS),
        won("old/3", LOST_NS, REPLACED_NS),
        won("old/3", LOST_NS + 1, REPLACED_NS, "b"),
        won("new/0", LOST_NS + 1, REPLACED_NS),
        won("elsewhere/0", LOST_NS + 1, REPLACED_NS),
        won("old/child", LOST_NS + 1, REPLACED_NS),
        json.dumps({"kind": "acquire", "ok": False}),
        json.dumps({"kind": "lapse", "ok": True}),
    ],
    ids=["later", "asked before", "another shard", "new process", "was elsewhere", "forked", "denied", "no acquire"],
)
def test_all_others_may(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, line) == []
