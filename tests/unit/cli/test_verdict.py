"""The last lines of a run on a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from unit.report.synthetic import CONFIG, Toy, make_run

from tuner.cli.verdict import lines_of
from tuner.run.result_schema import Result


def lines(parent: Path, status: str = "improved", objective: str = "maximize goodput") -> list[str]:
    return told(make_run(parent, Toy(objective=objective), status), {})


def told(run: Path, changes: dict[str, Any]) -> list[str]:
    result = {**json.loads((run / "result.json").read_text()), **changes}
    return [click.unstyle(line) for line in lines_of(run, Result.from_json(result))]


def test_a_gain_in_capacity_is_told_apart_from_the_goodput(tmp_path: Path) -> None:
    found = lines(tmp_path)
    assert found[1] == "toy: improved"
    (goodput,) = (line for line in found if line.startswith("  goodput "))
    assert "/s in every round; the current config: " in goodput
    (gain,) = (line for line in found if line.startswith("  gain "))
    assert " times the current config's capacity (95% interval " in gain
    assert any(line.endswith("tune rollback toy --repository /models") for line in found)


def test_a_gain_over_a_load_that_the_current_config_did_not_stand_is_a_least(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path)
    result = json.loads((run / "result.json").read_text())
    improvement = {**result["improvement"], "at_least": True}
    baseline = {**result["baseline"], "goodput_infer_per_s": None}
    found = told(run, {"improvement": improvement, "baseline": baseline})
    (goodput, capacity, gain) = found[3:6]
    assert goodput.endswith("; the current config: less than 118/s")
    assert capacity.endswith("; the current config: less than 118/s")
    low = improvement["goodput_ratio"]["low"]
    assert gain == (
        f"  gain      at least {low:.3g} times the current config's capacity "
        "(the current config was only measured at a load it does not sustain)"
    )


def test_a_minimised_metric_is_told_instead_of_the_goodput(tmp_path: Path) -> None:
    found = lines(tmp_path, objective="minimize p99_latency at 300/s")
    assert not any("goodput" in line for line in found)
    (now,) = (line for line in found if line.startswith("  p99_latency "))
    assert " ms, worst of the rounds; the current config: " in now
    assert any(" times better (95% interval " in line for line in found)


def test_a_result_of_before_objectives_were_in_it_is_of_goodput(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    improvement = json.loads((run / "result.json").read_text())["improvement"]
    del improvement["compared"]
    found = told(run, {"objective": None, "improvement": improvement})
    assert any(" times the current config's goodput (95%" in line for line in found)


def test_what_was_taken_back_can_be_written_again(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    config = tmp_path / "config.pbtxt"
    config.write_text(CONFIG)
    written = json.loads((run / "result.json").read_text())["written"]
    found = told(run, {"written": {**written, "path": str(config)}})
    assert f"  written   {config}, and taken back since" in found
    assert f"  write it  tune apply {run}" in found
    assert not any("tune rollback" in line for line in found)


def test_without_a_ratio_there_is_no_gain(tmp_path: Path) -> None:
    found = told(make_run(tmp_path), {"improvement": None})
    assert not any(line.startswith("  gain") for line in found)


@pytest.mark.parametrize("status", ["kept", "infeasible", "unconfirmed", "interrupted", "failed"])
def test_without_a_winner_the_reasons_are_told(tmp_path: Path, status: str) -> None:
    found = lines(tmp_path, status)
    assert "  a reason, <in> one sentence" in found
    assert not any("goodput" in line for line in found)


def test_a_result_that_lacks_its_worst_round_is_told_by_its_goodput(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    winner = json.loads((run / "result.json").read_text())["winner"]
    del winner["worst_round_infer_per_s"]
    (goodput,) = (s for s in told(run, {"winner": winner}) if s.startswith("  goodput "))
    assert f"{winner['goodput_infer_per_s']:.1f}/s"[:3] in goodput
