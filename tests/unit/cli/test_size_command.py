"""`tune size`, on a stored run that is credited with 383.7 inferences per second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.commands import Tune
from builders.told_runs import SIZED, edit, sized_run

CREDITED = 383.7


def sized(tune: Tune, *arguments: str, run: Path = SIZED) -> str:
    assert tune("size", run, *arguments) == 0, tune.err
    return tune.out


def facts(tune: Tune, *arguments: str, run: Path = SIZED) -> dict[str, Any]:
    found = json.loads(sized(tune, *arguments, "--format", "json", run=run))
    assert isinstance(found, dict)
    return found


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
    found = facts(tune, "--rate", rate, "--headroom", headroom)
    assert found["replicas"] == replicas
    assert found["one_lost_infer_per_s"] == (lost and pytest.approx(lost))
    assert found["one_lost_holds"] is holds


def test_the_threshold_is_in_the_requests_that_triton_counts(tune: Tune, tmp_path: Path) -> None:
    run = sized_run(tmp_path, soak={"headroom": 0.1}, held={"batch_size": 4})
    found = facts(tune, "--rate", "1000/s", "--headroom", "20%", run=run)
    assert found["credited_infer_per_s"] == pytest.approx(0.9 * CREDITED)
    assert found["threshold_requests_per_s"] == pytest.approx(0.9 * CREDITED / 4 / 1.2)


def test_gpus_and_cost_are_those_of_all_replicas(tune: Tune, tmp_path: Path) -> None:
    gpu = {"name": "Toy GPU", "driver": "550.54", "memory_bytes": 1 << 34}
    run = sized_run(tmp_path, manifest={"gpus": [gpu, gpu]})
    found = facts(tune, "--rate", "1000/s", "--price", "2.5/h", run=run)
    assert (found["replicas"], found["gpus"], found["cost_per_hour"]) == (4, 8, 10.0)


def test_models_that_get_other_requests_too_are_named(tune: Tune, tmp_path: Path) -> None:
    manifest = json.loads((SIZED / "manifest.json").read_text())
    (kept,) = manifest["models"].values()
    models = {"whole": kept | {"name": "whole", "parts": ["step"]}, "step": kept | {"name": "step"}}
    both = {"models": models, "streams": {"one": "whole", "two": "step"}}
    found = facts(tune, "--rate", "500/s", run=sized_run(tmp_path, manifest=both))
    assert (found["models"], found["asked_otherwise"]) == (["step", "whole"], ["step"])


def test_a_run_in_which_nothing_met_the_slos_says_so(tune: Tune, tmp_path: Path) -> None:
    run = sized_run(tmp_path)
    edit(run, "result", {"status": "infeasible", "winner": None, "best": None, "gain": None})
    assert tune("size", run, "--rate", "100/s") == 2
    assert "credits no config with a load: none met the SLOs" in tune.err
    assert "confirm.soak" not in tune.err
