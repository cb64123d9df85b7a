"""From trials to a verdict: which config, by which numbers, and for what reasons."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.emulated import a_session
from builders.measurements import P99_40MS, synthetic_measurement
from builders.proving import (
    COUNT,
    CURRENT,
    OTHER,
    THIRD,
    ProvingBench,
    prove,
    result_json,
    spec_of,
    trial,
)

from tuner.errors import NothingToSearchError, TooManyFailedTrialsError
from tuner.measurement.measurement import Measurement
from tuner.programs.run import prove as step
from tuner.programs.run.outcome import Verdict
from tuner.programs.run.overloading import probe_overload
from tuner.report.headline import gain_text
from tuner.run.proved import ProvedConfig
from tuner.run.result_schema import Result
from tuner.run.status import Status, remedies
from tuner.score.capacity import saturated
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.steps.events import Silent
from tuner.steps.session import Deadline

AT_300 = "minimize p99_latency at 300/s"


def lost_at(bench: ProvingBench, number: int, candidate: Candidate, *levels: float) -> Trial:
    """A trial that lost the race at the first of ``levels``."""
    measured = trial(bench, number, candidate, *levels)
    score = score_points(bench.spec.objective, measured.points[:1])
    return replace(measured, state=TrialState.PRUNED, score=score)


class Rounds(Silent):
    def __init__(self) -> None:
        self.told: list[str] = []

    def round_over(self, what: str, sustained: Point) -> None:
        self.told.append(f"{what}: {sustained.measurement.load.level:.0f}")


def test_the_winner_is_credited_with_what_it_stood_and_capacities_are_compared() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 500.0, OTHER: 1000.0})
    verdict = prove(bench, trial(bench, 0, CURRENT, 490, 550), trial(bench, 1, OTHER, 980, 1100))
    assert verdict.status is Status.IMPROVED
    result = result_json(bench, verdict)
    assert result["gain"]["compared"] == "capacity"
    gain = result["gain"]["ratio"]["estimate"]
    assert gain == pytest.approx(2, rel=0.02)
    means = result["gain"]["means"]
    assert means["best"] / means["current"] == pytest.approx(gain)
    (soak,) = result["winner"]["soak"]["tried"]
    assert result["winner"]["credited_infer_per_s"] == pytest.approx(
        0.97 * soak["measurement"]["throughput_infer_per_s"]
    )
    assert result["objective"] == "maximize goodput"


def test_an_outclassed_config_was_measured_once_and_the_gain_over_it_is_a_lower_bound() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 980, 1100))
    result = Result.from_json(result_json(bench, verdict))
    assert result.baseline is not None
    assert result.baseline.from_search
    assert 90 < result.baseline.credited_infer_per_s < 110  # type: ignore[operator]
    assert result.gain is not None
    assert re.fullmatch(r"at least [5-9]\.\d+x", gain_text(result.gain))
    # one round of the winner is enough: the soak tests what is claimed
    assert {r.measurement.seed for r in verdict.winner.rounds} == {bench.seeds[0]}  # type: ignore[union-attr]


@pytest.mark.parametrize("levels", [(1000,), (1000, 98)])
def test_a_current_config_that_only_lost_the_race_is_measured_where_it_should_stand(
    levels: tuple[float, ...],
) -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    lost = lost_at(bench, 1, CURRENT, *levels)
    verdict = prove(bench, trial(bench, 0, OTHER, 980, 1100), lost)
    assert verdict.status is Status.IMPROVED
    result = result_json(bench, verdict)
    assert result["gain"]["ratio"]["estimate"] == pytest.approx(10, rel=0.02)
    assert result["baseline"]["from_search"]  # one rough round is no more
    assert 90 < result["baseline"]["credited_infer_per_s"] <= 100
    assert max(level for candidate, level in bench.levels if candidate == CURRENT) < 130


def test_a_closed_loop_that_only_lost_the_race_is_measured_where_it_should_stand() -> None:
    spec = spec_of(workload={"arrivals": {"kind": "closed"}})
    bench = ProvingBench(spec, {CURRENT: 4.0, OTHER: 100.0}, weather=0.0)
    lost = lost_at(bench, 1, CURRENT, 102)
    verdict = prove(bench, trial(bench, 0, OTHER, 100, 104), lost)
    assert verdict.status is Status.IMPROVED
    result = result_json(bench, verdict)
    assert result["gain"]["ratio"]["estimate"] == pytest.approx(25, rel=0.05)


def test_over_a_current_config_that_lost_and_meets_the_slos_nowhere_the_least_gain_is_told() -> (
    None
):
    bench = ProvingBench(spec_of(), {CURRENT: 0.05, OTHER: 1000.0})
    lost = lost_at(bench, 1, CURRENT, 1000)
    verdict = prove(bench, trial(bench, 0, OTHER, 980, 1100), lost)
    assert verdict.status is Status.IMPROVED
    result = result_json(bench, verdict)
    assert result["gain"]["at_least"] is True
    assert result["baseline"]["credited_infer_per_s"] is None


@pytest.mark.parametrize(
    ("changes", "compared"),
    [
        ({"workload": {"arrivals": {"kind": "poisson", "rate": [90, 900]}}}, "throughput"),
        ({"objective": AT_300}, "p99_latency"),
    ],
)
def test_what_was_compared_is_named(changes: dict[str, Any], compared: str) -> None:
    bench = ProvingBench(spec_of(**changes), {CURRENT: 100.0, OTHER: 1000.0})
    levels = (300.0,) if "objective" in changes else (90.0, 900.0)
    verdict = prove(bench, trial(bench, 0, CURRENT, *levels), trial(bench, 1, OTHER, *levels))
    assert verdict.status is Status.IMPROVED
    assert result_json(bench, verdict)["gain"]["compared"] == compared


def test_a_current_config_that_cannot_be_served_does_not_stand_in_the_way() -> None:
    bench = ProvingBench(spec_of(objective=AT_300), {OTHER: 1000.0})
    verdict = prove(bench, trial(bench, 0, CURRENT, 300), trial(bench, 1, OTHER, 300))
    assert verdict.reasons[0] == "instances 2: every SLO met in each of 3 rounds"
    # and yet it is not written: nobody can say that it answers what the current one would
    assert verdict.status is Status.NOT_KNOWN
    assert verdict.reasons[1:] == ("instances 2: out of memory",)


def test_a_simpler_closed_loop_is_measured_with_about_the_clients_that_were_stood() -> None:
    spec = spec_of(workload={"arrivals": {"kind": "closed"}})
    found = candidate_of({COUNT: 2, "max_batch_size": 8})
    simpler = candidate_of({COUNT: 2, "max_batch_size": None})
    bench = ProvingBench(spec, {CURRENT: 4.0, found: 17.0, simpler: 17.0}, weather=0.0)
    verdict = prove(bench, trial(bench, 0, CURRENT, 4, 5), trial(bench, 1, found, 17, 18))
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == simpler
    assert {level for c, level in bench.levels if c == simpler} == {16.0, 17.0, 18.0}


def test_a_simpler_config_that_triton_would_not_load_is_not_tried() -> None:
    found = candidate_of({COUNT: 2, "max_batch_size": 8})
    simpler = candidate_of({COUNT: 2, "max_batch_size": None})
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, found: 1000.0, simpler: 1000.0})
    session = a_session(bench, bench.spec, CURRENT)
    space: Any = session.job.space
    space.violations = lambda candidate: [candidate] if candidate == simpler else []
    trials = trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, found, 980, 1100)
    verdict = step.prove(session, trials)
    assert verdict.winner is not None
    assert verdict.winner.candidate == found
    assert simpler not in {candidate for candidate, _ in bench.deployed}


def test_each_round_of_a_config_and_of_a_change_undone_is_told_once() -> None:
    found = candidate_of({COUNT: 2, "max_batch_size": 8})
    simpler = candidate_of({COUNT: 2, "max_batch_size": None})
    capacity = {CURRENT: 100.0, found: 1000.0, simpler: 1000.0, candidate_of({COUNT: 1}): 100.0}
    bench, rounds = ProvingBench(spec_of(), capacity), Rounds()
    first, second = trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, found, 980, 1100)
    verdict = prove(bench, first, second, events=rounds)
    assert verdict.winner is not None
    assert verdict.winner.candidate == simpler
    rows = [line.rsplit(": ", 1) for line in rounds.told]
    assert [what for what, _ in rows[:3]] == [
        "round 1, current config",
        "round 1, instances 2, max batch 8",
        "round 1, the winner with no max batch",
    ]
    assert float(rows[1][1]) == pytest.approx(float(rows[2][1]), rel=0.005)
    assert len(set(rounds.told)) == len(rounds.told)


def test_a_gain_that_is_left_open_is_not_called_kept() -> None:
    """Whether a config is better is not known: that has an exit code of its own."""
    bench = ProvingBench(spec_of(), {CURRENT: 980.0, OTHER: 1000.0}, noise=0.03, seed=2)
    verdict = prove(bench, trial(bench, 0, CURRENT, 930), trial(bench, 1, OTHER, 980))
    assert verdict.status is Status.NOT_KNOWN
    assert (Status.KEPT.exit_code, verdict.status.exit_code) == (0, 11)
    assert "neither proves nor rules out" in verdict.reasons[0]


def test_a_kept_config_has_the_numbers_of_being_measured_again() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 1000.0, OTHER: 1000.0})
    lucky = trial(bench, 1, OTHER, 980)
    bench.capacity = {CURRENT: 940.0, OTHER: 1000.0}
    unlucky = trial(bench, 0, CURRENT, 930)
    bench.capacity = {CURRENT: 1000.0, OTHER: 1000.0}
    verdict = prove(bench, unlucky, lucky)
    assert verdict.status is Status.KEPT
    assert verdict.baseline is not None
    assert len(verdict.baseline.rounds) == 3
    assert {c for c, _ in bench.levels} == {CURRENT, OTHER}
    assert result_json(bench, verdict)["baseline"]["credited_infer_per_s"] >= 0.97 * 0.9 * 950


def test_answers_that_change_refuse_the_winner() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    bench.answer = {OTHER: 2.0}
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 980, 1100))
    assert verdict.status is Status.NOT_KNOWN
    assert "It changes answers" in verdict.reasons[-1]


def test_the_rounds_of_a_confirmation_have_the_arrivals_of_their_run() -> None:
    for arrivals, first in ((1_234_567_890, 1_234_567_890), (None, 500_000)):
        bench = ProvingBench(spec_of(), {CURRENT: 500.0, OTHER: 1000.0})
        trials = trial(bench, 0, CURRENT, 490, 550), trial(bench, 1, OTHER, 980, 1100)
        step.prove(a_session(bench, bench.spec, CURRENT, arrivals=arrivals), trials)
        assert set(bench.seeds) == {first, first + 1, first + 2}


def test_a_round_that_the_current_config_did_not_stand_gives_it_no_goodput() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 500.0, OTHER: 1000.0})
    trials = trial(bench, 0, CURRENT, 490, 550), trial(bench, 1, OTHER, 980, 1100)
    rounds = iter([500.0, 500.0, 1.0, 1.0, 500.0])  # a bad one gets a second server
    bench.capacity = lambda c: next(rounds, 500.0) if c == CURRENT else 1000.0
    verdict = prove(bench, *trials)
    baseline = result_json(bench, verdict)["baseline"]
    assert 400 < baseline["credited_infer_per_s"] <= 500
    assert met_in(baseline) == 5  # of six: the bad round leaves it open, and is not the next
    assert {s["verdict"] for s in baseline["slo"]} == {"not enough data"}


def test_the_current_configs_slo_is_what_its_worst_round_says() -> None:
    """One round passes with a small margin, the others have too few answers for a verdict."""
    enough, few = synthetic_measurement(100, 39e3), synthetic_measurement(1, 20e3, count=50)
    side = side_of([few, few, enough, few, few, few])
    assert met_in(side) == 1
    assert [s["verdict"] for s in side["slo"]] == ["not enough data"]


def test_a_round_that_failed_by_refused_requests_is_not_hidden_by_its_latency() -> None:
    refused = synthetic_measurement(100, 5e3, failed=500)
    side = side_of([synthetic_measurement(100, 39e3), refused])
    assert met_in(side) == 1
    assert [s["verdict"] for s in side["slo"]] == ["fail"]


def test_of_equal_verdicts_the_one_with_the_least_margin_is_told() -> None:
    side = side_of([synthetic_measurement(100, p99_us) for p99_us in (20e3, 30e3, 10e3)])
    assert [s["value"] for s in side["slo"]] == [30e3]


def met_in(side: dict[str, Any]) -> int:
    """How many rounds met every SLO."""
    return sum(Point.from_json(point).passed for point in side["rounds"])


def side_of(measurements: list[Measurement]) -> dict[str, Any]:
    """What the result says of a current config that was measured so."""
    points = tuple(judge_point([P99_40MS], m) for m in measurements)
    bench = ProvingBench(spec_of(), {})
    verdict = Verdict(Status.KEPT, (), ProvedConfig.of(CURRENT, points))
    told = result_json(bench, verdict)["baseline"]
    assert isinstance(told, dict)
    return told


def test_the_confirmation_never_sees_the_searchs_arrivals_and_each_round_has_its_own() -> None:
    for seed in (0, 3):
        spec = spec_of(search={"seed": seed})
        bench = ProvingBench(spec, {CURRENT: 500.0, OTHER: 1000.0})
        prove(bench, trial(bench, 0, CURRENT, 490, 550), trial(bench, 1, OTHER, 980, 1100))
        rounds = [a for a in bench.asked if a.server <= 7]  # two configs, three times, after a look
        by_config = {
            config: list(dict.fromkeys(a.seed for a in rounds if a.candidate == config))
            for config in (CURRENT, OTHER)
        }
        first = seed * 1000 + 500_000
        assert by_config == {c: [first, first + 1, first + 2] for c in (CURRENT, OTHER)}
        assert min(bench.seeds) > (seed + 1) * 1000


@pytest.mark.parametrize(
    ("objective", "levels", "worth_it", "too_little"),
    [("goodput", (1000,), 1030.0, 1015.0), (AT_300, (300.0,), 1030.0, 1015.0)],
)
def test_only_what_looks_better_by_a_worthwhile_gain_is_measured_again(
    objective: str, levels: tuple[float, ...], worth_it: float, too_little: float
) -> None:
    changes = {} if objective == "goodput" else {"objective": objective}
    for other, again in ((worth_it, True), (too_little, False), (900.0, False)):
        bench = ProvingBench(spec_of(**changes), {CURRENT: 1000.0, OTHER: other}, weather=0.0)
        at = levels if changes else (998.0, 1040.0)
        scale = 1.0 if changes else other / 1000.0
        trials = (
            trial(bench, 0, CURRENT, *at),
            trial(bench, 1, OTHER, *(level * scale for level in at)),
        )
        verdict = prove(bench, *trials)
        assert bool(bench.asked) is again
        if not again:
            assert verdict.status is Status.KEPT
            assert "No config tried is better" in verdict.reasons[0]


def test_a_config_is_not_kept_where_every_other_one_failed() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    with pytest.raises(TooManyFailedTrialsError, match=r"config tried failed.*out of memory"):
        prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 98))


def test_a_config_is_not_kept_where_no_other_one_was_tried() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    with pytest.raises(NothingToSearchError, match="nothing was compared"):
        prove(bench, trial(bench, 0, CURRENT, 98, 110))


def test_an_infeasible_run_tells_that_every_other_config_failed() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    verdict = prove(bench, trial(bench, 0, CURRENT, 200), trial(bench, 1, OTHER, 98))
    assert verdict.status is Status.INFEASIBLE
    assert "failed (1), the last one: out of memory" in verdict.reasons[1]


def test_a_kept_config_was_compared_with_those_that_did_not_fail() -> None:
    """Some of the space fails, some is no better: both is told."""
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 90.0})
    fails = trial(bench, 2, candidate_of({COUNT: 3}), 98)
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 88), fails)
    assert verdict.status is Status.KEPT
    assert verdict.reasons[1] == "1 of 2 other configs tried failed, the last one: out of memory"


def test_what_looked_better_and_was_not_leaves_the_failures_told() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 100.0})
    fails = trial(bench, 2, candidate_of({COUNT: 3}), 98)
    looks = trial(ProvingBench(spec_of(), {OTHER: 200.0}), 1, OTHER, 190, 210)
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), looks, fails)
    assert verdict.status in (Status.KEPT, Status.NOT_KNOWN)
    assert verdict.reasons[-1].startswith("1 of 2 other configs tried failed")


def test_a_winner_beside_configs_that_failed_leaves_them_told() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 200.0})
    fails = trial(bench, 2, candidate_of({COUNT: 3}), 98)
    better = trial(bench, 1, OTHER, 190, 210)
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), better, fails)
    assert verdict.status is Status.IMPROVED
    assert verdict.reasons[-1] == "1 of 2 other configs tried failed, the last one: out of memory"


def test_a_load_generator_that_was_the_limit_is_told() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    limited = replace(trial(bench, 1, OTHER, 980), limit="the load generator could not keep up")
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), limited)
    (told,) = [r for r in verdict.reasons if "the load generator could not keep up" in r]
    assert told == (
        "Not every config was measured to its capacity: the load generator could not keep up"
    )


def test_of_several_limits_the_last_is_told() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0, THIRD: 900.0})
    first = replace(trial(bench, 1, OTHER, 980), limit="the first limit")
    second = replace(trial(bench, 2, THIRD, 880), limit="the second limit")
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), first, second)
    told = [r for r in verdict.reasons if "limit" in r]
    assert told == ["Not every config was measured to its capacity: the second limit"]


def test_a_miss_at_the_lowest_rate_that_can_be_judged_is_told_as_that() -> None:
    """A lower rate might be met: no window is long enough to see it."""
    spec = spec_of(workload={"max_window": "10.5s", "window": "3s"})
    bench = ProvingBench(spec, {CURRENT: 0.5, OTHER: 0.5})
    verdict = prove(bench, trial(bench, 0, CURRENT, 1.0), trial(bench, 1, OTHER, 1.0))
    assert verdict.status is Status.INFEASIBLE
    assert "misses p99_latency <= 40ms at 1/s. At lower rates max_window" in verdict.reasons[0]


def test_the_nearest_miss_is_named_with_what_it_missed_last() -> None:
    spec = spec_of(slo=["p99_latency <= 40ms", "p50_latency <= 60ms"])
    bench = ProvingBench(spec, {CURRENT: 100.0, OTHER: 100.0})
    far, near = trial(bench, 0, CURRENT, 130), trial(bench, 1, OTHER, 120, 108)
    failed = Trial(2, THIRD, TrialState.FAILED, reason="out of memory")
    verdict = prove(bench, far, near, failed)
    assert verdict.status is Status.INFEASIBLE
    assert verdict.reasons[0] == (
        "No config measured meets every SLO. "
        "The nearest was trial 1, which misses p99_latency <= 40ms."
    )


def test_a_run_without_any_measurement_says_so() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 100.0})
    verdict = prove(bench, Trial(1, OTHER, TrialState.FAILED, reason="out of memory"))
    assert verdict.status is Status.INFEASIBLE
    assert verdict.reasons[0] == "No trial gave a measurement."
    assert verdict.baseline is None


@pytest.mark.parametrize(("capacity", "missed", "again"), [(750.0, 780.0, 0), (850.0, 884.0, 1)])
def test_a_change_without_which_the_search_saw_an_slo_missed_far_below_is_not_undone_again(
    capacity: float, missed: float, again: int
) -> None:
    both, one = (candidate_of({COUNT: 2, "max_batch_size": size}) for size in (16, None))
    bench = ProvingBench(spec_of(), {CURRENT: 100.0, both: 1000.0, one: capacity})
    known = lost_at(bench, 2, one, missed)
    assert not any(saturated(p) or p.passed for p in known.points)
    verdict = prove(
        bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, both, 980, 1100), known
    )
    assert verdict.winner is not None
    assert verdict.winner.candidate == both
    assert len({a.server for a in bench.asked if a.candidate == one}) == again
    (undone,) = (p for p in verdict.simplification if p.field == "max_batch_size")
    assert undone.kept
    assert undone.without_change == pytest.approx(capacity if again else missed, rel=0.02)


def test_a_winner_that_stands_all_that_can_be_sent_is_written_as_at_least_that() -> None:
    """The load generator is no reason to refuse it, and it is told from what is known exactly."""
    bench = ProvingBench(spec_of(), {CURRENT: 500.0, OTHER: 4000.0}, sends=1500.0)
    limited = replace(trial(bench, 1, OTHER, 1350), limit="all that can be sent")
    verdict = prove(bench, trial(bench, 0, CURRENT, 490, 550), limited)
    assert verdict.status is Status.IMPROVED
    result = Result.from_json(result_json(bench, verdict))
    assert result.winner is not None
    assert result.baseline is not None
    assert (result.winner.at_least, result.baseline.at_least) == (True, False)
    levels = [level for candidate, level in bench.levels if candidate == OTHER]
    assert sum(level > 1500.0 for level in levels) <= 1  # and then never again


def test_of_two_that_stand_all_that_can_be_sent_it_is_not_known_which_is_better() -> None:
    bench = ProvingBench(spec_of(), {CURRENT: 3000.0, OTHER: 4000.0}, sends=1500.0, noise=0.01)
    trials = trial(bench, 0, CURRENT, 1200), trial(bench, 1, OTHER, 1350)
    verdict = prove(bench, *trials)
    assert verdict.status is Status.NOT_KNOWN
    assert result_json(bench, verdict)["baseline"]["at_least"] is True
    assert remedies(verdict.reasons)[0].startswith("give the load generator more cores")


def test_once_the_planned_time_is_over_only_what_proves_the_winner_is_measured() -> None:
    both, one = (candidate_of({COUNT: 2, "max_batch_size": size}) for size in (8, None))
    bench = ProvingBench(spec_of(), {CURRENT: 500.0, both: 1000.0, one: 1000.0})
    trials = trial(bench, 0, CURRENT, 490, 550), trial(bench, 1, both, 980, 1100)
    session = a_session(bench, bench.spec, CURRENT, deadline=Deadline(at_s=0.0))
    verdict = probe_overload(session, step.prove(session, trials))
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == both  # as good without one of them
    assert (len(verdict.winner.rounds), len(bench.soaks)) == (3, 1)
    assert (bench.short, bench.overloads) == ([], [])
    left_out = [f"Left out for lack of time: {w}." for w in ("undoing changes", "the load curve")]
    assert list(verdict.reasons[-2:]) == left_out
    assert verdict.overload is not None
    assert verdict.overload.reasons == ("Left out for lack of time: overloading.",)


def test_once_the_planned_time_is_over_the_first_look_decides() -> None:
    found = []
    for deadline in (Deadline(), Deadline(at_s=0.0)):
        bench = ProvingBench(spec_of(), {CURRENT: 980.0, OTHER: 1000.0}, noise=0.03, seed=2)
        session = a_session(bench, bench.spec, CURRENT, deadline=deadline)
        verdict = step.prove(session, [trial(bench, 0, CURRENT, 930), trial(bench, 1, OTHER, 980)])
        assert verdict.status is Status.NOT_KNOWN
        found.append((len({a.seed for a in bench.asked}), deadline.told))
    assert found == [(6, []), (3, ["Left out for lack of time: further rounds."])]
