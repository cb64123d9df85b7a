"""Ensembles of 6 and 12 steps: the space, what `tune plan` previews, and gp's first proposals."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from builders.long_ensembles import make_ensemble

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.programs.plan import previews
from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategy import Proposal
from tuner.steps.job import Request, prepare

#: Seconds on a busy machine; a quiet one takes less than a fifth.
PREVIEW_S, PROPOSAL_S = 10.0, 30.0


@pytest.mark.measuring
@pytest.mark.parametrize("steps", [6, 12])
def test_a_long_ensemble_is_drafted_previewed_and_searched_in_seconds(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = time.monotonic()
    whole = make_ensemble(Path("models"), steps)
    assert guarded(cli, ["init", whole, "--repository", "models"]) == 0
    job = prepare(Request(Path(f"{whole}.yaml")))
    assert len(job.searched) == steps
    assert len(previews(job, 3)) == 3
    assert time.monotonic() - begin < PREVIEW_S

    strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
    luck, history = random.Random(0), list[Trial]()
    for number in range(6):
        begin = time.monotonic()
        proposal = strategy.propose(number, history, {t.candidate.key for t in history})
        assert time.monotonic() - begin < PROPOSAL_S
        assert isinstance(proposal, Proposal)
        score = Score(luck.uniform(50, 100), feasible=True, violation=0.0, best_point=None)
        history.append(Trial(number, proposal.candidate, TrialState.MEASURED, score=score))
