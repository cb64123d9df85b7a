"""The A/A and A/B benchmark on simulated queues: it runs, and says what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confirmation import repeat, simulated, spec_in, summary

from tuner.steps.job import Request, prepare


@pytest.mark.parametrize(("difference", "confirmed"), [(0.0, False), (0.08, True)])
def test_a_difference_is_recognised_and_none_is_not(
    tmp_path: Path, difference: float, confirmed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = prepare(Request(spec=spec_in(tmp_path, 1.8)))
    rows: list[Any] = []
    with simulated(difference, 1.8, 0) as rig:
        repeat(rig, job, difference, [0], rows.append)
    assert [row["outcome"] == "confirmed" for row in rows] == [confirmed]
    assert summary(rows, difference, 0.02)
    assert "right in 1 of 1, 0 gave no result" in capsys.readouterr().out


def test_a_repetition_without_a_result_is_not_counted_as_right() -> None:
    row = {"outcome": "not_measured", "measuring_s": 1.0, "wall_s": 1.0}
    assert not summary([row], 0.0, 0.02)
