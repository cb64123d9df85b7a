"""`tune size`, on a stored run that is credited with 383.7 inferences per second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.commands import Tune
from builders.messages_runs import SIZED, edit, sized_run

CREDITED = 383.7


def sized(tune: Tune, *arguments: str, run: Path = SIZED) -> str:
    assert tune("size", run, *arguments) == 0, tune.err
    return tune.out


def facts(tune: Tune, *arguments: str, run: Path = SIZED) -> dict[str, Any]:
    sizing = json.loads(sized(tune, *arguments, "--format", "json", run=run))
    assert isinstance(sizing, dict)
    return sizing


@pytest.mark.parametrize(
    ("rate", "headroom", "replicas", "lost", "holds"),
    [
        ("5000/s", "30%", 17, 5000 / 16, True),  # 6,500 of 383.7 are 16.94
        ("5000/s", "5%", 14, 5000 / 13, False),
        ("767.4/s", "0%", 2, 767.4, False),  # divides evenly
        ("100/s", "30%", 1, None, False),
    ],
)
def test_replicas_cover_the_rate_and_its_headroom(
    tune: Tune, rate: str, headroom: str, replicas: int, lost: float | None, holds: bool
) -> None:
    sizing = facts(tune, "--rate", rate, "--headroom", headroom)
    assert sizing["replicas"] == replicas
    assert sizing["one_lost_infer_per_s"] == (lost and pytest.approx(lost))
    assert sizing["one_lost_holds"] is holds


def test_the_threshold_is_in_the_requests_that_triton_counts(tune: Tune, tmp_path: Path) -> None:
    run = sized_run(tmp_path, soak={"headroom": 0.1}, measured={"batch_size": 4})
    sizing = facts(tune, "--rate", "1000/s", "--headroom", "20%", run=run)
    assert sizing["credited_infer_per_s"] == pytest.approx(0.9 * CREDITED)
    assert sizing["threshold_requests_per_s"] == pytest.approx(0.9 * CREDITED / 4 / 1.2)


def test_gpus_and_cost_are_those_of_all_replicas(tune: Tune, tmp_path: Path) -> None:
    gpu = {"name": "Toy GPU", "driver": "550.54", "memory_bytes": 1 << 34}
    run = sized_run(tmp_path, manifest={"gpus": [gpu, gpu]})
    sizing = facts(tune, "--rate", "1000/s", "--price", "2.5/h", run=run)
    assert (sizing["replicas"], sizing["gpus"], sizing["cost_per_hour"]) == (4, 8, 10.0)
    assert tune("size", str(run), "--rate", "1000/s", "--price", "2.5/h") == 0
    assert "8 GPUs, 10.00 an hour, 2.778 a million inferences" in tune.out


def test_models_that_get_other_requests_too_are_named(tune: Tune, tmp_path: Path) -> None:
    manifest = json.loads((SIZED / "manifest.json").read_text())
    (kept,) = manifest["models"].values()
    models = {"whole": kept | {"name": "whole", "parts": ["step"]}, "step": kept | {"name": "step"}}
    both = {"models": models, "streams": {"one": "whole", "two": "step"}}
    sizing = facts(tune, "--rate", "500/s", run=sized_run(tmp_path, manifest=both))
    assert (sizing["models"], sizing["asked_otherwise"]) == (["step", "whole"], ["step"])


def test_a_run_in_which_nothing_met_the_slos_says_so(tune: Tune, tmp_path: Path) -> None:
    run = sized_run(tmp_path)
    edit(run, "result", {"status": "infeasible", "winner": None, "best": None, "gain": None})
    assert tune("size", run, "--rate", "100/s") == 2
    assert "proved no load: no config met the SLOs" in tune.err
    assert "confirm.soak" not in tune.err


def on(parent: Path, name: str, cpu: str, credited: float, **result: Any) -> Path:
    """A stored run of another machine that is credited with so much."""
    (parent / name).mkdir()
    share = 1.0 - credited / CREDITED
    run = sized_run(parent / name, soak={"headroom": share}, manifest={"run_id": name})
    edit(run, "manifest", {"host": {"cpu": cpu, "cores": 2}})
    if result:
        edit(run, "result", result)
    return run


def test_machines_are_ordered_by_cost_and_those_that_miss_an_slo_are_named(
    tune: Tune, tmp_path: Path
) -> None:
    runs = [
        on(tmp_path, "large", "Large", 300.0),
        on(tmp_path, "small", "Small", 100.0),
        on(tmp_path, "slow", "Slow", 50.0, status="infeasible", winner=None, gain=None),
    ]
    prices = [word for price in ("9/h", "2/h", "1/h") for word in ("--price", price)]
    assert tune("size", *runs, "--rate", "1000/s", "--headroom", "0%", *prices) == 0
    header, first, second, last = tune.out.splitlines()
    assert header.split() == [
        *("run", "machine", "proved", "replicas", "an", "hour", "a", "million", "if", "one"),
        "fails",
    ]
    assert ("small" in first, "large" in second, "slow" in last) == (True, True, True)
    assert " 20.00 " in first  # ten replicas for 2 an hour
    assert " 36.00 " in second
    assert tune("size", *runs, "--rate", "1000/s", *prices, "--format", "json") == 0
    sizing = json.loads(tune.out)
    assert [m["run_id"] for m in sizing] == ["small", "large", "slow"]
    assert (sizing[2]["sizing"], bool(sizing[2]["missed"])) == (None, True)


def test_prices_are_one_for_each_run_and_runs_are_of_one_model(tune: Tune, tmp_path: Path) -> None:
    runs = [on(tmp_path, "a", "A", 300.0), on(tmp_path, "b", "B", 100.0)]
    assert tune("size", *runs, "--rate", "1000/s", "--price", "2/h") == 2
    assert "2 RUNs need 2 prices, in their order, not 1" in tune.err
    edit(runs[1], "manifest", {"name": "another"})
    assert tune("size", *runs, "--rate", "1000/s") == 2
    assert "other models" in tune.err
