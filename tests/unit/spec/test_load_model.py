"""Models that the tuned one calls may be loaded beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.spec.load import load_spec

SPEC = """\
model: bls
repository: .
server: {args: [%s]}
slo: [p99_latency <= 40ms]
space: {instance_group.count: {int: [1, 4]}}
"""


def loaded(tmp_path: Path, args: str) -> tuple[str, ...]:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC % args)
    return tuple(load_spec(file).spec.server.args)


@pytest.mark.parametrize("args", ["--load-model=add", "--load-model, add"])
def test_the_models_it_calls_are_loaded_by_name(tmp_path: Path, args: str) -> None:
    assert "".join(loaded(tmp_path, args)).startswith("--load-model")


@pytest.mark.parametrize("args", ["--load-model=bls", "--load-model, bls", "'--load-model=*'"])
def test_the_tuned_model_is_loaded_by_tune_itself(tmp_path: Path, args: str) -> None:
    with pytest.raises(SpecError, match=r"name .*the models that it calls"):
        loaded(tmp_path, args)
