from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.jobs import a_job, opened
from builders.told_workers import MISTAKES

from tuner.bench.events import Events
from tuner.bench.job import Request
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
    with opened(a_job(tmp_path), Request(tmp_path / "spec.yaml", output=tmp_path / "out")) as run:
        directory = run.store.directory
        named = directory.name if by_id else str(directory)
        assert tune("worker", named, "--output", str(tmp_path / "out"), "--set", "budget={}") == 0
    (request,) = joined
    assert (request.spec, request.run) == (tmp_path / "spec.yaml", "a-run")
    assert request.storage == f"sqlite:///{directory}/study.db"
    assert request.overrides == ("budget={}",)


def test_a_run_that_was_not_made_here_says_how_to_name_its_spec(
    tmp_path: Path, joined: list[JoinRequest], tune: Tune
) -> None:
    job = a_job(tmp_path)
    spec, out = job.loaded.path, tmp_path / "out"
    with opened(job, Request(spec, output=out, overrides=("slo=[]",))) as run:
        made = run.store.directory
    made = made.rename(tmp_path / "unpacked")
    (made / ".lock").touch()
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["created_at"] = "2026-01-01T00:00:00+00:00"
    (made / "manifest.json").write_text(json.dumps(manifest))
    assert tune("worker", str(made)) == 2
    storage = f"--storage=sqlite:///{made}/study.db"
    assert f"tune worker {spec} {storage} '--set=slo=[]'" in " ".join(tune.err.split())
    assert joined == []
