"""The best config for each part of the proved load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.pages import Made

from tuner.reason import Reason, ReasonKind
from tuner.report.by_load import by_load, table
from tuner.report.data import ReportData
from tuner.score.trial import Trial, TrialState
from tuner.server.memory import MACHINE, Memory


def heavy(taken_bytes: int) -> dict[str, Memory]:
    return {MACHINE: Memory(taken_bytes, 0, 1 << 34)}


def test_each_part_of_the_load_has_a_config_that_met_the_slos_at_no_less(made: Made) -> None:
    data = made("improved")
    configs = by_load(data)
    assert [config.name for config in configs] == ["load-20", "load-50", "load-100"]
    assert data.best is not None
    assert configs[-1].candidate == data.best.candidate
    top = configs[-1].level
    assert [config.level for config in configs] == [0.2 * top, 0.5 * top, top]
    assert all(config.point.passed and config.point.level >= config.level for config in configs)


def able(data: ReportData, level: float) -> list[Trial]:
    """Trials that met every SLO at a load or above it."""
    measured = [t for t in data.trials if t.state is TrialState.MEASURED]
    return [t for t in measured if any(p.passed and p.level >= level for p in t.points)]


def lightest(data: ReportData, trial: Trial) -> ReportData:
    memory = {
        t.number: heavy(1 << 30 if t.number != trial.number else 1 << 28) for t in data.trials
    }
    trials = tuple(replace(t, memory=memory[t.number]) for t in data.trials)
    return replace(data, trials=trials)


def test_below_all_of_the_load_the_least_memory_decides(made: Made) -> None:
    data = made("improved")
    first, *_ = by_load(data)
    for trial in able(data, first.level):
        config, *_ = by_load(lightest(data, trial))
        assert (config.candidate, config.memory_bytes) == (trial.candidate, 1 << 28)


def test_of_configs_with_as_much_memory_the_least_latency_decides(made: Made) -> None:
    data = made("improved")
    alike = tuple(replace(t, memory=heavy((1 << 30) + t.number)) for t in data.trials)
    first, *_ = by_load(replace(data, trials=alike))
    latencies = [
        min((p for p in t.points if p.passed and p.level >= first.level), key=lambda p: p.level)
        for t in able(data, first.level)
    ]
    assert len(latencies) > 1
    least = min(p.measurement.p99_latency_us for p in latencies)
    assert first.point.measurement.p99_latency_us == least


def test_config_of_unknown_memory_is_not_taken_for_the_lightest(made: Made) -> None:
    data = made("improved")
    first, *_ = by_load(data)
    light, *others = able(data, first.level)
    assert others
    sizes = {t.number: {} if t in others else heavy(1 << 30) for t in data.trials}
    trials = tuple(replace(t, memory=sizes[t.number]) for t in data.trials)
    config, *_ = by_load(replace(data, trials=trials))
    assert (config.candidate, config.memory_bytes) == (light.candidate, 1 << 30)


def test_configs_whose_answers_were_not_compared_are_left_out_where_a_finalist_changed_them(
    made: Made,
) -> None:
    data = made("improved")
    assert data.best is not None
    proved = {data.best.candidate, data.manifest.current}
    first, *_ = by_load(data)
    other = next(t for t in able(data, first.level) if t.candidate not in proved)
    data = lightest(data, other)
    assert by_load(data)[0].candidate == other.candidate
    facts = {"difference": "", "other_differences": 0}
    changed = Reason(ReasonKind.ANSWERS_CHANGED, "another", facts)
    result = data.result.model_copy(update={"why": (*data.result.why, changed)})
    assert {c.candidate for c in by_load(replace(data, result=result))} <= proved


@pytest.mark.parametrize("status", ["infeasible", "not known", "interrupted", "failed", "killed"])
def test_run_that_proved_no_load_has_none(made: Made, status: str) -> None:
    assert by_load(made(status)) == []


def test_table_is_left_out_where_one_config_is_best_for_all(made: Made) -> None:
    data = made("improved")
    assert data.best is not None
    best = data.trial_of(data.best)
    first, *_ = by_load(data)
    other = next(t for t in able(data, first.level) if t != best)
    assert table(lightest(data, other)) is not None
    assert best is not None
    assert table(lightest(data, best)) is None
