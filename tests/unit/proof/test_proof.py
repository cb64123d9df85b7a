"""From the trials of a search to a verdict: which config, by which figures.

For what reasons is told in `golden/proofs.txt` and `golden/messages/proofs-hindered.txt`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from builders.events import Watching
from builders.measurements import P99_40MS, synthetic_measurement
from builders.messages_proofs import bench_of
from builders.proof_cases import CASES
from builders.proving import (
    CURRENT,
    OTHER,
    THIRD,
    ProvingBench,
    lost_at,
    lost_without_overload,
    prove,
    result,
    searched,
    spec_of,
    trial,
)
from builders.reasons import said, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import NothingToSearchError, TooManyFailedTrialsError
from tuner.measurement.measurement import Measurement
from tuner.record.confirmation import Repeat
from tuner.record.proved import ProvedConfig
from tuner.record.remedies import remedies
from tuner.record.result_schema import Gain
from tuner.record.status import Status
from tuner.score.judge import SloOutcome, SloResult
from tuner.score.judge import Verdict as OfSlo
from tuner.score.point import judge_point, score_points
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate


def gain_in(gain: Gain | None) -> Gain:
    assert gain is not None
    return gain


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_configs_decides_which_is_written(name: str) -> None:
    """Why is told in `tests/golden/proofs.txt`."""
    case = CASES[name]
    bench, verdict = case.proved()
    winner = verdict.winner and verdict.winner.candidate
    assert (verdict.status, winner) == (case.status, case.winner)
    assert case.rounds in (None, bench.measured(CURRENT))
    stored = result(bench, verdict)
    assert (stored.winner is not None) == (stored.status is Status.IMPROVED)
    assert bench.soaks == [] or bench.measured(bench.soaks[0].candidate) > 0
    left_open = verdict.status is Status.NOT_KNOWN and verdict.gain is not None
    assert (verdict.to_know is not None) <= left_open


@pytest.mark.parametrize(
    ("name", "compared"),
    [
        ("twice as much", "capacity"),
        ("loads are listed", "throughput"),
        ("a latency is minimised", "p99_latency"),
    ],
)
def test_what_was_compared_is_named(name: str, compared: str) -> None:
    assert gain_in(CASES[name].proved()[1].gain).compared == compared


def test_inconclusive_gain_is_reported_with_the_rounds_it_would_take() -> None:
    _, verdict = CASES["4% in the noise"].proved()
    assert verdict.to_know is not None
    assert verdict.to_know.rounds >= 1
    ratio = gain_in(verdict.gain).ratio
    assert ratio.low < 1.02
    assert ratio.high > 1.10


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(["twice as much", "what lasts is still a gain", "nothing is better"]),
    st.floats(0.0, 1.0),
)
def test_a_proof_that_was_stopped_anywhere_goes_on_as_if_it_had_not_been(
    name: str, share: float
) -> None:
    case, rows, new = CASES[name], list[Repeat](), list[Repeat]()
    _, uninterrupted = case.proved(record=rows.append)
    kept = tuple(rows[: round(share * len(rows))])
    bench, again = case.proved(stored=kept, record=new.append)
    assert again == uninterrupted
    assert len(new) == len(bench.loads) + len(bench.soaks) == len(rows) - len(kept)


# -- better


def test_the_winner_is_credited_with_what_it_sustained_and_capacities_are_compared() -> None:
    bench = bench_of(500.0, 1000.0)
    verdict = prove(bench)
    assert verdict.status is Status.IMPROVED
    stored = result(bench, verdict)
    gain = gain_in(stored.gain)
    assert (gain.compared, stored.objective) == ("capacity", "maximize goodput")
    assert gain.ratio.estimate == pytest.approx(2, rel=0.02)
    assert gain.ratio.low < 2.0 < gain.ratio.high
    assert gain.means is not None
    assert gain.means.best / gain.means.current == pytest.approx(gain.ratio.estimate)
    assert stored.winner is not None
    assert stored.winner.sustained is not None
    credited = stored.winner.credited_infer_per_s
    assert credited is not None
    assert 0.85 * 1000.0 < credited <= 0.97 * stored.winner.sustained.throughput_infer_per_s * 1.001


def test_beside_a_config_three_times_behind_one_round_and_the_soak_are_enough() -> None:
    """Two minutes went into a round of it, of which only `far less` was told."""
    bench = bench_of(100.0, 1000.0)
    verdict = prove(bench)
    assert verdict.status is Status.IMPROVED
    stored = result(bench, verdict)
    assert CURRENT not in {candidate for candidate, _ in bench.levels}
    assert bench.measured(OTHER) == 1
    assert stored.baseline is not None
    assert stored.baseline.from_search
    assert stored.winner is not None
    assert stored.winner.sustained is not None
    assert stored.winner.soak is not None
    assert stored.winner.soak.credited_level is not None
    gain = gain_in(stored.gain)
    missed_per_s = 110.0
    assert gain.ratio.low == pytest.approx(stored.winner.soak.credited_level / missed_per_s)
    assert gain.at_least


def test_where_the_first_round_shows_a_config_far_better_both_are_soaked_next() -> None:
    bench = bench_of(100.0, 1000.0)
    verdict = prove(bench, lost_without_overload(bench), *searched(bench, OTHER))
    assert verdict.status is Status.IMPROVED
    assert (bench.measured(CURRENT), bench.measured(OTHER)) == (1, 1)
    assert [candidate for candidate, _ in bench.soaked] == [OTHER, CURRENT]
    gain = gain_in(verdict.gain)
    assert gain.at_least
    assert 6.0 < gain.ratio.low < 10.0


def test_current_config_that_sustains_the_winners_load_after_bad_rounds_stays() -> None:
    """Two of its servers were bad ones: that of the search and that of the first round."""

    class Bad(ProvingBench):
        def luck(self) -> float:
            return 1.0 if (CURRENT, True) in self.deployed[:-1] else 0.1

    bench = Bad(spec_of(), {CURRENT: 1000.0, OTHER: 1000.0})
    verdict = prove(bench, lost_without_overload(bench), *searched(bench, OTHER))
    assert (bench.measured(CURRENT), bench.soaked[-1][0]) == (1, CURRENT)
    assert verdict.status is Status.NOT_KNOWN


def test_current_config_that_was_only_saturated_sustains_at_most_what_it_answered() -> None:
    bench = bench_of(50.0, 1000.0)
    overloaded = trial(bench, 0, CURRENT, 90)
    looked_at = replace(overloaded, saturated=Saturated(16, 52.0, 52.5))
    verdict = prove(bench, looked_at, *searched(bench, OTHER))
    assert verdict.status is Status.IMPROVED
    assert verdict.baseline is not None
    assert verdict.winner is not None
    at_most, credited = verdict.baseline.at_most_infer_per_s, verdict.winner.credited_infer_per_s
    assert (verdict.baseline.credited_infer_per_s, at_most) == (None, pytest.approx(52.5, rel=0.01))
    assert credited is not None
    assert gain_in(verdict.gain).at_least
    assert gain_in(verdict.gain).ratio.low == pytest.approx(credited / 52.5, rel=0.01)
    assert bench.measured(OTHER) == 1


def test_each_round_is_reported_once_under_a_phase() -> None:
    watching = Watching()
    prove(bench_of(500.0, 1000.0), events=watching)
    assert len(set(watching.rounds)) == len(watching.rounds) >= 6
    assert len(watching.phases) == 4


@pytest.mark.parametrize("seed", [0, 3])
def test_proof_and_search_use_different_arrivals_and_so_does_each_round(seed: int) -> None:
    for arrivals, first in ((None, seed * 1000 + 500_000), (1_234_567_890, 1_234_567_890)):
        bench = bench_of(500.0, 1000.0, changes={"search": {"seed": seed}})
        prove(bench, arrivals=arrivals)
        seeds = {c: {a.seed for a in bench.loads if a.candidate == c} for c in (CURRENT, OTHER)}
        assert seeds[CURRENT] == seeds[OTHER]
        assert sorted(seeds[OTHER]) == list(range(first, first + len(seeds[OTHER])))


# -- kept


def test_another_one_that_may_come_near_is_measured_all_the_same() -> None:
    """The nearest of those that lost was far behind, but of one more nothing shows that."""
    bench = bench_of(1000.0, 200.0, 800.0)
    near = lost_at(bench, 2, THIRD, 1020)
    assert near.score is not None
    near = replace(near, score=replace(near.score, violation=99.0))
    prove(bench, *searched(bench, CURRENT), lost_at(bench, 1, OTHER, 1020), near)
    assert bench.loads != []


# -- what the current config is known to sustain

CLOSED = {"arrivals": {"kind": "closed", "concurrency": [6]}}
P99_200MS = ["p99_latency <= 200ms"]


class Clients(ProvingBench):
    """Six clients of a slow model: as many answers as ``answers`` says, by config."""

    answers_of: ClassVar[dict[Candidate, int]] = {}

    def reading(self, level: float, seed: int) -> Measurement:
        few = self.answers_of[self.candidate]
        rate = 96.7 if self.candidate == CURRENT else 93.1
        measurement = synthetic_measurement(
            level, 64e3, served=rate, count=few, arrivals=self.arrivals
        )
        return replace(measurement, seed=seed)


def of_clients(bench: ProvingBench) -> tuple[Trial, ...]:
    trials = []
    for number, (candidate, few) in enumerate(((OTHER, 312), (CURRENT, 290))):
        measurement = synthetic_measurement(6.0, 64e3, count=few, arrivals=bench.arrivals)
        points = (judge_point(bench.spec.slos, measurement),)
        score = score_points(bench.spec.objective, points)
        trials.append(Trial(number, candidate, TrialState.MEASURED, points, score))
    return tuple(trials)


def test_current_config_with_too_few_answers_is_measured_again_before_anything_is_compared() -> (
    None
):
    """It had 290 of 299 answers, and was taken for one that holds no load."""
    bench = Clients(spec_of(workload=CLOSED, slo=P99_200MS), {CURRENT: 9.0, OTHER: 9.0})
    bench.answers_of = {CURRENT: 320, OTHER: 312}
    verdict = prove(bench, *of_clients(bench))
    assert bench.measured(CURRENT) >= 3
    assert verdict.status is Status.KEPT
    assert verdict.baseline is not None
    assert verdict.baseline.credited_infer_per_s == pytest.approx(96.7)


def test_it_is_not_known_what_is_better_where_the_current_config_never_has_enough_answers() -> None:
    bench = Clients(spec_of(workload=CLOSED, slo=P99_200MS), {CURRENT: 9.0, OTHER: 9.0})
    bench.answers_of = {CURRENT: 290, OTHER: 312}
    verdict = prove(bench, *of_clients(bench))
    assert verdict.status is Status.NOT_KNOWN
    assert "too few answers (290 of 299)" in texts(verdict.why)[0]
    assert verdict.baseline is not None
    assert verdict.baseline.outcome is SloOutcome.TOO_FEW


def test_a_search_in_which_a_config_has_too_few_answers_does_not_say_that_none_meets_the_slos() -> (
    None
):
    bench = Clients(spec_of(workload=CLOSED, slo=P99_200MS), {CURRENT: 9.0, OTHER: 9.0})
    few = of_clients(bench)[1]
    verdict = prove(bench, few, replace(few, number=2, candidate=OTHER))
    assert verdict.status is Status.NOT_KNOWN
    assert "Trial 1 may meet every SLO: too few answers (290 of 299)" in texts(verdict.why)[0]


def test_current_config_that_was_tried_only_above_its_capacity_is_measured_at_lower_loads() -> None:
    """It was told as `Better: at most 15/s -> 5.24/s`: it was never tried at 5/s."""
    bench = bench_of(1400.0, 550.0)
    above = trial(bench, 0, CURRENT, 1650.0)
    assert above.outcome is SloOutcome.MISSED
    verdict = prove(bench, above, *searched(bench, OTHER))
    assert verdict.status is Status.KEPT
    assert bench.measured(CURRENT) >= 3


@settings(deadline=None, max_examples=60)
@given(
    st.floats(200.0, 1000.0),
    st.floats(0.2, 8.0),
    st.floats(1.02, 4.0),
    st.floats(0.4, 1.0),
    st.booleans(),
)
def test_what_is_called_better_is_never_a_lower_load(
    current: float, ratio: float, tried: float, lasting: float, soaked: bool
) -> None:
    changes = {} if soaked else {"confirm": {"soak": 0}}
    bench = bench_of(current, ratio * current, changes=changes, shares={OTHER: lasting})
    verdict = prove(bench, trial(bench, 0, CURRENT, tried * current), *searched(bench, OTHER))
    if verdict.status is not Status.IMPROVED:
        return
    assert verdict.baseline is not None
    assert verdict.winner is not None
    before = verdict.baseline.credited_infer_per_s or verdict.baseline.at_most_infer_per_s
    after = verdict.winner.credited_infer_per_s
    assert before is not None
    assert after is not None
    assert before < after
    assert ratio > 1.0


# -- what refuses a winner


def test_answers_that_change_refuse_the_winner() -> None:
    bench = bench_of(500.0, 1000.0)
    bench.answer = {OTHER: 2.0}
    verdict = prove(bench)
    assert verdict.status is Status.NOT_KNOWN
    assert "confirm.tolerance" in remedies(verdict.why)[0]
    assert bench.soaks == []


# -- infeasible, and nothing to compare


def test_a_config_is_not_kept_where_every_other_one_failed() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    with pytest.raises(TooManyFailedTrialsError, match="out of memory"):
        prove(bench)


def test_a_config_is_not_kept_where_no_other_one_was_tried() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    with pytest.raises(NothingToSearchError, match="nothing was compared"):
        prove(bench, *searched(bench, CURRENT))


def test_a_run_without_any_measurement_has_no_baseline() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    verdict = prove(bench, trial(bench, 1, OTHER))
    assert verdict.status is Status.INFEASIBLE
    assert verdict.baseline is None


# -- the load generator's limit


def test_a_winner_that_sustains_all_that_can_be_sent_is_written_as_at_least_that() -> None:
    """The load generator is no reason to refuse it, and it is told from what is known exactly."""
    bench = bench_of(500.0, 4000.0, sends=1400.0)
    limited = replace(trial(bench, 1, OTHER, 1350), limit=said("all that can be sent"))
    verdict = prove(bench, *searched(bench, CURRENT), limited)
    assert verdict.status is Status.IMPROVED
    stored = result(bench, verdict)
    assert stored.winner is not None
    assert stored.baseline is not None
    assert (stored.winner.at_least, stored.baseline.at_least) == (True, False)
    levels = [level for candidate, level in bench.levels if candidate == OTHER]
    assert sum(level > 1400.0 for level in levels) <= 1  # and then never again


def test_of_two_that_sustain_all_that_can_be_sent_it_is_not_known_which_is_better() -> None:
    bench = bench_of(3000.0, 4000.0, sends=1500.0, noise=0.01)
    trials = trial(bench, 0, CURRENT, 1200), trial(bench, 1, OTHER, 1350)
    verdict = prove(bench, *trials)
    assert verdict.status is Status.NOT_KNOWN
    stored = result(bench, verdict)
    assert stored.baseline is not None
    assert stored.baseline.at_least is True
    assert "workload.cpus" in remedies(verdict.why)[0]


# -- resuming


# -- the current config's own figures


def test_the_current_configs_slo_is_what_its_worst_round_says() -> None:
    """One round passes with a small margin, the others have too few answers for a verdict."""
    enough, few = synthetic_measurement(100, 39e3), synthetic_measurement(1, 20e3, count=50)
    assert verdicts_of([few, enough, few]) == [OfSlo.NOT_ENOUGH_DATA]
    refused = synthetic_measurement(100, 5e3, failed=500)
    assert verdicts_of([synthetic_measurement(100, 39e3), refused]) == [OfSlo.FAIL]


def test_equal_verdicts_report_the_least_margin() -> None:
    verdicts = slo_of([synthetic_measurement(100, p99_us) for p99_us in (20e3, 30e3, 10e3)])
    assert [s.value for s in verdicts] == [30e3]


def verdicts_of(measurements: list[Measurement]) -> list[OfSlo]:
    return [s.verdict for s in slo_of(measurements)]


def slo_of(measurements: list[Measurement]) -> tuple[SloResult, ...]:
    return ProvedConfig.of(CURRENT, [judge_point([P99_40MS], m) for m in measurements]).slo
