"""Slow models: rounds are looks at saturated configs, and soaks judge the percentile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders.emulated import a_session
from builders.measurements import synthetic_measurement
from builders.proving import CURRENT, OTHER, THIRD, ProvingBench, prove, result, searched, spec_of

from tuner.measurement.measurement import Arrivals, Measurement
from tuner.proof.entrants import Looks, ProofRules, entrant_of, looks_of
from tuner.record.confirmation import Repeat, Role
from tuner.record.status import Status
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate

IN_FLIGHT = 16
#: What a saturated server of the emulation answers, over what it sustains.
OVER = 1.1


class LongWindows(ProvingBench):
    """Windows as long as the percentile needs."""

    def reading(self, level: float, seed: int) -> Measurement:
        measurement = super().reading(level, seed)
        p99_us, served = measurement.p99_latency_us, measurement.throughput_infer_per_s
        return synthetic_measurement(level, p99_us, served=served, duration_s=1000.0 / served)


def slow(capacity: Mapping[Candidate, float], **more: Any) -> ProvingBench:
    return LongWindows(spec_of(), capacity, **more)


def looked_at(trial: Trial, in_flight: int = IN_FLIGHT, share: float = 1.0) -> Trial:
    level = (trial.capacity_level or 1.0) * OVER / share
    return replace(trial, saturated=Saturated(in_flight, level, level))


def trials_of(bench: ProvingBench) -> list[Trial]:
    return [looked_at(t) for t in searched(bench, *bench.capacity)]  # type: ignore[arg-type]


def looks(bench: ProvingBench, *trials: Trial) -> Looks | None:
    spec, plan = bench.spec, a_session(bench, bench.spec, CURRENT).plan
    rules = ProofRules(spec.objective, spec.slos, plan, spec.confirm, seed=1)
    return looks_of(spec, plan, [entrant_of(t, rules) for t in trials])


def test_rounds_of_a_slow_model_are_looks_and_of_a_fast_one_measurements() -> None:
    for capacity, are_looks in ((6.0, True), (600.0, False)):
        bench = slow({CURRENT: capacity, OTHER: 1.5 * capacity})
        assert (looks(bench, *trials_of(bench)) is not None) is are_looks


def test_a_look_lasts_for_enough_answers_of_the_slowest_and_no_longer_than_a_window() -> None:
    bench = slow({CURRENT: 6.0, OTHER: 9.0})
    needed = looks(bench, *trials_of(bench))
    assert needed is not None
    assert needed.in_flight == IN_FLIGHT
    assert needed.length_s == pytest.approx(120 / (6.0 * OVER), rel=0.05)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda t: replace(t, saturated=None), id="one was not saturated"),
        pytest.param(lambda t: looked_at(t, in_flight=8), id="with fewer in flight"),
        pytest.param(lambda t: looked_at(t, share=0.7), id="latencies limit one of them"),
    ],
)
def test_looks_compare_nothing_where_they_do_not_explain_capacities(
    changed: Callable[[Trial], Trial],
) -> None:
    bench = slow({CURRENT: 6.0, OTHER: 9.0})
    now, other = trials_of(bench)
    assert looks(bench, now, changed(other)) is None


def test_a_slow_winner_is_proved_by_looks_and_soaked_on_both_sides() -> None:
    bench, rows = slow({CURRENT: 6.0, OTHER: 9.0}), list[Repeat]()
    verdict = prove(bench, *trials_of(bench), record=rows.append)
    assert verdict.status is Status.IMPROVED
    rounds = [r for r in rows if r.role in (Role.CURRENT, Role.CANDIDATE)]
    assert rounds
    assert all(r.is_look for r in rounds)
    assert {r.point.measurement.load.arrivals for r in rounds} == {Arrivals.CLOSED}
    assert {candidate for candidate, _ in bench.soaked} == {CURRENT, OTHER}
    assert verdict.gain is not None
    assert verdict.gain.ratio.estimate == pytest.approx(1.5, rel=0.1)
    assert verdict.winner is not None
    assert 7.0 < (verdict.winner.credited_infer_per_s or 0.0) <= 9.0
    assert result(bench, verdict).status is Status.IMPROVED


def test_a_slow_config_that_lasts_no_better_is_not_written() -> None:
    """What it answers when it is saturated is more, and what lasts within the SLO is not."""
    bench = slow({CURRENT: 6.0, OTHER: 9.0}, shares={OTHER: 0.6})
    verdict = prove(bench, *trials_of(bench))
    assert verdict.status is not Status.IMPROVED


def test_equal_slow_configs_are_kept_after_looks_alone() -> None:
    bench = slow({CURRENT: 6.0, OTHER: 6.0, THIRD: 5.9}, noise=0.01)
    verdict = prove(bench, *trials_of(bench))
    assert verdict.status is Status.KEPT
    assert not bench.loads
