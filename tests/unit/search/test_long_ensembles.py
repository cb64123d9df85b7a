"""Ensembles of 6 and 12 steps: the space, what `tune plan` previews, and gp's first proposals."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from builders.ensemble_cases import step
from builders.model_files import write_model

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.prepare.job import Request, prepare
from tuner.run.plan import previews
from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategy import Proposal

_MODEL = """\
name: "{name}"
{kind}
max_batch_size: {batch}
input [{{name: "x" data_type: TYPE_FP32 dims: [4]}}]
output [{{name: "y" data_type: TYPE_FP32 dims: [4]}}]
"""


_CODE = """\
class TritonPythonModel:
    def execute(self, requests):
        return []
"""


def make_ensemble(repository: Path, steps: int) -> str:
    """The ensemble's name; its steps are step-00, step-01 and so on."""
    names = [f"step-{number:02d}" for number in range(steps)]
    for name in names:
        text = _MODEL.format(name=name, kind='backend: "python"', batch=16)
        write_model(repository / name, text, _CODE)
    tensors = ["x", *(f"t{number}" for number in range(1, steps)), "y"]
    scheduling = "".join(map(step, names, tensors, tensors[1:]))
    text = _MODEL.format(name="whole", kind='platform: "ensemble"', batch=4)
    write_model(repository / "whole", text + f"ensemble_scheduling {{ {scheduling} }}\n")
    return "whole"


#: Seconds on a busy machine, and of CPU time; a quiet one takes less than half.
PREVIEW_S, PROPOSAL_CPU_S = 10.0, 2.0


@pytest.mark.measuring
@pytest.mark.parametrize("steps", [6, 12])
def test_a_long_ensemble_is_drafted_previewed_and_searched_in_seconds(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = time.monotonic()
    ensemble = make_ensemble(Path("models"), steps)
    assert guarded(cli, ["init", ensemble, "--repository", "models"]) == 0
    job = prepare(Request(Path(f"{ensemble}.yaml")))
    assert len(job.searched) == steps
    assert len(previews(job, 3)) == 3
    assert time.monotonic() - begin < PREVIEW_S

    strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
    luck, history = random.Random(0), list[Trial]()
    for number in range(6):
        begin = time.process_time()
        proposal = strategy.propose(number, history, {t.candidate.key for t in history})
        assert time.process_time() - begin < PROPOSAL_CPU_S
        assert isinstance(proposal, Proposal)
        score = Score(luck.uniform(50, 100), feasible=True, violation=0.0, best_point=None)
        history.append(Trial(number, proposal.candidate, TrialState.MEASURED, score=score))


def test_of_steps_that_seldom_all_fit_at_once_those_that_do_are_drawn(tmp_path: Path) -> None:
    """Of draws of all steps at once, one in 460 would be loaded."""
    ensemble = make_ensemble(tmp_path / "models", 12)
    steps = [f"step-{number:02d}" for number in range(12)]
    sizes = "{space: {max_batch_size: {choice: [1, 2, 4, 8, 16]}}}"
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"model: {ensemble}\nrepository: models\nslo: [p99_latency <= 100ms]\nmodels:\n"
        + "".join(f"  {step}: {sizes}\n" for step in steps)
    )
    space, luck = prepare(Request(spec)).space, random.Random(1)
    alone = [space.sample(luck) for _ in range(5)]
    drawn = [space.sample(luck, alone[0]) for _ in range(150)]
    for candidate in (*alone, *drawn):
        assert candidate is not None
        assert space.contains(candidate)
        assert not space.violations(candidate)
    for name in steps:
        assert {c.of(name)["max_batch_size"] for c in drawn if c} == {4, 8, 16}
