from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.jobs import a_job, opened
from builders.told_workers import MISTAKES

from tuner.bench.events import Events
from tuner.bench.job import Request
from tuner.run.trust import state_directory
from tuner.workers.worker import Joined, JoinRequest


@pytest.mark.parametrize(("words", "code"), MISTAKES.items())
def test_what_is_wrong_is_said_before_anything_is_started(
    words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tune("worker", *words.split()) == code
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[JoinRequest]:
    """What workers were asked for; none of them begins."""
    asked: list[JoinRequest] = []

    def join(request: JoinRequest, _: Events) -> Joined:
        asked.append(request)
        return Joined("r", ())

    monkeypatch.setattr("tuner.workers.worker.join", join)
    return asked


@pytest.mark.parametrize("by_id", [True, False])
def test_a_run_of_this_machine_is_joined_with_the_spec_and_the_study_it_has(
    by_id: bool, tmp_path: Path, joined: list[JoinRequest], tune: Tune
) -> None:
    request = Request(tmp_path / "spec.yaml", tmp_path / "out", state=state_directory(os.environ))
    with opened(a_job(tmp_path), request) as run:
        directory = run.store.directory
        named = directory.name if by_id else str(directory)
        assert tune("worker", named, "--output", str(tmp_path / "out"), "--set", "budget={}") == 0
    (joining,) = joined
    assert (joining.spec, joining.run) == (tmp_path / "spec.yaml", "a-run")
    assert joining.storage == f"sqlite:///{directory}/study.db"
    assert joining.overrides == ("budget={}",)


def test_worker_of_run_begun_elsewhere_is_refused_with_the_command_that_names_its_spec(
    tmp_path: Path, joined: list[JoinRequest], tune: Tune
) -> None:
    job = a_job(tmp_path)
    spec, out = job.loaded.path, tmp_path / "out"
    with opened(job, Request(spec, output=out, overrides=("slo=[]",))) as run:
        made = run.store.directory
    assert tune("worker", str(made)) == 2
    storage = f"--storage=sqlite:///{made}/study.db"
    assert f"tune worker {spec} {storage} '--set=slo=[]'" in " ".join(tune.err.split())
    assert joined == []
