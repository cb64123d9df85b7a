"""Configs that no other beats in throughput, latency and memory together."""

from __future__ import annotations

from dataclasses import replace

from builders.pages import Made

from tuner.report.data import ReportData
from tuner.report.tradeoffs import table, tradeoffs
from tuner.score.trial import TrialState
from tuner.server.memory import MACHINE, Memory


def with_memory(data: ReportData, *sizes: int) -> ReportData:
    """Each trial with one of these, in turn."""
    trials = tuple(
        replace(t, memory={MACHINE: Memory(sizes[k % len(sizes)], 0, 1 << 34)})
        for k, t in enumerate(data.trials)
    )
    return replace(data, trials=trials)


def test_every_other_config_is_beaten_by_one_of_them(made: Made) -> None:
    data = with_memory(made("improved"), 1 << 28, 1 << 29, 1 << 30)
    best = tradeoffs(data)
    assert best
    assert not any(one.beats(other) for one in best for other in best)
    measured = [t for t in data.trials if t.state is TrialState.MEASURED]
    assert {one.trial.number for one in best} < {t.number for t in measured}
    rates = [one.rate_infer_per_s for one in best]
    assert rates == sorted(rates, reverse=True)


def test_a_config_with_less_memory_is_kept_beside_a_faster_one(made: Made) -> None:
    data = with_memory(made("improved"), 1 << 30)
    alike = {one.trial.number for one in tradeoffs(data)}
    slow = next(t for t in data.trials if t.state is TrialState.MEASURED and t.number not in alike)
    light = replace(slow, memory={MACHINE: Memory(1 << 28, 0, 1 << 34)})
    trials = tuple(light if t is slow else t for t in data.trials)
    lighter = replace(data, trials=trials)
    assert slow.number in {one.trial.number for one in tradeoffs(lighter)}
    rows = table(lighter)
    assert rows is not None
    assert str(slow.number) in {row[0] for row in rows.rows}
    assert "256 MiB" in {row[-1] for row in rows.rows}


def test_table_is_left_out_where_memory_decides_nothing(made: Made) -> None:
    data = made("improved")
    assert table(with_memory(data, 1 << 30)) is None
    assert table(with_memory(data, 1 << 30, (1 << 30) + 1)) is None
    assert table(replace(data, trials=tuple(replace(t, memory={}) for t in data.trials))) is None
