"""The A/A and A/B benchmark on simulated queues: it runs, and says what it found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confirmation
import pytest
from builders.measurements import synthetic_server
from confirmation import REPETITIONS, Kept, Rig, repeat, simulated, spec_in, summary

from tuner.errors import ClientLimitError
from tuner.measurement.measurement import HostUse
from tuner.measurement.rejected import Rejected, Stage
from tuner.steps.job import Request, prepare


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "not_better"), (0.08, "confirmed")])
def test_a_difference_is_recognised_and_none_is_not(
    tmp_path: Path, difference: float, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = prepare(Request(spec=spec_in(tmp_path, 1.8)))
    rows: list[Any] = []
    with simulated(difference, 1.8, 0) as rig:
        repeat(rig, job, difference, [0], rows.append)
    assert [row["outcome"] for row in rows] == [outcome]
    assert summary(rows, difference, 0.02)
    assert "right in 1 of 1, 0 gave no result" in capsys.readouterr().out


def test_a_repetition_without_a_result_is_not_counted_as_right() -> None:
    row = {"outcome": "not_measured", "measuring_s": 1.0, "wall_s": 1.0}
    assert not summary([row], 0.0, 0.02)


class Robbed:
    """A bench whose load generator falls behind in so many repetitions, then is that of a queue."""

    def __init__(self, queue: Any, times: int, stalled_percent: float) -> None:
        self.queue, self.times = queue, times
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
    ("times", "stalled", "outcome", "attempts"),
    [
        (1, 30.0, "not_better", 2),
        (9, 30.0, "failed", 1 + REPETITIONS),
        (1, 0.2, "failed", 1),  # a generator that is too slow by itself is no news the second time
    ],
)
def test_a_repetition_lost_to_stalls_is_made_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    stalled: float,
    outcome: str,
    attempts: int,
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(confirmation, "time", clock)
    job, rows = prepare(Request(spec=spec_in(tmp_path, 1.8))), []
    with simulated(0.0, 1.8, 0) as queue:
        bench = Robbed(queue.bench, times, stalled)
        rig = Rig(bench, queue.measured_s, bench.rejected)  # type: ignore[arg-type]
        repeat(rig, job, 0.0, [0], rows.append)
    assert [(row["outcome"], row["attempts"]) for row in rows] == [(outcome, attempts)]


def test_what_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rows.jsonl"
    what = {"difference": 0.0, "spec_window_s": 1.8, "simulated": True}
    old = {"outcome": "not_better", "measuring_s": 7.0, "wall_s": 7.0, "attempts": 1}
    lost = {**old, "outcome": "failed"}
    other = {**what, "difference": 0.05, **old, "repetition": 1}
    lines = [{**what, **old, "repetition": 0}, other, {**what, **lost, "repetition": 2}]
    output.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"repetition": 1, "o')
    made: list[int] = []

    def again(rig: Any, job: Any, difference: float, numbers: Any, keep: Any) -> None:
        for number in numbers:
            made.append(number)
            keep({**old, "repetition": number})

    monkeypatch.setattr(confirmation, "repeat", again)
    argv = ["confirmation.py", "--simulated", "--repeats", "3", "--output", str(output)]
    monkeypatch.setattr("sys.argv", argv)
    assert confirmation.main() == 0
    assert made == [1, 2]
    assert sorted(Kept(output, what).rows()) == [0, 1, 2]
    assert "right in 3 of 3, 0 gave no result" in capsys.readouterr().out
