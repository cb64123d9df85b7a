"""NVIDIA's own searches as a strategy: they react, repeat themselves, and leave no traces."""

from __future__ import annotations

import math
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import fields_of
from builders.reasons import said
from builders.spaces import (
    BATCH,
    BATCHER,
    BATCHING,
    CACHE,
    DELAY,
    INSTANCES,
    PREFERRED,
    space_of,
    spec_of,
)

from tuner.errors import SpecError
from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.searcher import Searcher
from tuner.search.strategies.model_analyzer import ModelAnalyzerStrategy
from tuner.search.strategy import Proposal
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import ModelAnalyzerMode

HILL: dict[str, Any] = {INSTANCES: {"int": [1, 5]}, BATCH: {"choice": [1, 2, 4, 8, 16, 32, 64]}}

FULL: dict[str, Any] = {
    INSTANCES: {"int": [1, 3]},
    BATCH: {"choice": [4, 8, 16]},
    DELAY: {"int": [100, 10_000], "log": True, "or": 0},
    PREFERRED: {"subsets": [4, 8], "at_most": 1, "or": "unset"},
}

GRID: dict[str, Any] = {
    INSTANCES: {"int": [1, 3]},
    BATCH: {"choice": [4, 8]},
    DELAY: {"choice": [0, 100, 1000]},
    PREFERRED: {"subsets": [2, 4], "at_most": 1, "or": "unset"},
}

Goodput = Callable[[Candidate], float | None]


def number(candidate: Candidate, path: str) -> int:
    value = fields_of(candidate).get(path)
    return value if isinstance(value, int) else 0


def hill(candidate: Candidate) -> float:
    """Best, 1000, at 4 instances and batches of 32."""
    octaves = math.log2(number(candidate, BATCH) / 32)
    return 1000 * math.exp(-0.1 * (number(candidate, INSTANCES) - 4) ** 2 - 0.2 * octaves**2)


def strategy(
    given: dict[str, Any], mode: ModelAnalyzerMode, *, seed: int = 0, trials: int = 40, **more: Any
) -> tuple[Space, ModelAnalyzerStrategy]:
    search = {"strategy": "model-analyzer", "mode": mode.value, "seed": seed}
    spec = spec_of(given, search=search, budget={"trials": trials}, **more)
    space = space_of(given, BATCHING + "dynamic_batching { }")
    return space, ModelAnalyzerStrategy(space, spec)


def trial(number: int, candidate: Candidate, value: float | None, violation: float = 0.0) -> Trial:
    """None for a value is a failed trial."""
    if value is None:
        return Trial(number, candidate, TrialState.FAILED, reason=said("synthetic failure"))
    score = Score(value, violation == 0, violation, best_point=None)
    return Trial(number, candidate, TrialState.MEASURED, score=score)


def run(
    space: Space,
    chosen: ModelAnalyzerStrategy,
    goodput: Goodput,
    violation: Callable[[Candidate], float] = lambda _: 0.0,
    trials: int = 100,
    history: Sequence[Trial] = (),
) -> list[Trial]:
    """To the end of NVIDIA's search, or to ``trials``."""
    searcher = Searcher(space, chosen, history)
    while len(searcher.history) < trials:
        proposal = searcher.next()
        if not isinstance(proposal, Proposal):
            break
        candidate = proposal.candidate
        searcher.tell(
            trial(len(searcher.history), candidate, goodput(candidate), violation(candidate))
        )
    return searcher.history


def best(trials: Sequence[Trial]) -> Trial:
    feasible = [t for t in trials if t.score is not None and t.score.feasible]
    return max(feasible, key=lambda t: t.score.value if t.score else 0.0)


QUICK, OPTUNA, BRUTE = ModelAnalyzerMode

every_mode = pytest.mark.parametrize("mode", ModelAnalyzerMode, ids=lambda mode: mode.value)


def keys(trials: list[Trial]) -> list[str]:
    return [t.candidate.key for t in trials]


def test_quick_climbs_to_the_better_batch_and_instances() -> None:
    trials = run(*strategy(HILL, QUICK), hill)
    winner = best(trials).candidate
    assert number(winner, BATCH) >= 16
    assert number(winner, INSTANCES) >= 3
    assert len(trials) < 20


