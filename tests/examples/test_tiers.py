"""`tests/TIERS.md` lists each test that `make test` leaves out."""

from __future__ import annotations

from setup.tiers import PAGE, written


def test_the_page_lists_what_the_sources_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run: python tests setup.tiers"
