"""What the documentation links to is there, and the commands that its sentences name exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from builders.documents import PAGES, TOP

from tuner.cli import COMMANDS, cli
from tuner.proof.decide import look_after
from tuner.spec.model import Check

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = HEADING.findall(page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_documentation_has_its_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "glossary.md", "testing.md"} <= {
        page.name for page in PAGES
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        there = (page.parent / target) if target else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{target}#{anchor}"


NAMED = re.compile(r"`tune\s+([a-z]+)\b([^`]*)`")


def test_every_command_and_option_in_a_sentence_is_one_of_tune() -> None:
    options = {
        name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        for name in COMMANDS
        if (command := cli.get_command(click.Context(cli), name))
    }
    named = [
        (str(page.relative_to(TOP)), match[1], set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", match[2])))
        for page in PAGES
        for match in NAMED.finditer(page.read_text())
    ]
    assert len(named) > 100
    unknown = [n for n in named if n[1] not in options or n[2] - options[n[1]]]
    assert unknown == []


def test_page_on_nights_names_the_rounds_after_which_a_check_is_judged() -> None:
    rounds = Check().rounds
    judged = [number for number in range(1, rounds + 1) if look_after(number, rounds, 1)]
    words = {3: "three", 4: "four", 7: "seven", 10: "ten"}
    said = ", ".join(words[number] for number in judged[:-1])
    page = (TOP / "docs" / "nightly.md").read_text()
    assert f"Of {words[rounds]} rounds" in page
    assert f"after {said} and {words[rounds]}" in page
