"""The lists of test cases that options of the suite leave out."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.left_out import LEFT_OUT

HERE = Path(__file__).parent


def missing(listed: str) -> str | None:
    """The part of an entry that does not exist."""
    file, _, case = listed.partition("::")
    case, _, variant = case.removesuffix("]").partition("[")
    text = (HERE / file).read_text(encoding="utf-8") if (HERE / file).exists() else None
    if text is None:
        return file
    if case and f"def {case}(" not in text:
        return case
    return variant if variant and not re.search(rf"def {variant}\(|\"{variant}\"", text) else None


def test_what_is_left_out_exists() -> None:
    assert missing("test_none.py")
    assert missing("test_life.py::test_none")
    assert missing("test_life.py::test_denied[none]")
    for reasons in LEFT_OUT.values():
        listed = [each for cases in reasons.values() for each in cases]
        assert not {each: what for each in listed if (what := missing(each))}
        assert len(set(listed)) == len(listed)
