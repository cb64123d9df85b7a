"""The estimate of a run's time: what it counts, and what an earlier run tells of the next one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.jobs import SPEC, a_job
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from builders.results import a_result
from builders.runs import Toy, manifest_of

from tuner.prepare.job import Job
from tuner.record.confirmation import Repeat, Role
from tuner.record.result_schema import TimeFacts
from tuner.record.status import Status
from tuner.record.store import RunStore
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialBench, TrialState, TrialTime
from tuner.search.estimate import (
    Estimate,
    Seen,
    estimate_run,
    foresee_run,
    seen_before,
    spent_s,
)
from tuner.spec.slo import Objective

MORE = (
    {"budget": {"trials": 40}},
    {"confirm": {"finalists": 4}},
    {"confirm": {"soak": "60s"}},
    {"workload": {"window": "4s"}},
    {"workload": {"warmup": "2s"}},
)


@pytest.mark.parametrize("more", MORE, ids=str)
def test_whoever_asks_for_more_waits_longer_but_never_past_the_budget(
    more: dict[str, Any], tmp_path: Path
) -> None:
    """How long each takes is told in `tests/golden/printed/estimates.txt`."""
    least = {"budget": {"trials": 8}, "confirm": {"rounds": 3, "finalists": 2}}

    def both(given: dict[str, Any]) -> Estimate:
        settings = "".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items())
        text = SPEC.replace("[1, 4]", "[1, 40]")
        return estimate_run(a_job(tmp_path, text + settings.replace("{", "{{").replace("}", "}}")))

    (key, value), few = next(iter(more.items())), both(least)
    many = both({**least, key: {**least.get(key, {}), **value}})
    assert many.total_s > few.total_s
    short = both({**least, key: {**least.get(key, {}), **value}, "budget": {"time": "1m"}})
    assert short.search_s <= 60.0


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


def an_earlier_run(results: Path, job: Job, rate: float, load_s: float, when: str) -> None:
    store = RunStore.create(results, f"{when}-{job.spec.name}-abcd")
    store.write_manifest(manifest_of(Toy(model=job.spec.name), "r").to_json())
    points = tuple(
        judge_point([P99_40MS, NO_ERRORS], synthetic_server(rate, 2 * rate, 100.0)) for _ in "1"
    )
    score = score_points(Objective.goodput(), points)
    for number, kind in enumerate(["unchanged", "reload", "restart"]):
        took = TrialTime(deploying_s=0.0 if kind == "unchanged" else load_s)
        store.append_trial(
            Trial(
                number,
                candidate_of({"n": number}),
                TrialState.MEASURED,
                points,
                score,
                deployment=kind,
                time=took,
            )
        )


def test_the_newest_run_of_the_model_tells_its_rate_and_what_a_load_takes(
    job: Job, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    an_earlier_run(results, job, 50.0, 30.0, "20260101-000000")
    an_earlier_run(results, job, 8.0, 60.0, "20260102-000000")
    assert seen_before(results, job) == Seen(8.0, (60.0, 60.0))
    (results / f"20260103-000000-{job.spec.name}-dead").mkdir()
    assert seen_before(results, job) == Seen(8.0, (60.0, 60.0))


def ended(store: RunStore, job: Job, status: Status = Status.IMPROVED, **spec: object) -> None:
    """A run that took 6:05: the start 45 s, the search 2:00, the proof 3:10, writing 10 s."""
    kept = manifest_of(Toy(model=job.spec.name), store.run_id)
    store.write_manifest(replace(kept, spec={**job.spec.plain(), **spec}).to_json())
    candidate, trial_time = candidate_of({"n": 1}), TrialTime(1.0, 30.0, 88.0, 1.0)
    store.append_trial(Trial(0, candidate, TrialState.FAILED, time=trial_time))
    took = {"wall_s": 365.0, "starting_s": 45.0, "writing_s": 10.0, "measuring_s": 310.0}
    time = TimeFacts(**took, deploying_s=0.0, searching_s=0.0)
    store.write_result(a_result(status=status, time=time))


def test_time_of_a_run_is_estimated_from_the_last_one(job: Job, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, f"20260101-000000-{job.spec.name}-abcd")
    assert foresee_run(tmp_path, job) == estimate_run(job)
    ended(store, job)
    sentence = "the last run took 6:05 (search 2:00, proof 3:10)"
    assert foresee_run(tmp_path, job).text == foresee_run(tmp_path, job).sentence == sentence


@pytest.mark.parametrize(
    "last",
    [
        {"status": Status.INTERRUPTED},
        {"status": Status.FAILED},
        {"budget": {"trials": 500}},
        {"confirm": {"soak": "10m"}},
    ],
)
def test_a_run_that_broke_off_or_had_other_limits_tells_nothing_of_the_next_ones_time(
    job: Job, tmp_path: Path, last: dict[str, Any]
) -> None:
    ended(RunStore.create(tmp_path, f"20260101-000000-{job.spec.name}-abcd"), job, **last)
    assert foresee_run(tmp_path, job) == estimate_run(job)


def test_model_loads_of_the_last_run_are_those_of_its_trials_and_fresh_servers(
    job: Job, tmp_path: Path
) -> None:
    store = RunStore.create(tmp_path, f"20260101-000000-{job.spec.name}-abcd")
    ended(store, job)
    for number, kind in enumerate(["unchanged", "reload", "restart"]):
        store.append_trial(Trial(number + 1, store.trials()[0].candidate, TrialState.FAILED,
                                 deployment=kind))  # fmt: skip
    point = judge_point([P99_40MS], synthetic_server(50.0, 100, 100.0))
    for order in (0, 1):
        store.append_confirmation(Repeat(1, order, Role.CURRENT, "k", point))
    assert foresee_run(tmp_path, job).loads == 1 + 2 + 1


def test_plan_expects_a_load_for_each_trial_round_undone_change_and_soak(job: Job) -> None:
    trials, rounds, sides, undone, soak = 4, 3, 3, 1, 1
    made = 0.7 * rounds * sides + 0.3  # one round of one config where the other is far behind
    assert estimate_run(job).loads == 1 + trials + math.ceil(made + undone) + soak


@pytest.mark.parametrize(
    ("loads_s", "text"),
    [
        ((), "no earlier run shows how long one takes"),
        ((2.04,), "the last run's took 2 s"),
        ((2.0, 3.0, 190.0), "the last run's took 3 s each (median of 3, longest 3.2 minutes)"),
    ],
)
def test_time_of_model_loads_comes_from_the_last_run(loads_s: tuple[float, ...], text: str) -> None:
    assert Seen(loads_s=loads_s).loads_text == text


def test_without_an_earlier_run_nothing_is_seen(job: Job, tmp_path: Path) -> None:
    assert seen_before(tmp_path / "results", job) is None


def test_estimate_is_longer_for_a_slow_model(job: Job) -> None:
    fast, slow, large = (estimate_run(job, s) for s in (Seen(), Seen(8.0), Seen(None, (60.0,))))
    for estimate in (slow, large):
        assert estimate.search_s > fast.search_s
        assert estimate.proof_s > fast.proof_s


#: Networks of benchmarks/real, whose runs took so many minutes on two cores of an AMD EPYC.
TOOK = {"opennsfw": (7.6, 17.5), "magika": (61.8, 7.3)}


@pytest.mark.parametrize("network", TOOK)
def test_times_of_fast_and_slow_networks_are_predicted_within_1_5_times(
    network: str, tmp_path: Path
) -> None:
    rate_per_s, took_minutes = TOOK[network]
    text = SPEC.replace("40ms", "100ms").replace(
        "[1, 4]}}}}",
        "[1, 2]}}, max_batch_size: {{choice: [4, 8, 16, 32]}}, "
        "dynamic_batching.max_queue_delay_microseconds: {{int: [50, 10000], or: 0}}}}\n"
        "budget: {{trials: 30, time: 20m}}",
    )
    estimate = estimate_run(a_job(tmp_path, text), Seen(rate_per_s, loads_s=(3.0,)))
    minutes = estimate.total_s / 60.0
    assert took_minutes / 1.5 <= minutes <= took_minutes * 1.5


def test_rounds_of_a_slow_model_cost_looks_and_not_windows(job: Job) -> None:
    slow, fast = (estimate_run(job, Seen(rate)) for rate in (8.0, 2000.0))
    rounds_s = slow.proof_s - slow.after_rounds_s
    assert rounds_s < 6.0 * (fast.proof_s - fast.after_rounds_s)


def test_trials_of_several_benches_count_once_where_they_overlap() -> None:
    def trial(number: int, started_at: str, took_s: float) -> Trial:
        time, bench = TrialTime(measuring_s=took_s), TrialBench("box", str(number))
        beside = {"time": time, "bench": bench, "started_at": f"2026-01-01T00:{started_at}+00:00"}
        return Trial(number, candidate_of({"n": number}), TrialState.FAILED, **beside)

    beside = [trial(0, "00:10.000", 20.0), trial(1, "00:00.000", 15.0), trial(2, "00:50.000", 5.0)]
    alone = Trial(3, candidate_of({"n": 3}), TrialState.FAILED, time=TrialTime(1.0, 2.0, 3.0, 4.0))
    assert spent_s(beside) == 30.0 + 5.0
    assert spent_s([*beside, alone]) == 45.0
    assert spent_s([]) == 0.0
