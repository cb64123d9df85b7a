"""The figures of a run's first screen: gain, goodput, SLOs, soak."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.report.blocks import Tile, Tiles, Tone
from tuner.report.data import ReportData
from tuner.report.quantities import (
    VERDICTS,
    count_text,
    found_text,
    load_text,
    metric_text,
    rate_text,
    verdict_text,
)
from tuner.report.sentence import held_text
from tuner.run.proved import ProvedConfig
from tuner.run.result_schema import Gain
from tuner.run.status import Status
from tuner.score.judge import SloResult, Verdict, value_of
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, Better, Metric
from tuner.spec.units import digits

#: Tiles of SLOs at most, the worst first; the table has all of them.
MOST_SLOS = 3
#: From so many times on, a gain is told as times, below it in percent.
TIMES = 3.0


def tiles(data: ReportData) -> Tiles:
    """What a reader wants to know first."""
    slos = [
        slo_tile(row.found, row.rounds, row.soak)
        for row in data.slo
        if METRICS[row.found.metric].is_latency or row.found.verdict is not Verdict.PASS
    ]
    found = (_gain(data), _objective(data), *slos[:MOST_SLOS], _soak(data))
    return Tiles(tuple(tile for tile in found if tile is not None))


def slo_tile(worst: SloResult, rounds: Sequence[SloResult], soak: SloResult | None = None) -> Tile:
    """How much of one SLO is used up, and in how many rounds it was met."""
    metric = METRICS[worst.metric]
    lower = metric.better is Better.LOWER
    share = worst.value / worst.bound if lower and worst.value and worst.bound else None
    found, bound = found_text(worst), metric_text(worst.metric, worst.bound)
    unit = bound[bound.rfind(" ") :] if " " in bound else ""
    return Tile(
        of_stream(worst.stream, metric.words),
        f"{found.removesuffix(unit)} {'of' if lower else 'for'} {bound}",
        _met_text(worst, rounds, soak),
        VERDICTS[worst.verdict][0],
        share,
    )


def _met_text(worst: SloResult, rounds: Sequence[SloResult], soak: SloResult | None) -> str:
    """`met in 6 of 6 rounds and the soak`; what else it is where there were no rounds."""
    met = sum(r.verdict is Verdict.PASS for r in rounds)
    if len(rounds) < 2 or not met:
        return verdict_text(worst)
    soaked = " and the soak" if soak is not None and soak.verdict is Verdict.PASS else ""
    return f"met in {met} of {count_text(len(rounds), 'round')}{soaked}"


def _gain(data: ReportData) -> Tile | None:
    gain = data.result.gain
    if gain is not None and data.status is Status.IMPROVED:
        compared = gain.compared or "goodput"
        # Of a latency, a percentage would be read as one of its own.
        value, note = gain_texts(gain, TIMES if data.maximizes else 0.0)
        return Tile(f"gain in {compared.replace('_', ' ')}", value, note, Tone.GOOD)
    unknown = data.current is None or data.current.credited_infer_per_s is None
    if data.status is Status.IMPROVED and unknown:
        return Tile("gain", "now meets the SLOs", "the current config does not")
    return None


def gain_texts(gain: Gain, times_from: float = TIMES) -> tuple[str, str]:
    """`+65%` and `95% interval +53% to +78%`; times where it is large, or why it is a least."""
    ratio, sure = gain.ratio, f"{gain.confidence:.0%}"
    known = ratio.low if gain.at_least else ratio.estimate
    value, low, high = (_ratio_text(r, known >= times_from) for r in (known, ratio.low, ratio.high))
    if not gain.at_least:
        return value, f"{sure} interval {low} to {high}"
    rough = "the current config was only measured at a load it does not sustain"
    if gain.means is None:
        rough = f"{sure} sure; the current config is far slower and was measured roughly"
    return f"at least {value}", rough


def _ratio_text(ratio: float, as_times: bool) -> str:
    return f"{digits(ratio)}x" if as_times else f"{ratio - 1.0:+.0%}"


def _objective(data: ReportData) -> Tile | None:
    """What was optimised, before and after."""
    metric = data.objective.metric
    name = "goodput" if metric is None else metric.words
    after = None if data.status is Status.KEPT else data.best
    values = [_value(side, metric) for side in (data.current, after)]
    if not any(values):
        return None
    current, found = (value or "none" for value in values)
    if values[0] is None and data.current and data.current.at_most_infer_per_s is not None:
        current = f"at most {rate_text(data.current.at_most_infer_per_s)}"
    if after is None:
        return Tile(f"{name} of the current config", current, _held_text(data.current))
    unit = "/s" if current.endswith("/s") and found.endswith("/s") else ""
    value = found if data.current is None else f"{current.removesuffix(unit)} -> {found}"
    improved = data.status is Status.IMPROVED
    label = "before and after" if improved else f"now and in the {data.best_name}"
    return Tile(f"{name}, {label}", value, _means_text(data) or _held_text(after))


def _value(side: ProvedConfig | None, metric: Metric | None) -> str | None:
    if side is None:
        return None
    if metric is None:
        known = side.credited_infer_per_s is not None
        return rate_text(side.credited_infer_per_s, side.at_least) if known else None
    values = [value_of(metric, p.measurement) for p in side.rounds]
    worst = max((value for value in values if value is not None), default=None)
    return None if worst is None else metric_text(metric.name, worst)


def _held_text(side: ProvedConfig | None) -> str:
    return "" if side is None or not (held := held_text(side)) else f"held {held}"


def _means_text(data: ReportData) -> str:
    """The means whose ratio is the gain, where those are not what the configs are credited with."""
    gain = data.result.gain
    if gain is None or gain.means is None or gain.compared != "capacity" or gain.at_least:
        return ""
    current, winner = (rate_text(v) for v in (gain.means.current, gain.means.best))
    return f"the capacity, where an SLO begins to be missed: {current} -> {winner} on average"


def _soak(data: ReportData) -> Tile | None:
    soak = None if data.subject is None else data.subject.soak
    if soak is None or not (soak.tried or soak.reason):
        return None
    held = soak.held
    if held is None:
        why = soak.reason or soak.tried[-1].sentence
        return Tile("soak", "did not hold" if soak.tried else "none", why, Tone.UNSURE)
    measured = held.measurement
    late = "" if held.late is None else f", {held.late.text}"
    value = f"held {digits(measured.duration_s)} s"
    return Tile("soak", value, f"at {load_text(measured.load)}{late}", Tone.GOOD)
