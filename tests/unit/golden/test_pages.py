"""What users read, whole: the terminal, pages, lines of a log. The figures are made up or stored.

Each entry of `PAGES` is a file of `tests/golden`. Every run in `tests/runs` has one by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.checks import SLO, facts, nights
from builders.decoupled_runs import decoupled_run
from builders.golden import Golden, difference, forms, sections, table_of
from builders.mixed_shapes import shaped_run
from builders.pages import STATUSES, terminal_of, with_configs, with_result
from builders.proof_cases import CASES
from builders.reasons import texts
from builders.runs import Toy, make_run
from builders.series import ended_series
from builders.soaked_runs import soaked_run

from tuner.record.checks import CheckFacts, read_check
from tuner.record.result_schema import Gain, Rounds, ToKnow
from tuner.record.status import CheckStatus
from tuner.record.store import MANIFEST
from tuner.report import check_document, compare, listing, markdown, run_document
from tuner.report.data import ReportData, load
from tuner.report.headline import gain_sentence, headline
from tuner.report.render import pull_request_of
from tuner.report.run_document import document
from tuner.report.sentence import next_steps, prediction_sentence, verdict_sentence

RUNS = Path(__file__).parents[2] / "runs"
STORED = sorted(path.parent.name for path in RUNS.glob(f"*/{MANIFEST}"))


def stored(name: str) -> Callable[[], str]:
    """A run of `tests/runs` in all its forms, and its pull request where it has a winner."""

    def text() -> str:
        data = load(RUNS / name)
        data = replace(data, directory=Path("results", name))
        proposal = {"pull_request": pull_request_of(data)} if data.result.winner else {}
        return forms(document(data), junit=run_document.junit_of(data), **proposal)

    return text


def run(status: str, change: Callable[[ReportData], ReportData] = lambda d: d) -> Callable[[], str]:
    """A made-up run with this status, after `change`."""

    def text() -> str:
        return of_run(change(load(make_run(Path("results"), Toy(trials=8), status))))

    return text


def of_run(data: ReportData) -> str:
    return sections(terminal=terminal_of(document(data)), junit=run_document.junit_of(data))


def soaked(role: str) -> Callable[[], str]:
    return lambda: of_run(load(soaked_run(Path("results"), 0.9, role)[0]))


def checks() -> str:
    """Every way that a check may end."""
    nothing = {"values": [], "slo": [], "level": None, "load": None, "rounds": 0, "history": []}
    missed = {"worst": {**SLO, "verdict": "fail", "value": 5e4, "margin": -0.25}, "values": [5e4]}
    endings = {status.value: facts(status) for status in CheckStatus}
    endings["slo missed"] = facts(CheckStatus.MISSED, slo=[missed])
    endings["failed"] = facts(CheckStatus.FAILED, **nothing)
    endings["nothing to compare with"] = facts(CheckStatus.INCONCLUSIVE, baseline=None, ratio=None)
    _, soak = soaked_run(Path("results"), 0.9)
    lost = replace(soak, tried=soak.tried[:1])
    endings["the load does not last"] = facts(CheckStatus.REGRESSION, credited=lost.to_json())
    endings["another load"] = facts(CheckStatus.INCONCLUSIVE, ratio=None)
    endings["not measured"] = facts(CheckStatus.INCONCLUSIVE, baseline=None, **nothing)
    return sections(
        **{name: terminal_of(check_document.document(c)) for name, c in endings.items()}
    )


def check(facts_of_check: Callable[[], CheckFacts]) -> Callable[[], str]:
    def text() -> str:
        kept = facts_of_check()
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
    return sections(markdown=markdown.render(listing.document(ended_series(Path("results")))))


def sentences() -> str:
    """The answers of a run, one for each state of knowledge."""
    data = {status: load(make_run(Path("results"), Toy(trials=8), status)) for status in STATUSES}
    better, kept, unknown = data["improved"], data["kept"], data["not known"]
    infeasible = data["infeasible"]
    cases: dict[str, ReportData] = {
        "a gain in percent": with_result(better, gain=gain(1.65, 1.53, 1.78)),
        "a gain in times": with_result(better, gain=gain(17.9, 17.4, 18.4)),
        "at least": with_result(better, gain=gain(17.9, 17.4, 18.4, at_least=True)),
        "in capacity": with_result(better, gain=gain(1.65, 1.53, 1.78, compared="capacity")),
        "the client could send no more": with_configs(
            better, best=replace(better.best, at_least=True)
        ),
        "kept, less than 7%": with_result(kept, gain=gain(0.97, 0.94, 1.064)),
        "kept, no gain is possible": with_result(kept, gain=gain(0.97, 0.94, 0.97)),
        "kept, nothing compared": with_result(kept, gain=None),
        "kept, after what looked better": replace(kept, repeats=better.repeats),
        "not known, and what it takes": open_after(unknown, 5),
        "not known, and no round is left": open_after(unknown, 8),
        "not known, a bound beside a figure": with_current(
            unknown, credited_infer_per_s=5000.0, at_least=True
        ),
        "not known, the rounds bound no gain": with_result(
            unknown, gain=gain(0.97, 0.1, 283_040.0)
        ),
        "not known, better in the rounds": with_result(unknown, gain=gain(2.0, 1.98, 2.02)),
        "not known, worse in the rounds": with_result(unknown, gain=gain(0.9, 0.86, 0.94)),
        "not known, busy": busy(unknown),
        "not known, busy, and rounds are left": busy(open_after(unknown, 5)),
        "infeasible, one slow request": with_result(
            infeasible, reasons=("the current config: one request at a time takes 50 ms: misses x",)
        ),
        "infeasible, none failed": replace(
            infeasible, trials=tuple(t for t in infeasible.trials if t not in infeasible.failed)
        ),
        "infeasible, nearest": load(
            make_run(Path("strict"), Toy(trials=8, slo=("p99_latency <= 5ms",)), "infeasible")
        ),
        "a metric is minimised": load(
            make_run(Path("least"), Toy(trials=8, objective="minimize p99_latency at 100/s"))
        ),
        "search predicted": load(make_run(Path("predicted"), Toy(trials=12, predicts=True))),
    }
    for name, known in {
        "measured once": {"credited_infer_per_s": 35.2, "from_search": True},
        "answered no more": {"at_most_infer_per_s": 35.2},
        "met at no load": {},
    }.items():
        least = with_result(better, gain=gain(1.65, 1.53, 1.78, at_least=True))
        cases[f"the current config {name}"] = with_current(
            least, **{"credited_infer_per_s": None, **known}
        )
    for reason in REASONS:
        cases[reason] = with_result(unknown, reasons=(reason,))
    return table_of({name: answer(data) for name, data in cases.items()})


#: Of which each has its own remedy.
REASONS = (
    "the load generator could not keep up with 7802/s",
    "ModuleNotFoundError: No module named 'torch'",
    "unable to find backend library for backend 'onnxruntime', try",
    "Model 'add' is not ready. (add lies in the repository, but",
    "the model fails: no (its input was made up of random values)",
    "x: the load from the rounds was not sustained in the soak: 9/s for 30 s: p99 84 ms; misses y",
    "x: the load from the rounds was not sustained in the soak: 9/s; and what lasts is no gain: z",
    "x: sustained load not verified: it missed an SLO on a disturbed machine: y",
)


def answer(data: ReportData) -> str:
    """What the first screen says, without its tables."""
    said = (headline(data), gain_sentence(data), verdict_sentence(data), prediction_sentence(data))
    steps = (f"- {what}: {command}" for what, command in next_steps(data)[:2])
    return "\n".join(filter(None, (*said, *steps)))


def gain(estimate: float, low: float, high: float, **facts: object) -> Gain:
    ratio = {"estimate": estimate, "low": low, "high": high}
    return Gain.model_validate({"ratio": ratio, "confidence": 0.95, **facts})


def open_after(data: ReportData, rounds: int) -> ReportData:
    """It is known how many rounds more would tell."""
    made = Rounds(best=rounds, current=rounds)
    known = gain(1.05, 0.97, 1.13, rounds=made)
    return with_result(data, gain=known, to_know=ToKnow(rounds=4, minutes=6.2), reasons=())


def proofs() -> str:
    """How a proof ends in each of its named cases, and why."""
    verdicts = {name: case.proved()[1] for name, case in CASES.items()}
    return table_of({n: "\n".join((v.status.value, *texts(v.why))) for n, v in verdicts.items()})


def with_current(data: ReportData, **known: Any) -> ReportData:
    assert data.current is not None
    return with_configs(data, current=replace(data.current, **known))


def busy(data: ReportData) -> ReportData:
    """Others took the machine in its first round."""
    row, *rest = data.repeats
    measured = row.point.measurement
    measured = replace(measured, host=replace(measured.host, other_cpu_percent=89.0))
    return replace(
        data, repeats=(replace(row, point=replace(row.point, measurement=measured)), *rest)
    )


PAGES: dict[str, Callable[[], str]] = {
    **{f"run-{name}": stored(name) for name in STORED},
    "run-kept": run("kept"),
    "run-infeasible": run("infeasible"),
    "run-not-known": run("not known"),
    "run-interrupted": run("interrupted"),
    "run-failed": run("failed"),
    "run-killed": run("killed"),
    "run-not-written": run("improved", lambda data: with_result(data, written=None)),
    "run-taken-back": run("improved", lambda data: replace(data, taken_back=True)),
    "run-decoupled": lambda: of_run(load(decoupled_run(Path("results")))),
    "run-shapes": lambda: of_run(load(shaped_run(Path("results")))),
    "run-claim-lowered": soaked("winner"),
    "run-kept-soaked": soaked("baseline"),
    "checks": checks,
    "check-stored": check(lambda: read_check(RUNS / "one-model")),
    "check-regression": check(lambda: facts(CheckStatus.REGRESSION, history=nights())),
    "compare-alike": compared("one-model", "one-model"),
    "compare-incomparable": compared("one-model", "ensemble"),
    "series": series,
    "sentences": sentences,
    "proofs": proofs,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_as_it_did(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden(name, PAGES[name]())


def test_every_text_is_still_made(golden: Golden) -> None:
    golden.names("", PAGES)


def test_golden_difference_lists_lines_and_the_command_that_accepts_them() -> None:
    lines = difference("x.txt", "Better: 9/s\nsame\n", "Better: 10/s\nsame\n")
    assert "\n-Better: 9/s\n+Better: 10/s\n same\n" in lines
    assert lines.endswith(
        "pytest tests/unit/golden --update-golden, and look at git diff tests/golden"
    )
    assert difference("x.txt", "a\n", "a\n") == ""
