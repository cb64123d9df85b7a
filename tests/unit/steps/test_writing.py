"""What a run says of its write before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.steps.job import Job, Request, prepare
from tuner.steps.writing import foreseen

SPEC = """\
model: m
repository: models
slo: [p99_latency <= 40ms]
space: {instance_group.count: {int: [1, 4]}}
"""


def job_of(tmp_path: Path, target: Path) -> Job:
    """A model whose config is a link."""
    config = tmp_path / "models" / "m" / "config.pbtxt"
    (config.parent / "1").mkdir(parents=True)
    target.parent.mkdir(exist_ok=True)
    target.write_text('backend: "onnxruntime"\n')
    config.symlink_to(target)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    return prepare(Request(spec=spec))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("models/configs/m.pbtxt", "is a link to "),
        ("elsewhere/m.pbtxt", "a winner will not be written: "),
    ],
)
def test_whoever_starts_a_run_is_told_where_a_link_leads(
    tmp_path: Path, target: str, said: str
) -> None:
    (note,) = foreseen(job_of(tmp_path, tmp_path / target))
    assert said in note
    assert str(tmp_path / target) in note
