"""The answer of a run in one line with its figures, and how certain it is."""

from __future__ import annotations

from math import ceil
from typing import assert_never

from tuner.proof.decide import UNBOUNDED
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Gain
from tuner.record.status import Status
from tuner.report.data import ReportData
from tuner.report.quantities import load_text, metric_text, rate_text
from tuner.report.sentence import HEADLINES, change_text
from tuner.score.capacity import saturated
from tuner.score.judge import SloOutcome, too_few_text, value_of
from tuner.spec.metrics import METRICS
from tuner.spec.units import digits

#: A gain of at least this ratio is given as a multiple, a smaller one in percent.
TIMES = 3.0


def headline(data: ReportData) -> str:
    """The verdict with its figures: `Better: 1,198/s within ...`."""
    _, words = HEADLINES[data.status]
    gain = data.result.gain
    if data.status is Status.INFEASIBLE and data.failed:
        return "No config that loaded and was measured meets the SLOs"
    if data.status is Status.IMPROVED:
        back = ", then rolled back" if data.taken_back else ""
        return f"{claim(data)}, {f'written{back}' if data.result.written else 'not written'}"
    if gain is None or gain.at_least:
        return words
    if data.status is Status.KEPT:
        sure = f"{gain.confidence:.0%} confidence"
        if gain.ratio.high <= 1.0:
            return f"{words}: no gain is possible ({sure})"
        return f"{words}: any gain is below {ceil(100 * (gain.ratio.high - 1.0))}% ({sure})"
    if data.status is Status.NOT_KNOWN:
        return f"{words}: {_open_text(data, gain)}"
    return words


def claim(data: ReportData) -> str:
    """The claim about a winner: `Better: 1,198/s within p99 <= 100 ms (before: 128/s)`."""
    before, after = worth_or_none(data, data.current), worth_text(data, data.best)
    return f"{HEADLINES[Status.IMPROVED][1]}: {after}{_within(data)} (before: {before})"


def worth_text(data: ReportData, config: ProvedConfig | None) -> str:
    """The credited load, with `about` if measured once; or the lowest value of a minimized metric.

    Empty if nothing is known.
    """
    if config is None:
        return ""
    about, metric = "about " if config.from_search else "", data.objective.metric
    if metric is not None:
        values = [value_of(metric, p.measurement) for p in config.rounds]
        worst = max((v for v in values if v is not None), default=None)
        return "" if worst is None else about + metric_text(metric.name, worst)
    if config.credited_infer_per_s is not None:
        rate = rate_text(config.credited_infer_per_s, config.at_least)
        return rate if config.at_least else about + rate
    at_most = config.at_most_infer_per_s
    return "" if at_most is None else f"at most {rate_text(at_most)}"


def worth_or_none(data: ReportData, config: ProvedConfig | None) -> str:
    """The same; for a config without a credited load, the reason in words."""
    if worth := worth_text(data, config):
        return worth
    if config is None:
        return "not measured"
    match config.outcome:
        case SloOutcome.MET:
            return "not measured"  # the minimized metric
        case SloOutcome.MISSED:
            return "no load"
        case SloOutcome.TOO_FEW:
            return f"not known: {too_few_text(config.judged.slo)}"
        case _:
            assert_never(config.outcome)


def _within(data: ReportData) -> str:
    """The SLO of the figures, if there is one; for a minimized metric, the load."""
    metric = data.objective.metric
    if metric is not None:
        at = "" if data.best is None else f" at {load_text(data.best.judged.measurement.load)}"
        return f" {metric.words}{at}"
    bounds = [row.worst for row in data.slo if METRICS[row.worst.metric].is_latency]
    if len(bounds) != 1:
        return " within every SLO"
    (slo,) = bounds
    name = METRICS[slo.metric].words.removesuffix(" latency")
    return f" within {name} <= {metric_text(slo.metric, slo.bound)}"


def gain_sentence(data: ReportData) -> str:
    """How certain the gain is, and the basis of the current config's figures.

    If nothing is written, the credits of both configs.
    """
    gain, current, said = data.result.gain, data.current, list[str]()
    if data.status in (Status.KEPT, Status.NOT_KNOWN) and data.best is not None:
        now, there = (worth_or_none(data, c) for c in (current, data.best))
        decides = data.status is Status.KEPT  # else readers would take it for a gain or a loss
        seen = "Measured" if decides else "Measured, but not proved"
        text = f"{seen}: {now} now, {there} with {change_text(data, data.best.candidate)}."
        return " ".join(filter(None, (text, _at_once(data))))
    if data.status is Status.IMPROVED and gain is not None:
        low, best = (_amount(r, gain) for r in (gain.ratio.low, gain.ratio.estimate))
        about = "" if gain.at_least or low == best else f"; best estimate {best}"
        compared = (gain.compared or "goodput").replace("_", " ")
        times = f"{low} the {compared}" if gain.ratio.low >= TIMES else f"{low} in {compared}"
        said.append(f"At least {times} ({gain.confidence:.0%} confidence){about}.")
    said += filter(None, [_at_once(data)])
    if current is None or data.status is not Status.IMPROVED:
        return " ".join(said)
    if current.credited_infer_per_s is None:
        said.append(f"The current config {_why_no_load(current)}.")
    elif current.from_search:
        said.append("The current config was measured once: its figure is rough.")
    return " ".join(said)


def _why_no_load(current: ProvedConfig) -> str:
    """Why the config is credited with no load, as far as that is known."""
    at_most = current.at_most_infer_per_s
    if at_most is None:
        rates = [
            p.level * p.measurement.batch_size
            for p in current.rounds
            if p.measurement.load.arrivals.open_loop and p.outcome is SloOutcome.MISSED
        ]
        lowest = f", not even at {rate_text(min(rates))}" if rates else ""
        return f"met the SLOs at no load{lowest}"
    if current.soak is not None and current.soak.lost:
        missed = min(soaked.throughput_infer_per_s for soaked in current.soak.tried)
        return f"did not sustain {rate_text(missed)} in the soak"
    if any(saturated(p) for p in current.rounds):
        return f"saturates at {rate_text(at_most)}"
    missed = any(p.outcome is SloOutcome.MISSED for p in current.rounds)
    return f"{'missed an SLO at' if missed else 'sustains at most'} {rate_text(at_most)}"


def _at_once(data: ReportData) -> str:
    """The sequences in progress at both credited loads; empty without sequences."""
    counts = [None if c is None else c.sequences_at_once for c in (data.current, data.best)]
    if all(count is None for count in counts):
        return ""
    now, then = ("none" if count is None else digits(count, 4) for count in counts)
    if data.best is None:
        return f"Sequences at once: {now}."
    return f"Sequences at once: {now} with the current config, {then} with the {data.best_name}."


def _open_text(data: ReportData, gain: Gain) -> str:
    """The chance of a gain with its interval, if that includes no gain; else that it is open."""
    low, high, more = gain.ratio.low, gain.ratio.high, data.result.to_know
    if not low < 1.0 < high:
        return "the rounds do not decide between the configs"
    if high > UNBOUNDED and more is None:
        return "the rounds vary too much to compare the configs"
    between = f"{1 - low:.0%} worse to {high - 1:.0%} better, {gain.confidence:.0%} confidence"
    if more is None or more.chance is None:
        return f"the best other config is {between}"
    chance = min(max(round(10 * more.chance), 1), 9)
    return f"the best other config is better with a chance of about {chance} in 10 ({between})"


def _amount(ratio: float, gain: Gain) -> str:
    as_times = gain.ratio.low >= TIMES
    return f"{digits(ratio)}x" if as_times else f"{ratio - 1.0:+.0%}"
