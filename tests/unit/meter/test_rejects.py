"""No measured second is lost in silence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.again_bench import (
    BOUNDED,
    ONE,
    StandingDeployer,
    a_bench,
    behind,
    behind_and_stalled,
    failing,
    gone,
    long_behind,
    long_behind_and_stalled,
    missed,
    others,
    overloaded,
    quiet,
    sleeping,
    stalled,
    stalled_more,
    undecided,
)
from builders.measurements import P99_40MS

from tuner.errors import (
    ClientLimitError,
    InterruptedRunError,
    LoadFailedError,
    ServerGoneError,
)
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Rejected, Stage
from tuner.measurement.window import EarlyEnd, Window
from tuner.meter.again import PAUSE_S, TABLE
from tuner.prepare.timebook import Phase, TimeBook
from tuner.reason import Reason
from tuner.record.result_schema import RejectedFacts
from tuner.sentences import sentence


@pytest.fixture
def slept() -> Iterator[list[float]]:
    with sleeping() as slept:
        yield slept


@pytest.mark.parametrize(
    ("steps", "counts", "pause_s"),
    [
        ([quiet], 0, 0.0),
        ([missed], 0, 0.0),
        ([others], 0, 0.0),  # nothing that disturbs makes a server faster
        ([overloaded], 0, 0.0),  # by more than the disturbance explains
        ([stalled, quiet], 1, PAUSE_S),
        ([stalled, missed], 1, PAUSE_S),
        ([stalled, stalled], 1, PAUSE_S),  # one repetition: no ladder of pauses
        ([stalled_more, stalled], 1, PAUSE_S),
        ([stalled, stalled_more], 0, PAUSE_S),
        ([stalled, behind], 0, PAUSE_S),
        ([behind, quiet], 1, 0.0),
        ([behind, stalled], 1, 0.0),
        ([behind_and_stalled, quiet], 1, PAUSE_S),
    ],
)
def test_unreliable_measurement_is_repeated_and_the_better_one_counts(
    steps: list[Any], counts: int, pause_s: float, slept: list[float]
) -> None:
    bench, rejected = a_bench(*steps)
    point, load = bench.measure(30, 7), LoadPoint(Arrivals.POISSON, 30)
    expected = steps[counts](load)
    assert point.measurement.p99_latency_us == expected.p99_latency_us
    assert point.measurement.host == expected.host
    assert sum(slept) == pause_s
    assert [(r.candidate_key, r.level, r.wall_s) for r in rejected] == [(ONE.key, 30, 4.0)] * (
        len(steps) - 1
    )
    assert all(r.reason for r in rejected)


@pytest.mark.parametrize(
    ("steps", "pause_s"),
    [
        ([behind, behind], 0.0),
        ([behind_and_stalled, behind], PAUSE_S),
        ([long_behind], 0.0),  # two soaks of five minutes were made twice
        ([long_behind_and_stalled, long_behind], PAUSE_S),
    ],
)
def test_a_client_that_is_behind_again_scores_nothing(
    steps: list[Any], pause_s: float, slept: list[float]
) -> None:
    bench, rejected = a_bench(quiet, *steps)
    bench.measure(20, 1)
    with pytest.raises(ClientLimitError, match="30/s") as error:
        bench.measure(50, 2)
    assert "batch_size" in error.value.hint
    assert [r.level for r in rejected] == [50] * len(steps)  # what was before still counts
    assert sum(slept) == pause_s


def test_each_measurement_has_a_separate_repetition(slept: list[float]) -> None:
    bench, rejected = a_bench(stalled_more, stalled, stalled_more, stalled)
    assert all(bench.measure(level, 1).measurement.disturbances for level in (50, 60))
    assert [r.level for r in rejected] == [50, 60]


def test_disturbance_that_a_repetition_does_not_end_is_reported_once(slept: list[float]) -> None:
    """A run beside a steady program measured nearly everything twice, and learned nothing."""
    notes: list[str] = []
    bench, rejected = a_bench(*[stalled] * 5, note=notes.append)
    for level in (50, 60, 70, 80):
        assert bench.measure(level, 1).measurement.disturbances
    assert [r.level for r in rejected] == [50]
    assert sum(slept) == PAUSE_S
    assert ["from now on" in text for text in notes] == [True]


def test_more_than_the_lasting_disturbance_is_measured_again(slept: list[float]) -> None:
    bench, rejected = a_bench(stalled, stalled, stalled_more, stalled)
    for level in (50, 60):
        bench.measure(level, 1)
    assert [r.level for r in rejected] == [50, 60]


def test_pause_beside_a_disturbance_is_reported_in_a_separate_phase(slept: list[float]) -> None:
    """Fifty seconds of it were told as "starting" in a run of five minutes."""
    book, pauses_s = TimeBook(lambda: sum(slept)), list[float]()
    bench, _ = a_bench(
        stalled, quiet, book=book, disturbed=lambda _, pause_s: pauses_s.append(pause_s)
    )
    bench.measure(30, 1)
    assert book.seconds(Phase.WAITING) == book.to_json()["wall_s"] == PAUSE_S
    assert pauses_s == [PAUSE_S]


def test_who_waits_for_a_quiet_machine_can_be_stopped(slept: list[float]) -> None:
    def checkpoint() -> None:
        if sum(slept) >= 2.0:
            raise InterruptedRunError("stopped")

    bench, rejected = a_bench(stalled, quiet, checkpoint=checkpoint)
    with pytest.raises(InterruptedRunError):
        bench.measure(30, 1)
    assert sum(slept) == 2.0
    assert [r.level for r in rejected] == [30]


def test_the_documentation_shows_the_table_of_what_is_measured_again() -> None:
    text = (Path(__file__).parents[3] / "docs" / "internals" / "measuring-policy.md").read_text()
    rows = [f"| {row.situation} | {row.at_most} | {row.costs} |" for row in TABLE]
    assert "\n".join(rows) in text


def test_a_client_that_fell_behind_scores_nothing_when_its_repeat_does_not_either() -> None:
    bench, rejected = a_bench(behind, gone)
    with pytest.raises(ServerGoneError):
        bench.measure(50, 1)
    assert [(r.measurement is None) for r in rejected] == [True, False]


def test_measurement_ended_early_without_need_is_repeated_in_full_on_a_fresh_server() -> None:
    deployer, windows = StandingDeployer(), list[Window]()
    bench, _ = a_bench(undecided, quiet, deployer=deployer, windows=windows)
    assert bench.measure(50, 1).measurement.completed_count > 0
    ends = [EarlyEnd.LATE, EarlyEnd.NEVER]
    assert windows == [replace(BOUNDED, ends_early=end) for end in ends]
    assert deployer.freshened == 1


@pytest.mark.parametrize(("end", "fresh"), [(failing, 1), (gone, 0)])
def test_a_server_that_a_load_failed_on_is_left_behind(end: Any, fresh: int) -> None:
    deployer = StandingDeployer()
    bench, _ = a_bench(end, quiet, deployer=deployer)
    with pytest.raises((LoadFailedError, ServerGoneError)):
        bench.measure(50, 1)
    bench.deploy(ONE)
    assert deployer.freshened == fresh


@pytest.mark.parametrize("end", [gone, failing])
def test_a_trial_that_fails_names_all_that_it_measured(end: Any) -> None:
    bench, rejected = a_bench(quiet, quiet, end)
    bench.measure(10, 1)
    bench.measure(20, 2)
    with pytest.raises((ServerGoneError, LoadFailedError)) as raised:
        bench.measure(30, 3)
    bench.lost(raised.value.reason)
    assert [(r.level, r.measurement is None) for r in rejected] == [
        (30, True),
        (10, False),
        (20, False),
    ]
    assert raised.value.message in sentence(rejected[1].reason)


def stopped(_: LoadPoint) -> Measurement:
    raise InterruptedRunError("stopped")


@pytest.mark.parametrize(("end", "levels"), [(gone, [30, 10]), (stopped, [10])])
def test_a_server_that_is_gone_or_a_stop_is_the_trials_end(end: Any, levels: list[float]) -> None:
    bench, rejected = a_bench(quiet, end)
    bench.measure(10, 1)
    with pytest.raises((ServerGoneError, InterruptedRunError)):
        bench.measure(30, 2)
    assert [r.level for r in rejected] == levels


def test_a_load_without_a_result_need_not_be_the_trials_end() -> None:
    bench, rejected = a_bench(quiet, failing)
    bench.measure(10, 1)
    with pytest.raises(LoadFailedError):
        bench.measure(30, 2)
    assert [r.level for r in rejected] == [30]


def test_an_overload_that_tells_nothing_over_time_is_rejected_with_its_measurement() -> None:
    bench, rejected = a_bench(quiet)
    with pytest.raises(LoadFailedError, match="no figures over time"):
        bench.overload(50.0, P99_40MS, 3)
    (rejection,) = rejected
    assert "no figures over time" in sentence(rejection.reason)
    assert (rejection.level, rejection.wall_s) == (50.0, 4.0)
    assert rejection.measurement is not None
    assert (rejection.measurement.load.arrivals, rejection.measurement.seed) == (Arrivals.STEP, 3)


def test_failed_measurement_is_reported_with_its_seconds() -> None:
    def slowly(load: LoadPoint) -> Measurement:
        time.sleep(0.02)
        return failing(load)

    bench, rejected = a_bench(slowly)
    with pytest.raises(LoadFailedError):
        bench.measure(30, 2)
    assert 0.02 <= rejected[0].wall_s < 20.0  # no milliseconds


@pytest.mark.parametrize("stage", [Stage.SEARCH, Stage.CONFIRMATION])
def test_measurements_of_other_trials_and_of_a_confirmation_stay_valid(stage: Stage) -> None:
    bench, rejected = a_bench(quiet, gone)
    bench.enter(stage)
    bench.measure(10, 1)
    if stage is Stage.SEARCH:
        bench.deploy(ONE)  # the next trial
    with pytest.raises(ServerGoneError):
        bench.measure(30, 2)
    assert [(r.level, r.stage) for r in rejected] == [(30, stage)]


def test_a_summary_adds_up() -> None:
    one = Rejected(Reason.of_text("busy"), "k", 50.0, 4.0, Stage.SEARCH)
    summary = RejectedFacts.of(
        [one, one, replace(one, reason=Reason.of_text("gone"), wall_s=2.0)], measuring_s=100.0
    )
    assert summary == RejectedFacts(
        count=3, seconds=10.0, share_of_measuring=0.1, reasons=("busy", "gone")
    )
    assert RejectedFacts.of([], measuring_s=0.0).share_of_measuring == 0.0
