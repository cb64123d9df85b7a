from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.jobs import a_job, opened

from tuner.bench.events import Events
from tuner.bench.job import Request
from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.cli.worker_command import summary
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.workers.worker import Joined, JoinRequest

SPEC = str(Path(__file__).parents[2] / "cases" / "good" / "minimal.yaml")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "SPEC|RUN"),
        ([SPEC], 2, "--storage URL"),
        ([SPEC, "--gpus", "first", "--storage", "sqlite:///x.db"], 2, "numbers such as 0,1"),
        (["m", "--storage", "sqlite:///x.db"], 2, "there is no spec m"),
        ([SPEC, "--storage", "sqlite:///x.db"], 4, "there is no storage x.db"),
        ([SPEC, "--storage", "nonsense"], 4, "cannot open the study's storage"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert guarded(cli, ["worker", *arguments]) == code
    assert said in capsys.readouterr().err
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


def test_the_last_line_says_what_became_of_its_trials() -> None:
    states = [TrialState.PRUNED, TrialState.MEASURED, TrialState.PRUNED]
    trials = [Trial(n, Candidate(), s) for n, s in enumerate(states)]
    assert summary("r", trials) == "3 trials for r: 1 measured in full, 2 stopped early"
    assert summary("r", []) == "0 trials for r"
