from __future__ import annotations

from pathlib import Path

import pytest

from tuner.steps.cache_outlook import cache_notes
from tuner.steps.job import Request, prepare

SPEC = """\
model: emulated-accelerator
repository: {repository}
workload: {{inputs: {inputs}}}
slo: [p99_latency <= 60ms]
space: {{response_cache.size: {{choice: [512KiB, off, 32KiB]}}}}
"""
REPOSITORY = Path(__file__).parents[3] / "model_repository"


def notes(directory: Path, inputs: str) -> list[str]:
    path = directory / "spec.yaml"
    path.write_text(SPEC.format(repository=REPOSITORY, inputs=inputs))
    return cache_notes(prepare(Request(spec=path)))


def test_the_smallest_size_comes_first_with_what_it_should_answer(tmp_path: Path) -> None:
    assert notes(tmp_path, "{kind: random, unique: 400, repeat: {kind: uniform}}") == [
        "a cache of 32 KiB has room for about 102 answers and should give 26% of them",
        "a cache of 512 KiB has room for about 1638 answers and should give 100% of them",
    ]


@pytest.mark.parametrize(
    "inputs", ["{kind: random}", "{kind: random, repeat: {kind: duplicates, share: 30%}}"]
)
def test_nothing_is_said_where_popularity_is_not_known(tmp_path: Path, inputs: str) -> None:
    assert notes(tmp_path, inputs) == []
