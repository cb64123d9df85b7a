"""What `tune init` drafts, `tune plan` answers for: soon, and with 0 or, lacking a program, 4."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import load_repository, sequence_model, triton_repository
from builders.commands import Tune
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.model_files import REPOSITORY, write_model

from tuner.modelconfig.files import model_names
from tuner.run.plan import draw_plan
from tuner.space.experts import EXPERTS

#: CPU seconds of a plan; without what the client costs, which is measured by processes.
SOON_S = 3.0
TENSORS = (
    'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
    'output { name: "y" data_type: TYPE_FP32 dims: 4 }\n'
)
ENGINE = 'backend: "vllm" instance_group [{ count: 1 kind: KIND_MODEL }]'
CHAT = (
    'backend: "python" model_transaction_policy { decoupled: true }\n'
    'input { name: "text" data_type: TYPE_STRING dims: 1 } '
    'output { name: "answer" data_type: TYPE_STRING dims: 1 }\n'
)
CALLING = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceRequest(model_name="llm", inputs=[]).exec() for _ in requests]
"""


def shipped(here: Path) -> None:
    shutil.copytree(REPOSITORY, here, dirs_exist_ok=True)


def of_sequences(here: Path) -> None:
    for strategy in ("direct { }", "oldest { max_candidate_sequences: 4 }"):
        name = strategy.partition(" ")[0]
        write_model(here / name, sequence_model.sequence_config(name, strategy))


def of_every_backend(here: Path) -> None:
    for backend in (*EXPERTS, "my_engine"):
        for size in (0, 1, 2, 64):
            text = f'backend: "{backend}" max_batch_size: {size}\n{TENSORS}'
            write_model(here / f"{backend}-{size}", text)


def of_many_parts(here: Path) -> None:
    """Six steps, and an ensemble of two that batches by four."""
    write_model(here / "e", ENSEMBLE)
    for name in ("one", "two"):
        write_model(here / name, MODEL.replace("one", name).replace("size: 4", "size: 64"))
    steps = ""
    for at in range(6):
        write_model(here / f"s{at}", f'backend: "python" max_batch_size: 64 {TENSORS}')
        reads, writes = "x" if at == 0 else f"t{at}", "y" if at == 5 else f"t{at + 1}"
        steps += (
            f'step {{ model_name: "s{at}" model_version: -1 '
            f'input_map {{ key: "x" value: "{reads}" }} '
            f'output_map {{ key: "y" value: "{writes}" }} }}\n'
        )
    scheduled = f"ensemble_scheduling {{ {steps} }}"
    write_model(here / "long", f'platform: "ensemble" max_batch_size: 8 {TENSORS}{scheduled}')


def of_language_models(here: Path) -> None:
    write_model(here / "llm", ENGINE)
    write_model(here / "chat", CHAT, CALLING)


#: Writes a repository into a directory, or into one below it.
REPOSITORIES: dict[str, Callable[[Path], object]] = {
    "shipped": shipped,
    "loads": load_repository.make_repository,
    "ensemble": triton_repository.make_ensemble,
    "sequences": of_sequences,
    "backends": of_every_backend,
    "parts": of_many_parts,
    "language models": of_language_models,
}


@pytest.mark.parametrize("made", REPOSITORIES)
def test_plan_accepts_each_draft_within_seconds(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path("models")
    below = REPOSITORIES[made](there)
    there = below if isinstance(below, Path) else there
    drafted = 0
    for name in model_names(there):
        spec = Path(f"{name}.yaml")
        if tune("init", name, "--repository", there, "--output", spec, "--server", "gpu") != 0:
            continue  # it says why; no draft, nothing to plan
        drafted += 1
        began = time.process_time()
        plan = draw_plan(spec, {"PATH": ""}, 3)
        assert time.process_time() - began < SOON_S, name
        assert plan.space_size > 1, name
        assert plan.candidates, name
    assert drafted
