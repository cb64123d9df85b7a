"""The A/A and A/B benchmark on simulated queues: it runs, and says what it found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confirmation
import pytest
from builders.measurements import synthetic_server
from confirmation import REPETITIONS, Rig, repeat, simulated, spec_in, summary

from tuner.errors import ClientLimitError
from tuner.measurement.measurement import HostUse, Rejected, Stage
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


class Robbed:
    """A bench whose load generator falls behind in so many repetitions, then is that of a queue."""

    def __init__(self, queue: Any, times: int, stalled_percent: float) -> None:
        self.queue, self.times = queue, times
        self.sendable = queue.sendable
        self.host = HostUse(stalled_percent=stalled_percent)
        self.rejected: list[Rejected] = []

    def deploy(self, candidate: Any, *, fresh: bool = False) -> None:
        if self.times:
            self.times -= 1
            behind = replace(synthetic_server(1240.0, 2000.0), host=self.host)
            self.rejected.append(Rejected("late", "k", 1240.0, 4.0, Stage.CONFIRMATION, behind))
            raise ClientLimitError("the load generator could not keep up with 1240/s")
        self.queue.deploy(candidate, fresh=fresh)

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Any:
        return self.queue.measure(level, seed, least_s)


@pytest.mark.parametrize(
    ("times", "stalled", "gave_up", "attempts"),
    [
        (1, 30.0, False, 2),
        (9, 30.0, True, 1 + REPETITIONS),
        (1, 0.2, True, 1),  # a generator that is too slow by itself is no news the second time
    ],
)
def test_a_repetition_lost_to_stalls_is_made_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    stalled: float,
    gave_up: bool,
    attempts: int,
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(confirmation, "time", clock)
    job, rows = prepare(Request(spec=spec_in(tmp_path, 1.8))), []
    with simulated(0.0, 1.8, 0) as queue:
        bench = Robbed(queue.bench, times, stalled)
        rig = Rig(bench, queue.measured_s, bench.rejected)  # type: ignore[arg-type]
        repeat(rig, job, 0.0, [0], rows.append)
    assert [(row["outcome"] == "failed", row["attempts"]) for row in rows] == [(gave_up, attempts)]
