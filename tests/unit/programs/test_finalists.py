"""Which configs are measured again: who has little traffic has the same SLO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from builders.candidates import candidate_of, fields_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.proving import COUNT, ProvingBench, prove, result_json, spec_of, trial

from tuner.measurement.measurement import Measurement
from tuner.programs.run.finalists import finalists_of
from tuner.run.result_schema import Result
from tuner.run.status import Status
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.spec.paths import DELAY

SPEC = Spec.model_validate(
    {
        "model": "m",
        "repository": "r",
        "slo": ["p99_latency <= 40ms"],
        "space": {"instance_group.count": {"int": [1, 6]}},
    }
)
CURRENT, *OTHERS = (candidate_of({"instance_group.count": n}) for n in range(1, 7))
NEAR = 1.10


def at(level: float, stress: float) -> Point:
    return judge_point((P99_40MS, NO_ERRORS), synthetic_measurement(level, 40e3 * stress))


def tried(number: int, candidate: Candidate, state: TrialState, *points: Point) -> Trial:
    judged = points[:1] if state is TrialState.PRUNED else points
    return Trial(number, candidate, state, points, score_points(SPEC.objective, judged))


def numbers(*trials: Trial) -> list[int]:
    return [t.number for t in finalists_of(trials, SPEC, CURRENT, NEAR)]


MEASURED, PRUNED = TrialState.MEASURED, TrialState.PRUNED
NOW = tried(0, CURRENT, MEASURED, at(100, 0.95))
BEST = tried(1, OTHERS[0], MEASURED, at(200, 0.95), at(210, 1.3))


def test_two_finalists_are_two_where_one_lost_to_the_best_by_noise() -> None:
    far = tried(2, OTHERS[1], PRUNED, at(204, 1.4))
    near = tried(3, OTHERS[2], PRUNED, at(204, 1.09), at(200, 1.04))
    nearer = tried(4, OTHERS[3], PRUNED, at(204, 1.07), at(200, 1.01))
    assert numbers(NOW, BEST, far, near) == [1, 3]
    assert numbers(NOW, BEST, far, near, nearer) == [1, 4]


def test_what_was_once_measured_far_beyond_its_bound_is_no_near_miss() -> None:
    assert numbers(NOW, BEST, tried(2, OTHERS[1], PRUNED, at(204, 1.09), at(200, 1.2))) == [1]
    informative = tried(2, OTHERS[1], PRUNED, at(204, 1.5), at(150, 0.8))
    assert numbers(NOW, BEST, informative) == [1]


def test_one_that_nearly_stood_what_is_worth_a_change_is_measured_again() -> None:
    sustained = tried(1, OTHERS[0], MEASURED, at(102, 1.05), at(100, 0.93))
    assert numbers(NOW, sustained) == [1]
    missed = tried(1, OTHERS[0], MEASURED, at(102, 1.2), at(100, 0.93))
    assert numbers(NOW, missed) == []


def test_one_that_lost_to_the_current_config_twice_is_not() -> None:
    assert numbers(NOW, tried(1, OTHERS[0], PRUNED, at(102, 1.05), at(100, 1.04))) == []


SLOW = candidate_of({COUNT: 1, DELAY: 1_000_000})
QUICK = candidate_of({COUNT: 1, DELAY: 0})
FASTER_SLOW = candidate_of({COUNT: 2, DELAY: 1_000_000})
FASTER = candidate_of({COUNT: 2, DELAY: 0})


class Waiting(ProvingBench):
    """A lone request waits for all its queue delay; at a high load a batch is full before."""

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        delay_us = fields_of(self.candidate)[DELAY]
        return {"": 0.002 + int(delay_us or 0) / 1e6}  # type: ignore[call-overload]


class Jittery(ProvingBench):
    """The config with two instances is late where less than half of its capacity is asked."""

    def reading(self, level: float, seed: int) -> Measurement:
        late = self.candidate == FASTER and level < 0.5 * self.serves
        return super().reading(1.2 * self.serves if late else level, seed)


def proved(bench: ProvingBench, *candidates: Candidate, current: Candidate) -> Any:
    trials = [
        trial(bench, n, c, 0.98 * bench.capacity[c], 1.1 * bench.capacity[c])  # type: ignore[index]
        for n, c in enumerate(candidates)
    ]
    bench.serves = 0.0
    verdict = prove(bench, *trials, current=current)
    return verdict, Result.from_json(result_json(bench, verdict))


def test_a_current_config_that_misses_an_slo_for_a_lone_request_misses_it() -> None:
    bench = Waiting(spec_of(), {SLOW: 1000.0, QUICK: 900.0})
    verdict, result = proved(bench, SLOW, QUICK, current=SLOW)
    assert verdict.status is Status.IMPROVED  # though it sustains less
    assert verdict.winner.candidate == QUICK
    assert result.baseline is not None
    told = "the current config: one request at a time takes 1002 ms: misses p99_latency <= 40ms"
    assert verdict.reasons[0] == told
    assert result.baseline.credited_infer_per_s is None


def test_where_every_config_makes_a_lone_request_wait_none_meets_the_slos() -> None:
    bench = Waiting(spec_of(), {SLOW: 500.0, FASTER_SLOW: 1000.0})
    verdict, _ = proved(bench, SLOW, FASTER_SLOW, current=SLOW)
    assert verdict.status is Status.INFEASIBLE
    assert [reason.split(":")[0] for reason in verdict.reasons] == ["the current config", "trial 1"]
    assert bench.asked == []  # no round is spent on them


def test_a_winner_is_not_written_that_makes_a_lone_request_wait() -> None:
    bench = Waiting(spec_of(), {QUICK: 500.0, FASTER_SLOW: 1000.0, FASTER: 700.0})
    verdict, _ = proved(bench, QUICK, FASTER_SLOW, current=QUICK)
    assert verdict.status is Status.NOT_KNOWN
    assert any("takes 1002 ms: misses" in r for r in verdict.reasons)
    assert bench.soaks == []


def test_a_winner_is_not_written_that_misses_an_slo_at_a_tenth_of_its_load() -> None:
    bench = Jittery(spec_of(), {QUICK: 500.0, FASTER: 1000.0})
    verdict, _ = proved(bench, QUICK, FASTER, current=QUICK)
    assert verdict.status is Status.NOT_KNOWN
    assert any("a tenth of its load, it misses p99_latency <= 40ms" in r for r in verdict.reasons)
    tenths = [a.level for a in bench.idle if a.candidate == FASTER]
    assert tenths == [pytest.approx(100.0, rel=0.1)] * 2  # again, lest it was chance


def test_where_the_spec_lists_its_loads_no_lower_one_is_asked() -> None:
    spec = spec_of(workload={"arrivals": {"kind": "poisson", "rate": [400, 900]}})
    bench = Waiting(spec, {QUICK: 500.0, FASTER_SLOW: 1000.0, FASTER: 500.0})
    trials = trial(bench, 0, QUICK, 400, 900), trial(bench, 1, FASTER_SLOW, 400, 900)
    verdict = prove(bench, *trials, current=QUICK)
    assert verdict.status is Status.IMPROVED
    assert bench.idle == []


def test_a_queue_delay_is_not_put_back_where_a_lone_request_would_wait_for_it() -> None:
    """With many requests it makes no difference, so that a simpler file would have it again."""
    bench = Waiting(spec_of(), {SLOW: 500.0, QUICK: 500.0, FASTER: 1000.0, FASTER_SLOW: 1000.0})
    verdict, _ = proved(bench, SLOW, FASTER, current=SLOW)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner.candidate == FASTER
