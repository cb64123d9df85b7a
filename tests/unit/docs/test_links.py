"""What the documentation links to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.documents import PAGES, TOP

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = HEADING.findall(page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "glossary.md", "twin.md"} <= {
        page.name for page in PAGES
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        there = (page.parent / target) if target else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{target}#{anchor}"
