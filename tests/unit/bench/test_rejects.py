"""No measured second is lost in silence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from candidates import candidate_of
from synthetic import NO_ERRORS, P99_40MS, synthetic_server

from tuner.bench.bench import BenchRules, TritonBench
from tuner.bench.repeating import LONG_S, PAUSES_S
from tuner.bench.timebook import Phase, TimeBook
from tuner.errors import (
    ClientLimitError,
    InterruptedRunError,
    LoadFailedError,
    ServerGoneError,
    UndecidedError,
)
from tuner.load.probes.answers import Answers
from tuner.load.probes.cache_fill import Filling
from tuner.measurement.measurement import Arrivals, HostUse, LoadPoint, Measurement
from tuner.measurement.rejected import Rejected, Stage
from tuner.measurement.window import LatencyBound, Window
from tuner.run.result_schema import RejectedFacts
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.steps.outcome import rejected_facts
from tuner.triton.deploy import DeploymentKind

ONE = candidate_of({"instance_group.count": 1})
BOUNDED = Window(1, 0, 10, bounds=(LatencyBound(share=0.99, within_s=0.04),))


def quiet(load: LoadPoint) -> Measurement:
    return replace(synthetic_server(load.level, 100.0), late_sends=0.0, wall_s=4.0)


def behind(load: LoadPoint) -> Measurement:
    return replace(quiet(load), late_sends=0.9, sent_per_s=30.0)


def disturbed(load: LoadPoint) -> Measurement:
    return replace(quiet(load), host=HostUse(other_cpu_percent=40.0))


def robbed(load: LoadPoint) -> Measurement:
    return replace(behind(load), host=HostUse(stolen_cpu_percent=38.0))


def robbed_and_missed(load: LoadPoint) -> Measurement:
    """The load was sent as asked, and an SLO missed while the hypervisor took much."""
    late = replace(quiet(load), p99_latency_us=90e3)
    return replace(late, host=HostUse(stolen_cpu_percent=28.6))


def robbed_a_little(load: LoadPoint) -> Measurement:
    return replace(robbed_and_missed(load), host=HostUse(stolen_cpu_percent=2.5))


def met_beside_bursts(load: LoadPoint) -> Measurement:
    """A soak of 30 s with a tenth left out of it."""
    return replace(quiet(load), duration_s=27.0, left_out_s=3.0)


def missed_beside_bursts(load: LoadPoint) -> Measurement:
    return replace(met_beside_bursts(load), p99_latency_us=70e3)


def gone(_: LoadPoint) -> Measurement:
    raise ServerGoneError("the server crashed")


def failing(_: LoadPoint) -> Measurement:
    raise LoadFailedError("perf_analyzer failed")


def undecided(_: LoadPoint) -> Measurement:
    raise UndecidedError("ended early, but no latency SLO was certainly missed")


class Script:
    """A load generator that does one thing after the other."""

    def __init__(self, *steps: Callable[[LoadPoint], Measurement]) -> None:
        self.steps = list(steps)
        self.windows: list[Window] = []

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.windows.append(window)
        return replace(self.steps.pop(0)(load), load=load, seed=seed)

    def await_first_answers(self, patience_s: float, note: Any) -> None:
        pass

    def answers(self) -> Any:
        return {"": Answers(none_because="emulated")}

    def fill(self, seed: int, size: int | None) -> Filling:
        raise AssertionError("no cache here")


class StandingDeployer:
    def __init__(self) -> None:
        self.freshened = 0

    def fresh(self) -> None:
        self.freshened += 1

    def deploy(self, candidate: Candidate) -> Any:
        return SimpleNamespace(kind=DeploymentKind.UNCHANGED, endpoints=Endpoints("h", "g", None))


def a_bench(
    *steps: Callable[[LoadPoint], Measurement],
    book: TimeBook | None = None,
    window_s: float = 1.0,
) -> tuple[TritonBench, list[Rejected]]:
    rejected: list[Rejected] = []
    rules = BenchRules(
        slos=[P99_40MS, NO_ERRORS],
        arrivals=Arrivals.POISSON,
        window=lambda _, __: Window(window_s, 0, 10 * window_s),
        checkpoint=lambda: None,
        measured=lambda _: None,
        rejected=rejected.append,
    )
    bench = TritonBench(StandingDeployer(), lambda _: Script(*steps), rules, book or TimeBook())
    bench.deploy(ONE)
    return bench, rejected


def with_a_server(*steps: Callable[[LoadPoint], Measurement]) -> tuple[TritonBench, Script, Any]:
    deployer, script = StandingDeployer(), Script(*steps)
    rules = BenchRules(
        slos=[P99_40MS, NO_ERRORS],
        arrivals=Arrivals.POISSON,
        window=lambda _, __: BOUNDED,
        checkpoint=lambda: None,
        measured=lambda _: None,
    )
    bench = TritonBench(deployer, lambda _: script, rules, TimeBook())
    bench.deploy(ONE)
    return bench, script, deployer


def test_a_good_measurement_is_made_once() -> None:
    bench, rejected = a_bench(quiet)
    assert bench.measure(50, 1).measurement.disturbances == ()
    assert rejected == []


def test_a_disturbed_measurement_is_repeated_once() -> None:
    bench, rejected = a_bench(disturbed, quiet)
    assert bench.measure(50, 7).measurement.disturbances == ()
    (found,) = rejected
    assert "40 % of the machine's CPU" in found.reason
    assert (found.candidate_key, found.level, found.wall_s) == (ONE.key, 50, 4.0)
    assert found.stage is Stage.SEARCH
    assert found.measurement is not None
    assert found.measurement.disturbances


def test_one_that_is_disturbed_again_counts_and_is_flagged() -> None:
    bench, rejected = a_bench(disturbed, disturbed)
    (sentence,) = bench.measure(50, 1).measurement.disturbances
    assert "40 %" in sentence
    assert len(rejected) == 1


def test_not_every_measurement_is_made_twice_on_a_machine_that_is_never_quiet() -> None:
    bench, rejected = a_bench(*[disturbed] * 3)
    bench.measure(50, 1)
    assert bench.measure(60, 1).measurement.disturbances
    assert len(rejected) == 1


def test_a_quiet_measurement_means_that_the_next_is_repeated_again() -> None:
    bench, rejected = a_bench(*[disturbed] * 2, quiet, disturbed, quiet)
    for level in (50, 60, 70):
        point = bench.measure(level, 1)
    assert point.measurement.disturbances == ()
    assert len(rejected) == 2


def test_a_client_that_was_behind_once_gets_another_chance() -> None:
    bench, rejected = a_bench(behind, quiet)
    assert bench.measure(50, 1).measurement.late_sends == 0.0
    assert [r.reason for r in rejected] == ["the load generator could not keep up"]


def test_a_client_that_is_behind_twice_scores_nothing() -> None:
    bench, rejected = a_bench(quiet, behind, behind)
    bench.measure(20, 1)
    with pytest.raises(ClientLimitError, match="keep up with 50/s; it sent 30/s") as error:
        bench.measure(50, 2)
    assert "batch_size" in error.value.hint
    assert [r.level for r in rejected] == [50, 50]  # what was measured before still counts


@pytest.mark.parametrize(
    ("seconds", "others_percent", "made"),
    [(LONG_S - 1.0, 0.0, 2), (LONG_S, 0.0, 1), (LONG_S, 40.0, 2)],
)
def test_a_client_that_was_behind_for_long_on_a_calm_machine_gets_no_other_chance(
    seconds: float, others_percent: float, made: int
) -> None:
    """Two soaks of five minutes were made twice, and each took eight."""

    def long_behind(load: LoadPoint) -> Measurement:
        host = HostUse(other_cpu_percent=others_percent)
        return replace(behind(load), duration_s=seconds, host=host)

    bench, rejected = a_bench(*[long_behind] * 2)
    with pytest.raises(ClientLimitError):
        bench.measure(30, 1)
    assert len(rejected) == made


def test_a_disturbed_measurement_counts_where_the_client_fell_behind_in_its_repeat() -> None:
    """One that is only disturbed says more than one of another load."""
    bench, rejected = a_bench(disturbed, behind)
    assert bench.measure(50, 1).measurement.disturbances
    assert [r.reason for r in rejected] == ["the load generator could not keep up"]


def test_a_client_that_fell_behind_scores_nothing_when_its_repeat_does_not_either() -> None:
    bench, rejected = a_bench(behind, gone)
    with pytest.raises(ServerGoneError):
        bench.measure(50, 1)
    assert [(r.measurement is None) for r in rejected] == [True, False]


def test_what_was_ended_early_without_need_is_repeated_in_full_on_a_fresh_server() -> None:
    bench, script, deployer = with_a_server(undecided, quiet)
    assert bench.measure(50, 1).measurement.completed_count > 0
    assert script.windows == [BOUNDED, replace(BOUNDED, ends_early=False)]
    assert deployer.freshened == 1


@pytest.mark.parametrize(("end", "fresh"), [(failing, 1), (gone, 0)])
def test_a_server_that_a_load_failed_on_is_left_behind(end: Any, fresh: int) -> None:
    bench, _, deployer = with_a_server(end, quiet)
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
    bench.lost(raised.value.message)
    assert [(r.level, r.measurement is None) for r in rejected] == [
        (30, True),
        (10, False),
        (20, False),
    ]
    assert "its trial ended without a result" in rejected[1].reason


def stopped(_: LoadPoint) -> Measurement:
    raise InterruptedRunError("stopped")


@pytest.mark.parametrize(("end", "levels"), [(gone, [30, 10]), (stopped, [10])])
def test_a_server_that_is_gone_or_a_stop_is_the_trials_end(end: Any, levels: list[float]) -> None:
    bench, rejected = a_bench(quiet, end)
    bench.measure(10, 1)
    with pytest.raises((ServerGoneError, InterruptedRunError)):
        bench.measure(30, 2)
    assert [r.level for r in rejected] == levels
    assert "its trial ended without a result" in rejected[-1].reason


def test_a_load_without_a_result_need_not_be_the_trials_end() -> None:
    bench, rejected = a_bench(quiet, failing)
    bench.measure(10, 1)
    with pytest.raises(LoadFailedError):
        bench.measure(30, 2)
    assert [r.level for r in rejected] == [30]


def test_an_overload_that_tells_nothing_over_time_is_rejected_with_its_measurement() -> None:
    bench, rejected = a_bench(quiet)
    with pytest.raises(LoadFailedError, match="none over time"):
        bench.overload(50.0, P99_40MS, 3)
    (found,) = rejected
    assert "none over time" in found.reason
    assert (found.level, found.wall_s) == (50.0, 4.0)
    assert found.measurement is not None
    assert (found.measurement.load.arrivals, found.measurement.seed) == (Arrivals.STEP, 3)


def test_a_measurement_that_failed_is_told_with_the_seconds_it_took() -> None:
    def slowly(load: LoadPoint) -> Measurement:
        time.sleep(0.02)
        return failing(load)

    bench, rejected = a_bench(slowly)
    with pytest.raises(LoadFailedError):
        bench.measure(30, 2)
    assert 0.02 <= rejected[0].wall_s < 1.0


def test_what_another_trial_measured_stays_valid() -> None:
    bench, rejected = a_bench(quiet, gone)
    bench.measure(10, 1)
    bench.deploy(ONE)
    with pytest.raises(ServerGoneError):
        bench.measure(30, 2)
    assert [r.level for r in rejected] == [30]


def test_a_confirmation_keeps_its_rows() -> None:
    bench, rejected = a_bench(quiet, gone)
    bench.enter(Stage.CONFIRMATION)
    bench.measure(10, 1)
    with pytest.raises(ServerGoneError):
        bench.measure(30, 2)
    assert [(r.level, r.stage) for r in rejected] == [(30, Stage.CONFIRMATION)]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the bench slept, in no time."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr("tuner.bench.repeating.time", clock)
    return slept


def test_a_client_behind_while_cpu_was_stolen_is_given_time(slept: list[float]) -> None:
    """A spell of it cost the winner of a search its confirmation."""
    bench, rejected = a_bench(robbed, robbed, robbed, quiet)
    assert bench.measure(30, 1).measurement.late_sends == 0.0
    assert sum(slept) == sum(PAUSES_S[:2])
    assert [r.level for r in rejected] == [30] * 3


def test_a_miss_while_cpu_was_stolen_waits_for_the_spell_to_pass(slept: list[float]) -> None:
    """It led a round from 2,600 requests a second down to 1,500."""
    bench, rejected = a_bench(*[robbed_and_missed] * 3, quiet)
    assert bench.measure(30, 1).measurement.host.stolen_cpu_percent is None
    assert sum(slept) == sum(PAUSES_S[:2])
    assert len(rejected) == 3


def test_waiting_for_a_spell_to_pass_has_a_phase_of_its_own(slept: list[float]) -> None:
    """Fifty seconds of it were told as "starting" in a run of five minutes."""
    book = TimeBook(lambda: sum(slept))
    bench, _ = a_bench(*[robbed_and_missed] * 3, quiet, book=book)
    bench.measure(30, 1)
    assert book.seconds(Phase.WAITING) == sum(PAUSES_S[:2])
    assert book.to_json()["wall_s"] == sum(PAUSES_S[:2])


def test_that_little_was_stolen_in_vain_is_no_reason_to_believe_a_miss_when_it_is_much(
    slept: list[float],
) -> None:
    bench, _ = a_bench(robbed_a_little, robbed_a_little, robbed_and_missed, quiet)
    assert bench.measure(30, 1).measurement.disturbances
    assert not bench.measure(30, 1).measurement.disturbances


def test_of_several_disturbed_ones_the_one_that_was_disturbed_least_counts(
    slept: list[float],
) -> None:
    bench, rejected = a_bench(robbed_a_little, *[robbed_and_missed] * (1 + len(PAUSES_S)))
    assert bench.measure(30, 1).measurement.host.stolen_cpu_percent == 2.5
    assert len(rejected) == 1 + len(PAUSES_S)


def test_who_waited_in_vain_waits_for_no_miss_until_the_spell_has_passed(
    slept: list[float],
) -> None:
    spell = [robbed_and_missed] * (2 + len(PAUSES_S))
    bench, _ = a_bench(*spell, *[robbed_and_missed] * 2, quiet, robbed_and_missed, quiet)
    for level in (30, 20, 10, 5):
        bench.measure(level, 1)
    assert sum(slept) == sum(PAUSES_S)
    assert not bench.measure(
        30, 1
    ).measurement.disturbances  # the one before was quiet: this miss is made again


def test_a_miss_in_what_bursts_left_of_a_window_is_made_again(slept: list[float]) -> None:
    """Three soaks of 30 s failed so, and a winner was not written."""
    bench, rejected = a_bench(*[missed_beside_bursts] * 3, quiet)
    assert bench.measure(30, 1).measurement.left_out_s == 0.0
    assert sum(slept) == sum(PAUSES_S[:2])
    left_out = "3 s of 30 s were left out: the hypervisor gave the CPU to other guests"
    assert {r.reason for r in rejected} == {f"{left_out}, and requests were held up."}


def test_a_load_that_held_beside_bursts_counts() -> None:
    bench, rejected = a_bench(met_beside_bursts)
    assert bench.measure(30, 1).measurement.left_out_s == 3.0
    assert rejected == []


def test_of_misses_beside_bursts_the_one_that_least_was_left_out_of_counts(
    slept: list[float],
) -> None:
    def beside_shorter_ones(load: LoadPoint) -> Measurement:
        return replace(missed_beside_bursts(load), duration_s=28.0, left_out_s=2.0)

    worse = [missed_beside_bursts] * (1 + len(PAUSES_S))
    bench, rejected = a_bench(beside_shorter_ones, *worse, missed_beside_bursts)
    assert bench.measure(30, 1).measurement.left_out_s == 2.0
    assert len(rejected) == 1 + len(PAUSES_S)
    assert bench.measure(25, 1).measurement.left_out_s == 3.0  # all pauses were in vain
    assert len(rejected) == 1 + len(PAUSES_S)


def test_a_long_window_waits_once(slept: list[float]) -> None:
    """Four soaks of five minutes each, for one load, are more than anybody waits for."""
    bench, rejected = a_bench(*[missed_beside_bursts] * 3, window_s=LONG_S)
    assert bench.measure(30, 1).measurement.left_out_s == 3.0
    assert sum(slept) == PAUSES_S[-1]
    assert len(rejected) == 2


def test_one_that_is_behind_all_the_while_is_given_up(slept: list[float]) -> None:
    bench, rejected = a_bench(*[robbed] * (2 + len(PAUSES_S)))
    with pytest.raises(ClientLimitError):
        bench.measure(30, 1)
    assert sum(slept) == sum(PAUSES_S)
    assert len(rejected) == 2 + len(PAUSES_S)


@pytest.mark.parametrize("steps", [(robbed, behind), (behind, behind)])
def test_nobody_waits_for_a_client_that_is_too_slow_by_itself(
    steps: tuple[Callable[[LoadPoint], Measurement], ...], slept: list[float]
) -> None:
    bench, _ = a_bench(*steps)
    with pytest.raises(ClientLimitError):
        bench.measure(30, 1)
    assert slept == []


def test_who_waits_for_a_quiet_machine_can_be_stopped(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def checkpoint() -> None:
        if sum(slept) >= 2.0:
            raise InterruptedRunError("stopped")

    bench, _ = a_bench(robbed, robbed, quiet)
    monkeypatch.setattr(bench._repeating, "_checkpoint", checkpoint)
    with pytest.raises(InterruptedRunError):
        bench.measure(30, 1)
    assert sum(slept) == 2.0


def test_a_summary_adds_up() -> None:
    one = Rejected("busy", "k", 50.0, 4.0, Stage.SEARCH)
    found = rejected_facts([one, one, replace(one, reason="gone", wall_s=2.0)], measuring_s=100.0)
    assert found == RejectedFacts(
        count=3, seconds=10.0, share_of_measuring=0.1, reasons=("busy", "gone")
    )
    assert rejected_facts([], measuring_s=0.0).share_of_measuring == 0.0
