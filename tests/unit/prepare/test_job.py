"""What is wrong with the models of a spec is told before anything is started, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.messages_jobs import LEVELS, ONE_SPEC, PRIORITIES, TWO
from builders.serving import write_models

from tuner.load.generators import TUNE_CLIENT
from tuner.prepare.job import Request, prepare
from tuner.prepare.tools import choose_generator

SIZES = "max_batch_size: {choice: [2, 3, 4]}"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(ONE_SPEC)
    return path


def test_an_ensemble_and_its_steps_make_a_job(spec: Path) -> None:
    write_models(spec.parent / "models", e=ENSEMBLE, one=MODEL, two=TWO)
    job = prepare(Request(spec=spec))
    assert tuple(job.served.models) == ("one", "two", "e")
    assert job.searched == ("e",)


def test_mistake_that_a_candidate_fixes_is_no_mistake(spec: Path) -> None:
    spec.write_text(spec.read_text().replace("response_cache.size: {choice: [off, 1MiB]}", SIZES))
    small = MODEL.replace("4\n", "3\n", 1)
    write_models(spec.parent / "models", e=ENSEMBLE, one=small, two=TWO)
    space = prepare(Request(spec=spec)).space
    assert len(list(space.enumerate())) == 2, "the ensemble takes batches of 2 and 3 at most"


@pytest.mark.parametrize("name", ["one", "e"])
def test_priorities_of_a_model_or_a_space_are_measured_with_the_client_of_tune(
    name: str, spec: Path
) -> None:
    models = spec.parent / "models"
    write_models(models, e=ENSEMBLE, one=MODEL + LEVELS.format(n=2), two=TWO)
    spec.write_text(PRIORITIES % ("", name, name))
    job = prepare(Request(spec=spec))
    assert choose_generator(job).kind is TUNE_CLIENT
    (models / "one" / "config.pbtxt").write_text(MODEL + "dynamic_batching { }")
    searched = "space: {dynamic_batching.default_priority_level: {choice: [2]}, "
    searched += "dynamic_batching.priority_levels: {choice: [2]}}"
    spec.write_text(PRIORITIES % (searched, name, name))
    assert prepare(Request(spec=spec)).spec.streams["patient"].priority == 2
