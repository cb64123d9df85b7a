"""Two runs side by side, and what makes them incomparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.facts import Facts
from tuner.report.analysis import value_text
from tuner.report.blocks import Document, Items, Table, Tone, filled
from tuner.report.data import ReportData, load
from tuner.report.quantities import NOTHING, metric_text, seconds_text, time_text
from tuner.report.sentence import HEADLINES, bottleneck_text
from tuner.report.tables import machine_text, rows_of
from tuner.run.manifest import Manifest
from tuner.run.result_schema import ConfigFacts
from tuner.score.judge import value_of
from tuner.score.ratio import Ratio, mean_with_interval, two_sample_ratio
from tuner.space.candidate import Candidate
from tuner.spec.metrics import THROUGHPUT
from tuner.spec.slo import Objective
from tuner.spec.units import digits


@dataclass(frozen=True)
class Estimate:
    """A mean over rounds with its 95% interval; ``low`` and ``high`` None for one round."""

    estimate: float
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True)
class RunSide:
    """One run, represented by the config that it leaves in place: its winner or the current config.

    Attributes:
        config: Each searched field, and the size of the server's response cache, in words.
        value: Of ``metric`` (goodput, or the minimised metric), over the rounds of the proof.
        streams: The worst p99 latency of each stream, in words, if there are several.
        bottleneck: In which of several models a request spends its time; None for one model.
        gain: Against the run's own current config, with its interval; None without a winner.
        gain_at_least: It is a lower bound.
        seconds: Of the whole run; None if it left no result.
    """

    run: str
    status: str
    created_at: str
    machine: str
    config: Mapping[str, str]
    metric: str
    value: Estimate | None
    gain: Ratio | None
    gain_at_least: bool
    p99_latency_us: float | None
    streams: Mapping[str, str]
    bottleneck: str | None
    trials: int
    seconds: float | None


@dataclass(frozen=True)
class RunComparison(Facts):
    """Two runs.

    Attributes:
        ratio: B's value over A's, above 1 is better; None if they cannot be compared.
        incomparable: Differences that keep the numbers from answering the same question.
    """

    a: RunSide
    b: RunSide
    ratio: Ratio | None
    incomparable: tuple[str, ...]


def compared(a: Path, b: Path) -> RunComparison:
    """Reads two runs and compares them.

    Raises:
        SpecError: One of them is no run.
        TunerError: A file of one cannot be read.
    """
    runs = [load(path) for path in (a, b)]
    reasons = tuple(_differences(runs[0].manifest, runs[1].manifest))
    values = [_values(run) for run in runs]
    sides = [_side(run, found) for run, found in zip(runs, values, strict=True)]
    ratio = None if reasons else _ratio(runs[0].objective, values[0], values[1])
    return RunComparison(sides[0], sides[1], ratio, reasons)


def document(comparison: RunComparison) -> Document:
    """Both runs side by side, one fact a line."""
    return Document(
        name="Two runs",
        headline="not comparable" if comparison.incomparable else "side by side",
        tone=Tone.UNSURE if comparison.incomparable else Tone.PLAIN,
        kind="comparison",
        blocks=filled(_table(comparison), Items("Not comparable", comparison.incomparable)),
    )


def _table(comparison: RunComparison) -> Table:
    sides = (comparison.a, comparison.b)
    rows = [
        ("run", *(s.run for s in sides)),
        ("status", *(s.status for s in sides)),
        ("started", *(time_text(s.created_at) for s in sides)),
        ("machine", *(s.machine for s in sides)),
        *rows_of([s.config for s in sides]),
        (f"{comparison.a.metric}, mean of the rounds", *(_value_text(s) for s in sides)),
        (
            "gain over its own current config",
            *(f"{'at least ' if s.gain_at_least else ''}{_ratio_text(s.gain)}" for s in sides),
        ),
        ("p99 latency, worst", *(metric_text("p99_latency", s.p99_latency_us) for s in sides)),
        *rows_of([{f"{n}: p99 latency, worst": t for n, t in s.streams.items()} for s in sides]),
        *rows_of([{"bottleneck": s.bottleneck} if s.bottleneck else {} for s in sides]),
        ("trials", *(str(s.trials) for s in sides)),
        ("took", *(NOTHING if s.seconds is None else seconds_text(s.seconds) for s in sides)),
        ("B over A", "", _ratio_text(comparison.ratio)),
    ]
    return Table(("", "A", "B"), tuple(rows))


def _side(data: ReportData, values: Sequence[float]) -> RunSide:
    facts, gain, metric = _facts(data), data.result.improvement, data.objective.metric
    candidate = facts.candidate if facts else Candidate()
    streams = facts.streams if facts else {}
    return RunSide(
        run=data.run_id,
        status=HEADLINES[data.status][1],
        created_at=data.manifest.created_at,
        machine=machine_text(data.manifest),
        config={candidate.title(k): value_text(k, v) for k, v in candidate.values.items()},
        metric="goodput" if metric is None else metric.name,
        value=_estimate(values),
        gain=None if gain is None else gain.goodput_ratio,
        gain_at_least=gain is not None and gain.at_least,
        p99_latency_us=None if facts is None else facts.p99_latency_us,
        streams={n: metric_text("p99_latency", s.p99_latency_us) for n, s in streams.items()},
        bottleneck=bottleneck_text(facts.bottleneck) if facts and facts.bottleneck else None,
        trials=len(data.trials),
        seconds=data.result.time.wall_s if data.finished else None,
    )


def _facts(data: ReportData) -> ConfigFacts | None:
    """What is known of the config that the run leaves in place."""
    return data.result.winner or data.result.baseline


def _values(data: ReportData) -> list[float]:
    """Goodput, or the metric that is minimised, of each round; empty where it met no SLO."""
    facts = _facts(data)
    if facts is None or facts.goodput_infer_per_s is None:
        return []
    metric = data.objective.metric or THROUGHPUT
    values = [value_of(metric, m) for m in facts.measurements]
    return [v for v in values if v is not None and v > 0.0]


def _estimate(values: Sequence[float]) -> Estimate | None:
    """The geometric mean with its interval."""
    if not values:
        return None
    found, rounds = mean_with_interval(values), len(values)
    low, high = (found.low, found.high) if rounds > 1 else (None, None)
    return Estimate(found.estimate, low, high, rounds)


def _ratio(objective: Objective, a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    if not a or not b or len(a) + len(b) < 3:
        return None
    return two_sample_ratio(b, a) if objective.metric is None else two_sample_ratio(a, b)


def _differences(a: Manifest, b: Manifest) -> list[str]:
    one, other = a.identity, b.identity
    found = []
    for name, mine, theirs in one.differences(other, besides="tune"):
        if name in one.question:
            found.append(f"another {name} in the spec")
        elif name in one.programs:
            found.append(f"another {name}: {mine}; {theirs}")
        elif name in one.machine:
            found.append(f"another machine: {machine_text(a)}; {machine_text(b)}")
        else:
            found.append("another machine, by its fingerprint")
    return list(dict.fromkeys(found))


def _value_text(side: RunSide) -> str:
    name = "throughput" if side.metric == "goodput" else side.metric
    if side.value is None:
        return NOTHING
    text = metric_text(name, side.value.estimate)
    if side.value.low is None or side.value.high is None:
        return f"{text} (one measurement)"
    low, high = (metric_text(name, v) for v in (side.value.low, side.value.high))
    return f"{text} ({low} to {high}, {side.value.rounds} rounds)"


def _ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    return f"{digits(ratio.estimate)} times ({digits(ratio.low)} to {digits(ratio.high)})"
