"""Which configs are overloaded, at which load, and what is said where none is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.emulated import EmulatedBench, an_overload
from builders.events import Watching
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.overloading import CURRENT, WINNER, Probed, side, step, verdict
from builders.reasons import said

from tuner.errors import InterruptedRunError, LoadFailedError, ServerGoneError, TrialError
from tuner.measurement.measurement import Arrivals
from tuner.proof.overload import probe_overload
from tuner.record.confirmation import Soak, Soaked
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Overloads, RunDecision
from tuner.record.status import Status
from tuner.score.judge import tail_slo
from tuner.score.point import judge_point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo


def overloads_of(bench: EmulatedBench) -> list[tuple[Candidate, float, bool]]:
    """What was overloaded, with how much, and whether on a fresh server."""
    return [(a.candidate, a.level, bench.deployed[a.server - 1][1]) for a in bench.overloads]


def test_both_are_overloaded_once_on_fresh_servers_at_what_they_sustained_every_time() -> None:
    bench = Probed()
    decision = probe_overload(step(bench), verdict(side(WINNER, 111.0, 110.0, 112.0)))
    assert overloads_of(bench) == [(CURRENT, 100.0, True), (WINNER, 110.0, True)]
    assert decision.overload == Overloads(an_overload(100.0), an_overload(110.0))
    assert (decision.status, decision.why) == (Status.IMPROVED, (said("a reason"),))


@pytest.mark.parametrize(("sustained", "spared"), [((400.0, 121.0), True), ((400.0, 119.0), False)])
def test_a_current_config_whose_overload_the_winner_sustains_is_spared(
    sustained: tuple[float, ...], spared: bool
) -> None:
    bench = Probed()
    overloads = probe_overload(step(bench), verdict(side(WINNER, *sustained))).overload
    assert overloads is not None
    assert overloads.winner == an_overload(min(sustained))
    assert (overloads.current is None) is spared
    assert [c for c, _, _ in overloads_of(bench)] == ([WINNER] if spared else [CURRENT, WINNER])
    assert len(overloads.reasons) == spared


def test_each_overload_is_reported_under_a_separate_phase() -> None:
    watching = Watching()
    watched = replace(step(Probed()), events=watching)
    overloads = probe_overload(watched, verdict(side(WINNER, 110.0))).overload
    assert overloads is not None
    assert overloads.current is not None
    assert overloads.winner is not None
    assert watching.phases == ["overloading"]
    assert watching.notes == [
        f"current config: {overloads.current.sentence}", f"winner: {overloads.winner.sentence}"
    ]  # fmt: skip


@pytest.mark.parametrize(("seed", "arrivals"), [(0, 700_000), (3, 703_000)])
def test_arrivals_of_an_overload_are_none_of_the_searchs(seed: int, arrivals: int) -> None:
    bench = Probed()
    probe_overload(step(bench, search={"seed": seed}), verdict(side(WINNER, 110.0)))
    assert [a.seed for a in bench.overloads] == [arrivals, arrivals]


def test_where_one_sustained_no_load_the_other_is_overloaded_all_the_same() -> None:
    bench = Probed()
    late = RunDecision.of(
        Status.IMPROVED, (), side(CURRENT, 100.0, p99_us=90e3), side(WINNER, 110.0)
    )
    overloads = probe_overload(step(bench), late).overload
    assert overloads_of(bench) == [(WINNER, 110.0, True)]
    assert overloads is not None
    assert (overloads.current, overloads.winner) == (None, an_overload(110.0))
    assert len(overloads.reasons) == 1


def test_without_a_winner_only_the_current_config_is() -> None:
    bench = Probed()
    overloads = probe_overload(step(bench), verdict()).overload
    assert [candidate for candidate, _, _ in overloads_of(bench)] == [CURRENT]
    assert overloads == Overloads(an_overload(100.0), None)


@pytest.mark.parametrize("trouble", [LoadFailedError("late"), ServerGoneError("gone")])
def test_a_probe_that_fails_is_a_reason_and_no_more(trouble: TrialError) -> None:
    overloads = probe_overload(step(Probed(trouble)), verdict(side(WINNER, 110.0))).overload
    assert overloads == Overloads(an_overload(100.0), None, (trouble.reason.of("winner"),))


def test_no_overload_is_tried_that_cannot_be_sent() -> None:
    bench = Probed()
    bench.sendable.most = 120.0
    overloads = probe_overload(step(bench), verdict(side(WINNER, 110.0))).overload
    assert overloads is not None
    assert overloads.current == an_overload(100.0)
    assert len(overloads.reasons) == 1


def test_stop_request_ends_the_search() -> None:
    bench = Probed(InterruptedRunError("interrupted"))
    with pytest.raises(InterruptedRunError):
        probe_overload(step(bench), verdict(side(WINNER, 110.0)))


def test_a_config_that_met_the_slos_at_no_load_has_no_capacity() -> None:
    bench = Probed()
    nowhere = RunDecision.of(Status.INFEASIBLE, (), side(CURRENT, 100.0, p99_us=90e3))
    phases: list[str] = []
    watched = step(bench)
    watched.events.phase = phases.append  # type: ignore[method-assign]
    overloads = probe_overload(watched, nowhere).overload
    assert overloads_of(bench) == []
    assert phases == []  # nothing is overloaded, and it is not said either
    assert overloads is not None
    assert overloads.reasons


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"arrivals": Arrivals.CLOSED}, "closed loop cannot be overloaded"),
        ({"listed": (10.0, 20.0)}, "fixed by the spec"),
        ({"objective": "minimize p99_latency at 300/s"}, "fixed by the spec"),
        ({"slo": ["error_rate <= 0%"]}, "No SLO bounds a high percentile"),
    ],
)
def test_where_there_is_no_overload_that_is_said(changes: dict[str, Any], expected: str) -> None:
    bench = Probed()
    overloads = probe_overload(step(bench, **changes), verdict(side(WINNER, 110.0))).overload
    assert overloads_of(bench) == []
    assert overloads is not None
    assert (overloads.current, overloads.winner) == (None, None)
    assert expected in overloads.reasons[0]


def test_level_is_judged_by_the_slo_on_the_highest_percentile() -> None:
    texts = ("p50_latency <= 5ms", "p99_latency <= 40ms", "p90_latency <= 20ms", "error_rate <= 1%")
    tightest = tail_slo([Slo.parse(text) for text in texts])
    assert str(tightest) == "p99_latency <= 40ms"
    assert tail_slo([Slo.parse("avg_latency <= 5ms")]) is None


def soaked(levels: tuple[float, ...], candidate: Candidate = WINNER) -> ProvedConfig:
    """A config whose soaks were at these loads; the last one held."""
    late = synthetic_measurement(levels[0], 90e3)
    sustained = synthetic_measurement(levels[-1], 20e3)
    measured = [late] * (len(levels) - 1) + [sustained]
    tried = tuple(Soaked(m, judge_point([P99_40MS, NO_ERRORS], m).slo) for m in measured)
    return replace(side(candidate, 400.0), soak=Soak(tried))


def test_what_was_soaked_last_is_overloaded_first_on_the_server_that_sustained_it() -> None:
    bench = Probed()
    near = RunDecision.of(Status.IMPROVED, (), side(CURRENT, 390.0), soaked((400.0,)))
    probe_overload(step(bench), near)
    assert overloads_of(bench) == [(WINNER, 400.0, False), (CURRENT, 390.0, True)]


def test_a_lowered_claim_is_what_an_overload_exceeds() -> None:
    bench = Probed()
    near = RunDecision.of(Status.IMPROVED, (), side(CURRENT, 340.0), soaked((400.0, 350.0)))
    probe_overload(step(bench), near)
    assert overloads_of(bench) == [(CURRENT, 340.0, True), (WINNER, 350.0, True)]