def test_quick_goes_another_way_when_batches_do_not_pay() -> None:
    def flat_in_batch(candidate: Candidate) -> float:
        return 100.0 * number(candidate, INSTANCES) / number(candidate, BATCH)

    winner = best(run(*strategy(HILL, QUICK), flat_in_batch)).candidate
    assert number(winner, BATCH) == 1
    assert keys(run(*strategy(HILL, QUICK), flat_in_batch)) != keys(
        run(*strategy(HILL, QUICK), hill)
    )


def test_quick_applies_the_slos() -> None:
    """The hill's top misses them: the climb stops below it."""

    def overshoot(candidate: Candidate) -> float:
        return max(0.0, number(candidate, BATCH) / 8 - 1)

    space, chosen = strategy(HILL, QUICK)
    trials = run(space, chosen, hill, overshoot)
    assert number(best(trials).candidate, BATCH) == 8
    assert keys(trials) != keys(run(*strategy(HILL, QUICK), hill))


def test_optuna_follows_its_seed_and_its_results() -> None:
    first, again, other = (
        keys(run(*strategy(FULL, OPTUNA, seed=seed), hill)) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other
    upside_down = keys(run(*strategy(FULL, OPTUNA, seed=3), lambda c: 1000 - hill(c)))
    assert first != upside_down


def test_optuna_varies_delays_and_leaves_preferred_sizes_alone() -> None:
    trials = run(*strategy(FULL, OPTUNA, trials=30), hill)
    assert len({fields_of(t.candidate).get(DELAY) for t in trials[1:]}) > 3
    assert {fields_of(t.candidate).get(PREFERRED) for t in trials[1:]} == {None}


def test_optuna_asks_for_no_more_configs_than_the_budget() -> None:
    improving = (float(n) for n in range(1, 1000))
    trials = run(*strategy(FULL, OPTUNA, trials=12), lambda _: next(improving))
    assert 8 < len(trials) <= 13


def test_brute_covers_its_grid() -> None:
    space, chosen = strategy(GRID, BRUTE)
    proposed = keys(run(space, chosen, hill))[1:]
    assert len(proposed) == len(set(proposed))
    assert set(proposed) == {c.key for c in space.enumerate()}


@every_mode
def test_dynamic_batching_is_switched_on_where_the_space_has_it(mode: ModelAnalyzerMode) -> None:
    given = {**HILL, BATCH: {"choice": [4, 8]}, BATCHER: {"choice": [False, True]}}
    trials = run(*strategy(given, mode), hill, trials=5)
    assert {fields_of(t.candidate)[BATCHER] for t in trials[1:]} == {True}


@every_mode
def test_a_search_resumes_where_it_was(mode: ModelAnalyzerMode) -> None:
    straight = run(*strategy(FULL, mode, seed=5), hill, trials=12)
    stored = [Trial.from_json(t.to_json()) for t in straight[:5]]
    resumed = run(*strategy(FULL, mode, seed=5), hill, trials=12, history=stored)
    assert keys(resumed) == keys(straight)


@every_mode
def test_failed_trials_are_no_measurements_and_the_search_goes_on(mode: ModelAnalyzerMode) -> None:
    def memory_is_small(candidate: Candidate) -> float | None:
        return None if number(candidate, INSTANCES) > 2 else hill(candidate)

    trials = run(*strategy(GRID, mode), memory_is_small, trials=60)
    failed = [t.number for t in trials if t.state is TrialState.FAILED]
    assert failed
    assert trials[-1].number > failed[0]
    assert best(trials).score is not None


@pytest.mark.parametrize("mode", [QUICK, BRUTE], ids=lambda mode: mode.value)
def test_a_failed_current_config_does_not_end_the_search(mode: ModelAnalyzerMode) -> None:
    space, chosen = strategy(GRID, mode)
    trials = run(space, chosen, lambda c: None if c == space.current else hill(c), trials=5)
    assert len(trials) == 5


def test_optuna_gives_up_without_a_measurement_of_the_current_config() -> None:
    assert len(run(*strategy(FULL, OPTUNA), lambda _: None)) == 1


def test_no_goodput_at_all_is_a_flat_landscape_and_no_error() -> None:
    assert len(run(*strategy(HILL, QUICK), lambda _: 0.0)) > 2


def test_latency_is_minimised() -> None:
    more = {
        "objective": "minimize p99_latency at 16",
        "workload": {"arrivals": {"kind": "closed"}},
    }
    trials = run(*strategy(HILL, QUICK, **more), lambda c: 1e5 / hill(c))
    lowest = min(trials, key=lambda t: t.score.value if t.score else 0.0).candidate
    assert number(lowest, BATCH) >= 16
    assert number(lowest, INSTANCES) >= 3


def test_input_sent_twice_counts_as_a_duplicate() -> None:
    space, chosen = strategy(HILL, OPTUNA, trials=40)
    history = run(space, chosen, hill)
    repeated = 0
    for n in range(1, len(history)):
        taken = {space.canonical(t.candidate).key for t in history[:n]}
        proposal = chosen.propose(n, history[:n], taken)
        repeated += proposal.duplicates
    assert 0 < repeated <= 40 - len(history) + 1


def test_without_results_there_is_one_proposal() -> None:
    """As `tune plan` asks for previews."""
    space, chosen = strategy(HILL, QUICK)
    taken = {space.current.key}
    first = chosen.propose(1, [], taken)
    assert chosen.propose(2, [], {*taken, first.candidate.key}) is None


def test_a_cache_stays_as_it_is_and_does_not_stop_the_search() -> None:
    space, chosen = strategy({**HILL, CACHE: {"choice": [False, "64MiB"]}}, QUICK)
    proposal = chosen.propose(1, [trial(0, space.current, 100.0)], {space.current.key})
    assert proposal.candidate.cache_bytes is None


@pytest.mark.parametrize("seed", range(6))
def test_no_landscape_breaks_nvidias_search(seed: int) -> None:
    """Noise, failures and misses in any order: its assertions hold, and it ends."""
    import random

    rng = random.Random(seed)
    values: dict[str, tuple[float | None, float]] = {}

    def draw(candidate: Candidate) -> tuple[float | None, float]:
        value = None if rng.random() < 0.2 else rng.uniform(1, 1000)
        return values.setdefault(candidate.key, (value, rng.choice([0.0, 0.0, 0.4])))

    for mode in (QUICK, OPTUNA):
        space, chosen = strategy(HILL, mode, seed=seed)
        values[space.current.key] = (100.0, 0.0)
        trials = run(space, chosen, lambda c: draw(c)[0], lambda c: draw(c)[1])
        assert len(set(keys(trials))) == len(trials) < 60


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        (QUICK, {DELAY: {"int": [100, 1000]}}),
        (OPTUNA, {PREFERRED: {"subsets": [4, 8], "at_most": 2}}),
        (BRUTE, {"parameters.threads": {"choice": [1, 2]}}),
    ],
)
def test_a_space_without_its_fields_is_refused(
    mode: ModelAnalyzerMode, given: dict[str, Any]
) -> None:
    with pytest.raises(SpecError, match="nothing of this space") as caught:
        strategy(given, mode)
    assert "instance_group.count" in caught.value.hint


