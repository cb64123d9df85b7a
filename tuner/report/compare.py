"""Two runs side by side, and why their figures may not be comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.facts import Facts
from tuner.record.manifest import Manifest
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Gain
from tuner.report.analysis import value_text
from tuner.report.blocks import Bullets, Document, Table, Tone, filled
from tuner.report.data import ReportData, load
from tuner.report.quantities import NOTHING, metric_text, seconds_text, time_text
from tuner.report.sentence import HEADLINES, bottleneck_text
from tuner.report.tables import machine_text, rows_of
from tuner.score.judge import value_of
from tuner.score.ratio import Ratio, mean_with_interval, two_sample_ratio
from tuner.space.candidate import Candidate
from tuner.spec.metrics import THROUGHPUT
from tuner.spec.slo import Objective
from tuner.spec.units import digits


@dataclass(frozen=True)
class RunSide:
    """One run, represented by the config that it leaves in place: its winner or the current config.

    Attributes:
        run: Directory of the run.
        metric: The minimized metric, or goodput.
        value: Mean of the metric over the rounds, with its 95% interval.
        gain: Gain over the run's own current config; None without a winner.
        seconds: Duration of the whole run; None if it left no result.
    """

    run: str
    status: str
    created_at: str
    machine: str
    config: ProvedConfig | None
    metric: str
    value: Ratio | None
    gain: Gain | None
    trials: int
    seconds: float | None


@dataclass(frozen=True)
class RunComparison(Facts):
    """A comparison of two runs.

    Attributes:
        ratio: B's value over A's, above 1 is better; None if they cannot be compared.
        incomparable: Differences because of which the figures do not answer the same question.
    """

    a: RunSide
    b: RunSide
    ratio: Ratio | None
    incomparable: tuple[str, ...]


def compared(a: Path, b: Path) -> RunComparison:
    """Reads two runs and compares them.

    Raises:
        SpecError: One of the directories is not a run.
        TunerError: A file of a run cannot be read.
    """
    runs = [load(path) for path in (a, b)]
    reasons = tuple(_differences(runs[0].manifest, runs[1].manifest))
    values = [_values(run) for run in runs]
    sides = [_side(run, value) for run, value in zip(runs, values, strict=True)]
    ratio = None if reasons else _ratio(runs[0].objective, values[0], values[1])
    return RunComparison(sides[0], sides[1], ratio, reasons)


def document(comparison: RunComparison) -> Document:
    """Both runs side by side, one fact per line."""
    return Document(
        name="Two runs",
        headline="not comparable" if comparison.incomparable else "side by side",
        tone=Tone.UNSURE if comparison.incomparable else Tone.PLAIN,
        kind="comparison",
        blocks=filled(_table(comparison), Bullets("Not comparable", comparison.incomparable)),
    )


def _table(comparison: RunComparison) -> Table:
    sides = (comparison.a, comparison.b)
    configs = [s.config for s in sides]
    rows = [
        ("run", *(s.run for s in sides)),
        ("status", *(s.status for s in sides)),
        ("started", *(time_text(s.created_at) for s in sides)),
        ("machine", *(s.machine for s in sides)),
        *rows_of([_fields(config) for config in configs]),
        (f"{comparison.a.metric}, mean of the rounds", *(_value_text(s) for s in sides)),
        ("gain over its own current config", *(_gain_text(s.gain) for s in sides)),
        *rows_of([_latencies(config) for config in configs]),
        *rows_of([_bottleneck(config) for config in configs]),
        ("trials", *(str(s.trials) for s in sides)),
        ("took", *(NOTHING if s.seconds is None else seconds_text(s.seconds) for s in sides)),
        ("B over A", "", _answer(comparison)),
    ]
    return Table(("", "A", "B"), tuple(rows))


def _answer(comparison: RunComparison) -> str:
    known = comparison.a.value and comparison.b.value and not comparison.incomparable
    if known and comparison.ratio is None:
        return "not known: it takes three rounds in all"
    return _ratio_text(comparison.ratio)


def _fields(config: ProvedConfig | None) -> dict[str, str]:
    candidate = config.candidate if config else Candidate()
    return {candidate.title(k): value_text(k, v) for k, v in candidate.values.items()}


def _latencies(config: ProvedConfig | None) -> dict[str, str]:
    """The worst p99 latency, and that of each stream if there are several."""
    streams = config.streams if config else {}
    by_stream = {"": config.p99_latency_us if config else None}
    by_stream |= {f"{name}: ": stream.p99_latency_us for name, stream in streams.items()}
    return {f"{n}p99 latency, worst": metric_text("p99_latency", v) for n, v in by_stream.items()}


def _bottleneck(config: ProvedConfig | None) -> dict[str, str]:
    bottleneck = config.bottleneck if config else None
    return {} if bottleneck is None else {"bottleneck": bottleneck_text(bottleneck)}


def _side(data: ReportData, values: Sequence[float]) -> RunSide:
    metric = data.objective.metric
    return RunSide(
        run=data.run_id,
        status=HEADLINES[data.status][1],
        created_at=data.manifest.created_at,
        machine=machine_text(data.manifest),
        config=_in_place(data),
        metric="goodput" if metric is None else metric.name,
        value=mean_with_interval(values) if values else None,
        gain=data.result.gain if data.result.winner else None,
        trials=len(data.trials),
        seconds=data.result.time.wall_s if data.finished else None,
    )


def _in_place(data: ReportData) -> ProvedConfig | None:
    """The record of the config that the run leaves in place."""
    return data.result.winner or data.result.baseline


def _values(data: ReportData) -> list[float]:
    """Goodput, or the minimized metric, in each round; empty if it met the SLOs in none."""
    config = _in_place(data)
    if config is None or config.credited_infer_per_s is None:
        return []
    metric = data.objective.metric or THROUGHPUT
    values = [value_of(metric, point.measurement) for point in config.rounds]
    return [v for v in values if v is not None and v > 0.0]


def _ratio(objective: Objective, a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    if not a or not b or len(a) + len(b) < 3:
        return None
    return two_sample_ratio(b, a) if objective.metric is None else two_sample_ratio(a, b)


def _differences(a: Manifest, b: Manifest) -> list[str]:
    one, other = a.identity, b.identity
    texts = []
    for name, mine, theirs in one.differences(other, besides="tune"):
        if name in a.load_files:
            texts.append(f"{name}: the content of its file differs")
        elif name in one.question:
            texts.append(f"the specs differ in {name}")
        elif name in one.programs:
            texts.append(f"{name} differs: {mine}; {theirs}")
        elif name in one.machine:
            texts.append(f"the machines differ: {machine_text(a)}; {machine_text(b)}")
        else:
            texts.append("the machines differ in their fingerprint")
    return list(dict.fromkeys(texts))


def _value_text(side: RunSide) -> str:
    name = "throughput" if side.metric == "goodput" else side.metric
    if side.value is None or side.config is None:
        return NOTHING
    text, rounds = metric_text(name, side.value.estimate), len(side.config.rounds)
    if rounds == 1:
        return f"{text} (one measurement)"
    low, high = (metric_text(name, v) for v in (side.value.low, side.value.high))
    return f"{text} ({low} to {high}, {rounds} rounds)"


def _gain_text(gain: Gain | None) -> str:
    if gain is not None and gain.at_least:
        return f"at least {digits(gain.ratio.low)} times"
    return _ratio_text(gain.ratio if gain else None)


def _ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    return f"{digits(ratio.estimate)} times ({digits(ratio.low)} to {digits(ratio.high)})"
