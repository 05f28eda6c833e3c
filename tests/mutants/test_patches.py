"""Each patch still fits the tree, and names what finds it. `make planted` plants them."""

from __future__ import annotations

import re

import pytest

from mutants.patches import ROOT, Patch, patches

STORIES = ROOT / "tests" / "simulation" / "tests"
CASES = ROOT / "tests" / "conformance"


@pytest.mark.parametrize("patch", patches(), ids=lambda patch: patch.name)
def test_patch_fits_and_names_what_finds_it(patch: Patch) -> None:
    checked = patch.apply(ROOT, "--check")
    assert not checked.returncode, f"{patch.path.name} does not fit any more:\n{checked.stderr}"
    assert patch.files
    assert all(name.startswith("core/src/") for name in patch.files), "it breaks the engine"
    assert [patch.seed, patch.story, patch.case].count(None) == 2, "a seed, a story or a test case finds it"
    assert patch.what.endswith(".")
    re.compile(patch.shows)
    if patch.story is not None:
        module, _, name = patch.story.rpartition("::")
        assert f"fn {name}()" in (STORIES / f"{module}.rs").read_text(encoding="utf-8"), "no such story"
    if patch.case is not None:
        file, _, case = patch.case.partition("::")
        assert f"def {case.partition('[')[0]}(" in (CASES / file).read_text(encoding="utf-8"), "no such test case"


def test_make_gate_plants_one_of_each_kind() -> None:
    samples = [patch for patch in patches() if patch.is_sample]
    assert len(samples) == 3
    assert all([getattr(patch, kind) for patch in samples].count(None) == 2 for kind in ("seed", "story", "case"))
