"""What a run keeps of its command line, and how going on with it takes that up."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from builders.jobs import a_job, opened

from tuner.errors import SpecError
from tuner.programs.run.open_run import restore_choices, spec_of
from tuner.run.manifest import Choices
from tuner.run.store import RunStore
from tuner.steps.job import Job, Request
from tuner.steps.manifest import choices_of


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ("sqlite:///a study.db", "sqlite:///{here}/a study.db"),
        ("sqlite:////abs/study.db", "sqlite:////abs/study.db"),
        ("sqlite://", "sqlite://"),
        ("sqlite:///study.db?mode=ro", "sqlite:///study.db?mode=ro"),
        ("postgresql://tuner:pw@db/optuna", "postgresql://tuner:***@db/optuna"),
        ("postgresql://db/optuna", "postgresql://db/optuna"),
        ("no-url", "no-url"),
        ("postgresql://db:port/optuna", "postgresql:..."),
    ],
)
def test_a_storage_is_kept_as_found_from_anywhere_and_without_its_password(
    given: str | None, kept: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request = Request(Path("s"), trials=3, time_budget_s=9.0, write=False, storage=given)
    expected = None if kept is None else kept.format(here=tmp_path)
    assert choices_of(request) == Choices(False, 3, 9.0, expected, str(tmp_path))


@pytest.fixture
def run(job: Job, tmp_path: Path) -> RunStore:
    """Begun with seed 7, at most 5 trials in 60 s, and a storage of its own."""
    storage = f"sqlite:///{tmp_path / 'own.db'}"
    search = job.spec.search.model_copy(update={"seed": 7})
    job = replace(job, spec=job.spec.model_copy(update={"search": search}))
    request = Request(
        job.loaded.path,
        output=tmp_path / "results",
        trials=5,
        time_budget_s=60.0,
        storage=storage,
    )
    with opened(job, request) as new:
        store: RunStore = new.store
    return store


def again(run: RunStore, **given: object) -> Request:
    return restore_choices(replace(Request(Path("spec.yaml"), resume=run.directory), **given))  # type: ignore[arg-type]


def test_a_run_is_gone_on_with_as_it_was_begun(run: RunStore, tmp_path: Path) -> None:
    found = again(run)
    assert (found.trials, found.time_budget_s, found.seed, found.write) == (5, 60.0, 7, True)
    assert found.storage == f"sqlite:///{tmp_path / 'own.db'}"
    assert (found.output, found.resume) == (run.directory.parent, run.directory)


def test_words_given_again_override(run: RunStore) -> None:
    found = again(run, trials=9, time_budget_s=1.0, storage="sqlite:///x.db", write=False, seed=7)
    assert (found.trials, found.time_budget_s, found.storage) == (9, 1.0, "sqlite:///x.db")
    assert not found.write
    with pytest.raises(SpecError, match="seed 7, not 0"):
        again(run, seed=0)


def test_a_run_that_was_not_to_write_never_does(run: RunStore) -> None:
    manifest = run.manifest()
    run.write_manifest(replace(manifest, choices=replace(manifest.choices, write=False)).to_json())
    assert not again(run).write


def test_a_password_is_asked_for_unless_the_storage_is_given(run: RunStore) -> None:
    manifest = run.manifest()
    storage = "postgresql://tuner:***@db/optuna"
    run.write_manifest(
        replace(manifest, choices=replace(manifest.choices, storage=storage)).to_json()
    )
    with pytest.raises(SpecError, match="needs its password"):
        again(run)
    whole = "postgresql://tuner:pw@db/optuna"
    assert again(run, storage=whole).storage == whole


@pytest.mark.parametrize("named", [".", "../a-run"])
def test_a_run_is_found_by_any_name_of_its_directory(
    named: str, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.directory)
    found = again(run, resume=Path(named))
    assert found.resume is not None
    assert found.resume.name == "a-run"
    assert found.output.resolve() == run.directory.parent
    assert found.output.is_absolute()


def test_nothing_is_looked_up_for_a_new_run() -> None:
    request = Request(Path("spec.yaml"), seed=3)
    assert restore_choices(request) is request


def test_the_spec_of_a_run_is_where_it_was_begun_from(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run.manifest()
    run.write_manifest(
        replace(
            manifest,
            spec_path="spec.yaml",
            choices=replace(manifest.choices, directory=str(tmp_path)),
        ).to_json()
    )
    monkeypatch.chdir("/")
    assert spec_of(run.directory) == tmp_path / "spec.yaml"
    (tmp_path / "spec.yaml").rename(tmp_path / "moved.yaml")
    with pytest.raises(SpecError, match="no longer at") as refused:
        spec_of(run.directory)
    assert f"--resume {run.directory}" in refused.value.hint


@pytest.mark.parametrize("foreign", [True, False])
def test_a_strangers_spec_is_resumed_only_where_it_is_named(
    foreign: bool, run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run.manifest()
    place = tmp_path if foreign else run.directory
    choices = replace(manifest.choices, directory=str(place))
    run.write_manifest(replace(manifest, spec_path="spec.yaml", choices=choices).to_json())
    (place / "spec.yaml").touch()
    stat = Path.stat

    def of_another(path: Path, **given: bool) -> os.stat_result:
        status = list(stat(path, **given))
        status[4] = 4321 if path.name == "manifest.json" else status[4]
        return os.stat_result(status)

    if foreign:
        monkeypatch.setattr(Path, "stat", of_another)
    with pytest.raises(SpecError, match="resuming starts what a spec names") as refused:
        spec_of(run.directory)
    assert ("another user" if foreign else "run's own directory") in refused.value.message
    assert f"tune run {place / 'spec.yaml'} --resume {run.directory}" in refused.value.hint
