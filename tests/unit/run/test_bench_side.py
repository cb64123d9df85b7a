"""A bench measures for a run only where machine, programs, configs and files are the run's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.check_place import ToyPrograms
from builders.jobs import SPEC
from builders.model_files import REPOSITORY

from tuner.fleet import BenchPlace
from tuner.meter.benches import BenchRefusedError
from tuner.modelconfig import content
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.manifest import manifest_of
from tuner.run.bench_side import refuse_another
from tuner.spec.files import files_of

MODEL = "emulated-accelerator"


def job_in(directory: Path) -> Job:
    spec = directory / "spec.yaml"
    spec.write_text(SPEC.format(repository=directory / "models"))
    return prepare(Request(spec=spec))


class OtherVersions(ToyPrograms):
    def versions(self) -> dict[str, str]:
        return {**super().versions(), "tritonserver": "2.73.0"}


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """What a bench is told after ``change`` of the models on its machine; "" where it is alike."""
    shutil.copytree(REPOSITORY / MODEL, tmp_path / "models" / MODEL)
    job, programs = job_in(tmp_path), ToyPrograms("L4")
    manifest = manifest_of(job, programs, Request(spec=tmp_path / "spec.yaml"), "a-run")
    files = content.content_of(job.served, files_of(job.spec))

    def refusal(
        programs: ToyPrograms = programs, change: Callable[[Path], object] = lambda _: None
    ) -> str:
        change(tmp_path / "models" / MODEL)
        try:
            refuse_another(BenchPlace("node-2"), job_in(tmp_path), programs, manifest, files)
        except BenchRefusedError as error:
            return str(error)
        return ""

    return refusal


def test_a_bench_like_the_runs_is_not_refused(refused: Callable[..., str]) -> None:
    assert refused() == ""


@pytest.mark.parametrize(
    ("programs", "difference"),
    [
        (ToyPrograms("A10"), ("GPUs: L4", "A10")),
        (OtherVersions("L4"), ("tritonserver: 2.51.0 in the run, 2.73.0 there",)),
    ],
)
def test_another_machine_or_program_is_refused_with_the_difference(
    programs: ToyPrograms, difference: tuple[str, ...], refused: Callable[..., str]
) -> None:
    said = refused(programs)
    assert said.startswith("the bench on node-2, any CPU, cannot measure for a-run")
    assert all(words in said for words in difference)


def test_other_files_of_a_model_are_refused_with_the_difference(
    refused: Callable[..., str],
) -> None:
    def edit_config(model: Path) -> None:
        config = model / "config.pbtxt"
        config.write_text(config.read_text().replace("max_batch_size: ", "max_batch_size: 1"))

    def edit_code(model: Path) -> None:
        code = model / "1" / "model.py"
        code.write_text(code.read_text() + "# another version\n")

    said = refused(change=edit_config)
    assert "+max_batch_size: 1" in said
    assert "model.py" in refused(change=edit_code)
