from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import Toy, make_run

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.cli.worker_command import _found, summary
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "RUN-OR-STUDY"),
        (["m"], 2, "--storage URL"),
        (["m", "--gpus", "first", "--storage", "sqlite:///x.db"], 2, "numbers such as 0,1"),
        (["m", "--repository", "nowhere", "--storage", "sqlite:///x.db"], 2, "nowhere"),
        (["m", "--storage", "sqlite:///x.db"], 4, "there is no storage x.db"),
        (["m", "--storage", "nonsense"], 4, "cannot open the study's storage"),
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


def test_a_run_brings_its_own_study_and_another_name_none(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=3), "kept")
    (run / "study.db").touch()
    url = f"sqlite:///{run}/study.db"
    assert _found(run, Path("results")) == (run.name, url)
    assert _found(Path(run.name), tmp_path) == (run.name, url)
    assert _found(Path("a-model"), tmp_path) == ("a-model", None)


def test_the_last_line_says_what_became_of_its_trials() -> None:
    states = [TrialState.PRUNED, TrialState.MEASURED, TrialState.PRUNED]
    trials = [Trial(n, Candidate(), s) for n, s in enumerate(states)]
    assert summary("r", trials) == "3 trials for r: 1 measured in full, 2 stopped early"
    assert summary("r", []) == "0 trials for r"
