"""Two configs compared in the rounds that both were measured in."""

from __future__ import annotations

import pytest
from builders.measurements import P99_40MS, synthetic_measurement

from tuner.confirm.gain import gain, readings
from tuner.confirm.rounds import Contender, Entrant, Round
from tuner.errors import TrialError
from tuner.score.point import judge_point
from tuner.score.ratio import ERROR, two_sample_ratio, unequal_ratio
from tuner.space.candidate import Candidate
from tuner.spec.metrics import GPU_MEMORY, P99_LATENCY
from tuner.spec.slo import Goal, Objective

GOODPUT = Objective.goodput()
LATENCY = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
MEMORY = Objective(Goal.MINIMIZE, GPU_MEMORY, 300.0, "minimize gpu_memory at 300/s")


def at_one_load(*p99_ms: float, level: float = 300.0, memory: int | None = None) -> Contender:
    """One round for each p99, measured at one load."""
    rounds = [
        Round((judge_point([P99_40MS], m),))
        for m in (synthetic_measurement(level, 1e3 * ms, gpu_memory=memory) for ms in p99_ms)
    ]
    return Contender(Entrant(Candidate(), level), rounds)


def test_a_minimised_metric_is_better_where_it_is_less() -> None:
    found = gain(at_one_load(10.0, 20.0), at_one_load(20.0, 40.0), LATENCY, ERROR / 2)
    assert found.ratio.estimate == pytest.approx(2.0)
    assert found.means == pytest.approx((200e6**0.5, 800e6**0.5))


def test_capacity_is_better_where_it_is_more() -> None:
    found = gain(at_one_load(30.0, level=300.0), at_one_load(30.0, level=200.0), GOODPUT, ERROR / 2)
    assert found.ratio.estimate == pytest.approx(1.5)
    assert found.means == pytest.approx((300.0, 200.0))


def test_without_a_common_round_there_is_nothing_to_compare() -> None:
    for one, other in ((at_one_load(), at_one_load(30.0)), (at_one_load(30.0), at_one_load())):
        assert gain(one, other, GOODPUT, ERROR / 2) is None
        assert gain(one, other, LATENCY, ERROR / 2) is None


def test_only_common_rounds_count() -> None:
    found = gain(at_one_load(10.0, 20.0, 1.0), at_one_load(20.0, 40.0), LATENCY, ERROR / 2)
    assert found.ratio.estimate == pytest.approx(2.0)
    assert gain(at_one_load(10.0), at_one_load(50.0, 30.0), LATENCY, ERROR / 2) is None


def test_a_latency_of_a_config_that_never_met_the_slos_is_nothing_to_be_better_than() -> None:
    assert gain(at_one_load(10.0, 10.0), at_one_load(50.0, 60.0), LATENCY, ERROR / 2) is None
    once = gain(at_one_load(10.0, 10.0), at_one_load(50.0, 30.0), LATENCY, ERROR / 2)
    assert once is not None


def test_a_capacity_is_compared_with_one_that_never_met_the_slos() -> None:
    """Less than the lowest load that it missed them at."""
    found = gain(at_one_load(30.0), at_one_load(90.0, level=100.0), GOODPUT, ERROR / 2)
    assert found.ratio.estimate == pytest.approx(3.0)


def test_a_metric_is_read_in_every_round_or_there_is_no_result() -> None:
    assert readings(at_one_load(10.0, 20.0, memory=5), MEMORY) == [5.0, 5.0]
    for unread in (None, 0):
        with pytest.raises(TrialError, match="gpu_memory was not measured in every round"):
            readings(at_one_load(10.0, memory=unread), MEMORY)


def outclassed(*capacities: float) -> Contender:
    contender = at_one_load(30.0)
    contender.rounds = [r for c in capacities for r in at_one_load(30.0, level=c).rounds]
    contender.outclassed = True
    return contender


def test_over_one_round_of_an_outclassed_config_all_rounds_of_the_winner_count() -> None:
    own = at_one_load(30.0)
    own.rounds = [r for c in (900.0, 1000.0, 1111.1) for r in at_one_load(30.0, level=c).rounds]
    found = gain(own, outclassed(100.0), GOODPUT, ERROR / 2)
    assert found.rounds == (3, 1)
    assert (found.means, found.at_least) == (None, True)  # one rough round is no figure to print
    # a normal interval of a deviation of 0.15 a round, for two looks: 2.241 * 0.15 * sqrt(4 / 3)
    assert found.ratio.low == pytest.approx(10.0 / 1.474, rel=1e-3)
    assert found.ratio.high == pytest.approx(10.0 * 1.474, rel=1e-3)


def test_rounds_that_vary_more_than_is_taken_for_granted_widen_the_interval() -> None:
    own = at_one_load(30.0)
    own.rounds = [r for c in (700.0, 1000.0, 1430.0) for r in at_one_load(30.0, level=c).rounds]
    found = gain(own, outclassed(100.0), GOODPUT, ERROR / 2)
    assert found.ratio == two_sample_ratio([700.0, 1000.0, 1430.0], [100.0], ERROR / 2)


@pytest.mark.parametrize(("more", "fewer"), [([], [1.0]), ([1.0], [])])
def test_a_ratio_of_nothing_is_refused(more: list[float], fewer: list[float]) -> None:
    with pytest.raises(ValueError, match="a value of both"):
        unequal_ratio(more, fewer, 0.1)
