from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.runs import CURRENT, Toy, make_run

from tuner.report import markdown
from tuner.report.blocks import Table
from tuner.report.compare import RunComparison, compared, document


def changed(run: Path, name: str, **changes: object) -> Path:
    data = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps({**data, **changes}))
    return run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return make_run(tmp_path / "a", Toy(trials=14)), make_run(
        tmp_path / "b", Toy(trials=14, seed=1)
    )


def table_of(comparison: RunComparison) -> Table:
    (table,) = (block for block in document(comparison).blocks if isinstance(block, Table))
    return table


def test_goodput_comes_with_its_interval_and_the_ratio_of_both(runs: tuple[Path, Path]) -> None:
    comparison = compared(*runs)
    for side in (comparison.a, comparison.b):
        assert side.value is not None
        assert side.value.low < side.value.estimate < side.value.high
    (row,) = (r for r in table_of(comparison).rows if r[0] == "goodput, mean of the rounds")
    assert all(cell.endswith(", 3 rounds)") for cell in row[1:])
    for side in (comparison.a, comparison.b):
        assert side.gain is not None
    assert comparison.incomparable == ()
    assert comparison.ratio is not None
    expected = comparison.b.value.estimate / comparison.a.value.estimate  # type: ignore[union-attr]
    assert comparison.ratio.estimate == pytest.approx(expected)


def test_single_rounds_report_why_there_is_no_ratio(runs: tuple[Path, Path]) -> None:
    for run in runs:
        result = json.loads((run / "result.json").read_text())
        gain = {**result["gain"], "at_least": True}
        winner = {**result["winner"], "rounds": result["winner"]["rounds"][:1]}
        changed(run, "result.json", gain=gain, winner=winner)
    rows = {row[0]: row[2] for row in table_of(compared(*runs)).rows}
    assert "three rounds" in rows["B over A"]
    gained = rows["gain over its own current config"]
    assert (gained.startswith("at least "), "(" in gained) == (True, False)


def test_a_run_is_as_good_as_itself(runs: tuple[Path, Path]) -> None:
    comparison = compared(runs[0], runs[0])
    assert comparison.ratio is not None
    assert comparison.ratio.low < 1.0 < comparison.ratio.high
    assert comparison.a == comparison.b


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpus": [{"name": "H100", "driver": "570"}]}, "the machines differ: Toy CPU @ 2.0 GHz"),
        ({"versions": {"tritonserver": "2.60.0"}}, "tritonserver differs: 2.51.0; 2.60.0"),
        ({"fingerprint": "f" * 16}, "in their fingerprint"),
        ({"spec": {"model": "toy", "slo": ["p99_latency <= 9ms"]}}, "the specs differ in slo"),
    ],
)
def test_incomparable_runs_have_a_reason_and_no_ratio(
    runs: tuple[Path, Path], changes: dict[str, object], reason: str
) -> None:
    comparison = compared(runs[0], changed(runs[1], "manifest.json", **changes))
    assert any(reason in line for line in comparison.incomparable)
    assert comparison.ratio is None
    assert "Not comparable" in markdown.render(document(comparison))


def test_runs_that_replayed_recordings_of_one_name_and_other_content_are_not_compared(
    runs: tuple[Path, Path],
) -> None:
    for run, sha256 in zip(runs, ("1" * 64, "2" * 64), strict=True):
        changed(run, "manifest.json", load_files={"workload.arrivals.file": sha256})
    (reason,) = compared(*runs).incomparable
    assert reason.startswith("workload.arrivals.file: ")


def test_where_a_program_lies_does_not_matter(runs: tuple[Path, Path]) -> None:
    for run, path in zip(runs, ("/a/perf_analyzer", "/b/perf_analyzer"), strict=True):
        spec = json.loads((run / "manifest.json").read_text())["spec"]
        changed(run, "manifest.json", spec={**spec, "workload": {"perf_analyzer": path}})
    assert compared(*runs).incomparable == ()


@pytest.mark.parametrize("status", ["kept", "infeasible", "not known", "failed", "killed"])
def test_runs_without_a_winner_appear_with_their_current_config(
    tmp_path: Path, runs: tuple[Path, Path], status: str
) -> None:
    other = make_run(tmp_path / "c", Toy(trials=14), status)
    comparison = compared(runs[0], other)
    assert comparison.b.gain is None
    table = table_of(comparison)
    assert {len(row) for row in table.rows} == {3}
    json.dumps(comparison.to_json(), allow_nan=False)
    if status != "killed":
        assert comparison.b.config is not None
        assert comparison.b.config.candidate == CURRENT


def test_a_minimised_metric_is_compared_the_other_way_round(tmp_path: Path) -> None:
    toy = Toy(trials=14, objective="minimize p99_latency at 300/s")
    comparison = compared(make_run(tmp_path / "a", toy), make_run(tmp_path / "b", toy))
    assert comparison.a.metric == "p99_latency"
    assert comparison.ratio is not None
    assert any(" ms (" in cell for row in table_of(comparison).rows for cell in row)
