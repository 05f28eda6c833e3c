"""`tests/TIERS.md` lists each test that `make test` leaves out."""

from __future__ import annotations

import pytest

from setup.tiers import ALL, GATE, PAGE, in_python, in_rust, written


def test_the_page_lists_what_the_sources_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run: python tests setup.tiers"


def test_marks_are_found() -> None:
    source = """
LONG = pytest.mark.test_all("long")

CASES = [1, pytest.param(2, marks=LONG)]

@LONG
@pytest.mark.parametrize(
    "n", [pytest.param(1, marks=LONG), pytest.param(2, marks=pytest.mark.test_all("2", gate=True))]
)
def test_it(n):
    pass
"""
    assert set(in_python(source)) == {
        ("CASES", "some cases", "long", ALL),
        ("test_it", "all", "long", ALL),
        ("test_it", "some cases", "long", ALL),
        ("test_it", "some cases", "2", GATE),
    }
    source = '#[test]\n#[ignore = "make test-all: a minute"]\nfn it() {}\n#[ignore = "never"]\nfn other() {}\n'
    assert list(in_rust(source)) == [("it", "all", "a minute", ALL)]
    with pytest.raises(ValueError, match="needs its reason"):
        list(in_python("def test_it():\n    pytest.mark.test_all()"))
