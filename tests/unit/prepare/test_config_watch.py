"""An edit of a config while a run measures is reported once, and at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.prepare.config_watch import ConfigWatch
from tuner.prepare.job import Job, Request, prepare

CONFIG = 'name: "m" backend: "python" max_batch_size: 8 instance_group [{ kind: KIND_CPU }]\n'
END = "it writes nothing"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model = tmp_path / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").touch()
    (model / "config.pbtxt").write_text(CONFIG)
    return model


def job_of(model: Path, more: str = "") -> Job:
    spec = model.parents[1] / "spec.yaml"
    space = "space: {instance_group.count: {int: [1, 4]}}"
    slo = "slo: [p99_latency <= 40ms]"
    spec.write_text(f"model: m\nrepository: models\n{slo}\n{space}\n{more}\n")
    return prepare(Request(spec=spec))


def watch(job: Job) -> tuple[ConfigWatch, list[str]]:
    notes: list[str] = []
    return ConfigWatch(job, "run", END, notes.append), notes


def test_an_edit_is_reported_once_with_its_end_and_so_is_its_undoing(model: Path) -> None:
    configs, notes = watch(job_of(model))
    config = model / "config.pbtxt"
    configs.look()
    assert notes == []
    config.write_text(CONFIG + "# edited\n")
    configs.look()
    configs.look()
    goes_on = f"{config} was edited meanwhile: the run goes on with what it read; {END}"
    assert notes == [goes_on]
    config.write_text(CONFIG)
    configs.look()
    assert notes == [goes_on, f"{config} is again as the run read it"]


def test_an_edit_before_the_first_look_is_reported(model: Path) -> None:
    configs, notes = watch(job_of(model))
    (model / "config.pbtxt").write_text(CONFIG.replace("8", "4"))
    configs.look()
    assert len(notes) == 1


def test_a_removed_config_and_one_that_is_a_directory_are_reported(model: Path) -> None:
    configs, notes = watch(job_of(model))
    (model / "config.pbtxt").unlink()
    configs.look()
    (model / "config.pbtxt").mkdir()
    configs.look()
    assert [note.partition(" meanwhile")[0].rpartition(" ")[2] for note in notes] == [
        "removed",
        "created",
    ]


def test_a_file_with_a_new_time_and_the_same_content_is_not_reported(model: Path) -> None:
    configs, notes = watch(job_of(model))
    configs.look()
    os.utime(model / "config.pbtxt", (1, 1))
    configs.look()
    assert notes == []


def test_a_config_that_the_run_would_create_is_watched(model: Path) -> None:
    configs, notes = watch(job_of(model, "write_to: configs/a100.pbtxt"))
    configs.look()
    (model / "configs").mkdir()
    (model / "configs" / "a100.pbtxt").write_text(CONFIG)
    configs.look()
    (note,) = notes
    assert "a100.pbtxt was created meanwhile" in note
    assert note.endswith(END)


def test_an_edit_of_a_model_that_is_only_loaded_does_not_change_the_end(model: Path) -> None:
    other = model.parent / "other"
    (other / "1").mkdir(parents=True)
    (other / "1" / "model.py").touch()
    (other / "config.pbtxt").write_text(CONFIG.replace('"m"', '"other"'))
    configs, notes = watch(job_of(model, "models: {other: {}}"))
    (other / "config.pbtxt").write_text(CONFIG.replace('"m"', '"other"') + "# edited\n")
    configs.look()
    (note,) = notes
    assert note.endswith("goes on with what it read")
