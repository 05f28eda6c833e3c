"""A grant in quarantine is found, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.quarantine import LONGEST_NS, Quarantine

VALID_NS = 1_000_000_000
"""How long a lock is valid, where nothing else is said."""
LOST_NS, REPLACED_NS = 1000, 5000
QUARANTINE = Quarantine("shard 1", frozenset({"a"}), LOST_NS, REPLACED_NS)


def won(client: str, invoke_ns: int, return_ns: int, name: str = "a", valid_ns: int = VALID_NS) -> str:
    record = {"kind": "acquire", "ok": True, "client": client, "name": name, "valid_until_ns": return_ns + valid_ns}
    return json.dumps(record | {"invoke_ns": invoke_ns, "return_ns": return_ns})


def found(folder: Path, *lines: str) -> list[str]:
    """What is found in a history in which one process has used the former primary."""
    history = folder / "history.jsonl"
    history.write_text("\n".join([won("old/0", 1, 2), won("elsewhere/0", 1, 2, "b"), *lines]))
    return list(QUARANTINE.broken_in(history))


def test_a_process_that_used_the_former_primary_may_not_acquire_at_once(tmp_path: Path) -> None:
    (said,) = found(tmp_path, won("old/3", LOST_NS + 1, REPLACED_NS + VALID_NS - 1))
    assert said == (
        'granted in quarantine: shard 1 had another primary, and lock "a": "old/3" had it 1.00 s after that'
    )


def test_a_set_is_judged_by_each_of_its_names(tmp_path: Path) -> None:
    line = json.loads(won("old/3", LOST_NS + 1, REPLACED_NS, "a, b")) | {"names": ["a", "b"]}
    assert found(tmp_path, json.dumps(line))


@pytest.mark.parametrize(("valid_ns", "delay_ns"), [(LONGEST_NS // 2, LONGEST_NS // 2), (10**12, LONGEST_NS)])
def test_a_quarantine_lasts_for_the_ttl_unless_that_is_long(tmp_path: Path, valid_ns: int, delay_ns: int) -> None:
    assert found(tmp_path, won("old/3", LOST_NS + 1, REPLACED_NS + delay_ns - 1, valid_ns=valid_ns))
    assert not found(tmp_path, won("old/3", LOST_NS + 1, REPLACED_NS + delay_ns, valid_ns=valid_ns))