def test_a_grid_too_large_to_list_is_refused() -> None:
    large = {
        INSTANCES: {"int": [1, 8]},
        BATCH: {"choice": [1, 2, 4, 8, 16, 32, 64]},
        DELAY: {"int": [100, 10_000], "log": True, "or": 0},
        PREFERRED: {"subsets": [4, 8, 16, 32], "at_most": 3, "or": "unset"},
    }
    with pytest.raises(SpecError, match="brute lists 7560 configs"):
        strategy(large, BRUTE)


@every_mode
def test_search_of_model_analyzer_prints_nothing_and_leaves_no_files(
    mode: ModelAnalyzerMode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    run(*strategy(FULL, mode), hill, trials=8)
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@every_mode
def test_a_proposal_takes_seconds_not_minutes(mode: ModelAnalyzerMode) -> None:
    wide = {
        INSTANCES: {"int": [1, 6]},
        BATCH: {"choice": [4, 8, 16, 32]},
        DELAY: {"int": [50, 20_000], "log": True, "or": 0},
        PREFERRED: {"subsets": [4, 8, 16], "at_most": 2, "or": "unset"},
    }
    space, chosen = strategy(wide, mode, trials=500)
    history = run(space, chosen, hill, trials=8)
    if mode is BRUTE:  # everything but the last is measured
        grid = [c for c in space.coarse(8).enumerate() if c != space.canonical(space.current)]
        history = [
            replace(trial(n, c, hill(c)), number=n)
            for n, c in enumerate([space.current, *grid[:-1]])
        ]
    taken = {space.canonical(t.candidate).key for t in history}
    took_s = []
    for _ in range(2):
        began = time.process_time()
        chosen.propose(len(history), history, taken)
        took_s.append(time.process_time() - began)
    assert statistics.median(took_s) < 5.0  # 1.8 where the processor is free
