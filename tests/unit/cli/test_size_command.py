"""`tune size`, on a stored run that is credited with 383.7 inferences per second."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders.commands import Tune
from builders.runs import RUNS

RUN = RUNS / "one-model"
CREDITED = 383.7


def sized(tune: Tune, *arguments: str, run: Path = RUN) -> str:
    assert tune("size", run, *arguments) == 0, tune.err
    return tune.out


def facts(tune: Tune, *arguments: str, run: Path = RUN) -> dict[str, Any]:
    found = json.loads(sized(tune, *arguments, "--format", "json", run=run))
    assert isinstance(found, dict)
    return found


def changed(
    tmp_path: Path,
    *,
    soak: dict[str, Any] | None = None,
    held: dict[str, Any] | None = None,
    manifest: dict[str, Any] | None = None,
) -> Path:
    """The run with other facts: of its winner's soak, of the measurement in it, of the run."""
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    result = json.loads((run / "result.json").read_text())
    winner = result["winner"]["soak"]
    winner["tried"][0]["measurement"].update(held or {})
    winner.update(soak or {})
    (run / "result.json").write_text(json.dumps(result))
    facts = json.loads((run / "manifest.json").read_text()) | (manifest or {})
    (run / "manifest.json").write_text(json.dumps(facts))
    return run


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
    run = changed(tmp_path, soak={"headroom": 0.1}, held={"batch_size": 4})
    found = facts(tune, "--rate", "1000/s", "--headroom", "20%", run=run)
    assert found["credited_infer_per_s"] == pytest.approx(0.9 * CREDITED)
    assert found["threshold_requests_per_s"] == pytest.approx(0.9 * CREDITED / 4 / 1.2)


def test_gpus_and_cost_are_those_of_all_replicas(tune: Tune, tmp_path: Path) -> None:
    gpu = {"name": "Toy GPU", "driver": "550.54", "memory_bytes": 1 << 34}
    run = changed(tmp_path, manifest={"gpus": [gpu, gpu]})
    found = facts(tune, "--rate", "1000/s", "--price", "2.5/h", run=run)
    assert (found["replicas"], found["gpus"], found["cost_per_hour"]) == (4, 8, 10.0)


def test_models_that_get_other_requests_too_are_named(tune: Tune, tmp_path: Path) -> None:
    manifest = json.loads((RUN / "manifest.json").read_text())
    (kept,) = manifest["models"].values()
    models = {"whole": kept | {"name": "whole", "parts": ["step"]}, "step": kept | {"name": "step"}}
    both = {"models": models, "streams": {"one": "whole", "two": "step"}}
    found = facts(tune, "--rate", "500/s", run=changed(tmp_path, manifest=both))
    assert (found["models"], found["asked_otherwise"]) == (["step", "whole"], ["step"])


def test_a_closed_loop_is_told(tune: Tune, tmp_path: Path) -> None:
    assert facts(tune, "--rate", "500/s")["notes"] == []
    run = changed(tmp_path, held={"load": {"arrivals": "closed", "level": 8.0}})
    assert tune("size", run, "--rate", "500/s") == 0
    assert "note:  Proved with clients that wait" in tune.err


def test_a_run_that_credits_no_load_is_refused(tune: Tune, tmp_path: Path) -> None:
    run = changed(tmp_path, soak={"tried": [], "reason": "confirm.soak is 0"})
    assert tune("size", run, "--rate", "500/s") == 2
    assert "confirm.soak is 0" in tune.err


@pytest.mark.parametrize(
    "wrong", [("--rate", "fast"), ("--rate", "0/s"), ("--headroom", "130%"), ("--price", "-1/h")]
)
def test_a_wrong_number_is_a_usage_error(tune: Tune, wrong: tuple[str, str]) -> None:
    assert tune("size", RUN, "--rate", "5000/s", *wrong) == 2
    assert wrong[0] in tune.err
