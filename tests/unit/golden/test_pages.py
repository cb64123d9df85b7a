"""What users read, whole: the terminal, pages, lines of a log. The figures are made up or stored.

Each entry of `PAGES` is a file of `tests/golden`. Every run in `tests/runs` has one by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from builders.checks import SLO, facts, nights
from builders.golden import Golden, difference, forms, sections
from builders.mixed_shapes import shaped_run
from builders.pages import told
from builders.runs import Toy, make_run
from builders.soaked_runs import soaked_run

from tuner.record.checks import CheckFacts, read_check
from tuner.record.manifest import Choices
from tuner.record.status import CheckStatus, Status
from tuner.record.store import MANIFEST, Member, Series, write_series
from tuner.report import check_document, compare, junit, listing, markdown
from tuner.report.blocks import Document
from tuner.report.data import ReportData, load
from tuner.report.render import pull_request_of
from tuner.report.run_document import document
from tuner.report.terminal import lines_of

RUNS = Path(__file__).parents[2] / "runs"
STORED = sorted(path.parent.name for path in RUNS.glob(f"*/{MANIFEST}"))


def stored(name: str) -> Callable[[], str]:
    """A run of `tests/runs` in all its forms, and its check where it has one."""

    def text() -> str:
        data = load(RUNS / name)
        data = replace(data, directory=Path("results", name))
        proposal = {"pull_request": pull_request_of(data)} if data.result.winner else {}
        return forms(document(data), junit=junit.render(data), **proposal)

    return text


def run(status: str, change: Callable[[ReportData], ReportData] = lambda d: d) -> Callable[[], str]:
    """A made-up run that ended in this way, as far as its end is told otherwise."""

    def text() -> str:
        return of_run(change(load(make_run(Path("results"), Toy(trials=8), status))))

    return text


def of_run(data: ReportData) -> str:
    return sections(terminal=terminal(document(data)), junit=junit.render(data))


def terminal(shown: Document) -> str:
    return click.unstyle("\n".join(lines_of(shown)))


def soaked(role: str) -> Callable[[], str]:
    return lambda: of_run(load(soaked_run(Path("results"), 0.9, role)[0]))


def checks() -> str:
    """Every way that a check may end."""
    nothing = {"values": [], "slo": [], "level": None, "load": None, "rounds": 0, "history": []}
    missed = {"worst": {**SLO, "verdict": "fail", "value": 5e4, "margin": -0.25}, "values": [5e4]}
    found = {status.value: facts(status) for status in CheckStatus}
    found["slo missed"] = facts(CheckStatus.MISSED, slo=[missed])
    found["failed"] = facts(CheckStatus.FAILED, **nothing)
    found["nothing to compare with"] = facts(CheckStatus.INCONCLUSIVE, baseline=None, ratio=None)
    found["another load"] = facts(CheckStatus.INCONCLUSIVE, ratio=None)
    found["not measured"] = facts(CheckStatus.INCONCLUSIVE, baseline=None, **nothing)
    return sections(**{name: terminal(check_document.document(c)) for name, c in found.items()})


def check(found: Callable[[], CheckFacts]) -> Callable[[], str]:
    def text() -> str:
        kept = found()
        more = {
            "junit": check_document.junit_of(kept),
            "metrics": check_document.open_metrics(kept),
        }
        return forms(check_document.document(kept), **more)

    return text


def compared(*names: str) -> Callable[[], str]:
    """Two stored runs, both as they were found."""

    def text() -> str:
        return forms(compare.document(compare.compared(*(RUNS / name for name in names))))

    return text


def series() -> str:
    ends = (Status.IMPROVED, Status.INTERRUPTED)
    runs = [make_run(Path("results"), Toy(trials=3), status.value).name for status in ends]
    members = [
        Member("toy.yaml", "toy", run, status) for run, status in zip(runs, ends, strict=True)
    ]
    members[1] = replace(members[1], exit_code=130)
    directory = Path("results", "20250301-090000-series")
    write_series(directory, Series("2025-03-01T09:00:00+00:00", Choices(), None, tuple(members)))
    return sections(markdown=markdown.render(listing.document(directory)))


PAGES: dict[str, Callable[[], str]] = {
    **{f"run-{name}": stored(name) for name in STORED},
    "run-kept": run("kept"),
    "run-infeasible": run("infeasible"),
    "run-not-known": run("not known"),
    "run-interrupted": run("interrupted"),
    "run-failed": run("failed"),
    "run-killed": run("killed"),
    "run-not-written": run("improved", lambda data: told(data, written=None)),
    "run-taken-back": run("improved", lambda data: replace(data, taken_back=True)),
    "run-shapes": lambda: of_run(load(shaped_run(Path("results")))),
    "run-claim-lowered": soaked("winner"),
    "run-kept-soaked": soaked("baseline"),
    "checks": checks,
    "check-stored": check(lambda: read_check(RUNS / "one-model")),
    "check-regression": check(lambda: facts(CheckStatus.REGRESSION, history=nights())),
    "compare-alike": compared("one-model", "one-model"),
    "compare-incomparable": compared("one-model", "ensemble"),
    "series": series,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_as_it_did(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden(name, PAGES[name]())


def test_every_text_is_still_made(golden: Golden) -> None:
    golden.names(set(PAGES))


def test_a_difference_is_shown_line_by_line_with_the_command_that_accepts_it() -> None:
    shown = difference("x.txt", "Better: 9/s\nsame\n", "Better: 10/s\nsame\n")
    assert "\n-Better: 9/s\n+Better: 10/s\n same\n" in shown
    assert shown.endswith(
        "pytest tests/unit/golden --update-golden, and look at git diff tests/golden"
    )
    assert difference("x.txt", "a\n", "a\n") == ""
