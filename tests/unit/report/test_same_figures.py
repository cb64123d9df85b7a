"""The terminal, the sentence, the tables and result.json tell the same figures of a run."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from unit.report.synthetic import Toy, make_run

from tuner.cli.verdict import lines_of
from tuner.report.data import ReportData, load, read_result
from tuner.report.quantities import rate_text
from tuner.report.selection import measured_again
from tuner.report.sentence import verdict_sentence
from tuner.report.tables import comparison
from tuner.run.confirmation import Role
from tuner.run.store import RunStore


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, Toy(trials=20))


def rates_of_the_current_config(data: ReportData) -> list[float]:
    own = [r.point for r in data.repeats if r.role is Role.CURRENT]
    return [p.measurement.throughput_infer_per_s for p in own]


def on_the_terminal(run: Path, name: str) -> str:
    result = read_result(RunStore.open(run))
    assert result is not None
    lines = [click.unstyle(line) for line in lines_of(run, result)]
    return next(line for line in lines if line.startswith(f"  {name} "))


def in_numbers(data: ReportData) -> dict[str, tuple[str, ...]]:
    table = comparison(data)
    assert table is not None
    return {row[0]: row[1:] for row in table.rows}


def test_the_current_config_is_told_by_its_worst_round_everywhere(run: Path) -> None:
    data = load(run)
    rates = rates_of_the_current_config(data)
    assert len(set(rates)) == 3
    worst = min(rates)
    told = on_the_terminal(run, "goodput")
    assert told.endswith(f"/s in every round; the current config: {worst:.4g}/s")
    again = measured_again(data)
    assert again is not None
    assert again.rows[0][again.headers.index("in every round")] == rate_text(worst)
    numbers = in_numbers(data)
    assert numbers["goodput, worst of the rounds"][0] == f"{rate_text(worst)} in each of 3 rounds"
    assert numbers["throughput"][0] == rate_text(worst)


def test_the_means_behind_the_gain_are_told_everywhere(run: Path) -> None:
    data = load(run)
    assert data.improvement is not None
    assert data.improvement.means is not None
    winner, current = data.improvement.means.winner, data.improvement.means.current
    assert on_the_terminal(run, "capacity") == (
        f"  capacity  {winner:.4g}/s, mean of the rounds; the current config: {current:.4g}/s"
    )
    means = (rate_text(current), rate_text(winner))
    assert in_numbers(data)["capacity, mean of the rounds"] == means
    assert f"{means[1]} over {means[0]} on average" in verdict_sentence(data)


def test_a_current_config_that_was_measured_in_one_round_only_is_told_so(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    result["improvement"]["rounds"] = {"winner": 3, "current": 1}
    (run / "result.json").write_text(json.dumps(result))
    assert on_the_terminal(run, "capacity").endswith("/s in 1 round")
    current, winner = in_numbers(load(run))["capacity, mean of the rounds"]
    assert current.endswith("/s in 1 round")
    assert "round" not in winner


def test_rounds_that_the_current_config_did_not_stand_are_counted(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "confirmation.jsonl").read_text().splitlines()]
    first = next(row for row in rows if row["role"] == "current")
    for slo in first["point"]["slo"]:
        slo["verdict"] = "fail"
    (run / "confirmation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = json.loads((run / "result.json").read_text())
    result["baseline"]["rounds_met"] = 2
    (run / "result.json").write_text(json.dumps(result))
    data = load(run)
    stood = rate_text(min(rates_of_the_current_config(data)[1:]))
    assert in_numbers(data)["goodput, worst of the rounds"][0] == f"{stood} in 2 of 3 rounds"
    assert on_the_terminal(run, "goodput").endswith("/s in 2 of 3 rounds")


def test_what_was_missed_while_the_machine_was_disturbed_is_no_round(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "confirmation.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    loads = [m["load"] for m in result["winner"]["measurements"]]
    proof = next(r for r in rows if r["point"]["measurement"]["load"] in loads)
    disturbed = json.loads(json.dumps(proof))
    disturbed["point"]["measurement"]["disturbances"] = ["The CPU was taken."]
    for slo in disturbed["point"]["slo"]:
        slo["verdict"] = "fail"
    before = load(run).best
    (run / "confirmation.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [disturbed, *rows])
    )
    after = load(run).best
    assert before is not None
    assert after is not None
    assert after.rounds_text == before.rounds_text == " in each of 3 rounds"
