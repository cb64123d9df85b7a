"""The A/A and A/B benchmark on simulated queues: it runs, and says what it found."""

from __future__ import annotations

from pathlib import Path

import pytest
from confirmation import repeat, simulated, spec_in, summary

from tuner.steps.job import Request, prepare


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "not_better"), (0.08, "confirmed")])
def test_a_difference_is_recognised_and_none_is_not(
    tmp_path: Path, difference: float, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = prepare(Request(spec=spec_in(tmp_path, 1.8)))
    with simulated(difference, 1.8, 0) as rig:
        rows = repeat(rig, job, difference, 0, 1)
    assert [row["outcome"] for row in rows] == [outcome]
    assert summary(rows, difference, 0.02)
    assert "right in 1 of 1, 0 gave no result" in capsys.readouterr().out


def test_a_repetition_without_a_result_is_not_counted_as_right() -> None:
    row = {"outcome": "not_measured", "measuring_s": 1.0, "wall_s": 1.0}
    assert not summary([row], 0.0, 0.02)
