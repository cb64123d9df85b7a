"""The text of each event of a run, shared by all ways to show progress."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, assert_never

from tuner.progress.events import Outlook
from tuner.progress.follower import LoadUnderWay, RunProgress, WarningCounts, best_point
from tuner.report.quantities import margin_text, metric_text, result_text
from tuner.score.judge import SloOutcome, SloResult, Verdict, rank, too_few_text
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.sentences import sentence
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, Better
from tuner.spec.units import count_text, digits

#: A remaining time above the first is shown in minutes, a load longer than the second with its
#: elapsed time.
_FAR_S, _LONG_S = 600.0, 5.0


def started_text(run: Path, trials: int, space_size: int | None) -> str:
    """`run results/r: up to 24 trials of 96 configs`."""
    size = "" if space_size is None else f" of {count_text(space_size, 'config')}"
    return f"run {run}: up to {count_text(trials, 'trial')}{size}"


def point_text(point: Point) -> str:
    """`412/s ok, p99 latency 31.2 ms (<= 40 ms)`: the load and the tightest SLO."""
    return f"{_verdict_of(point)}, {slo_text(tightest_slo(point.slo))}"


def _verdict_of(point: Point) -> str:
    """`412/s ok`."""
    match point.outcome:
        case SloOutcome.MET:
            verdict = "ok"
        case SloOutcome.MISSED:
            tightest = tightest_slo(point.slo)
            unsteady = tightest.verdict is Verdict.NOT_STEADY
            verdict = f"not steady ({tightest.reason})" if unsteady else "missed"
        case SloOutcome.TOO_FEW:
            verdict = too_few_text(point.slo)
        case _:
            assert_never(point.outcome)
    return f"{point.measurement.load} {verdict}"


def tightest_slo(results: Sequence[SloResult]) -> SloResult:
    """The SLO with the worst verdict and, among equal verdicts, the smallest margin.

    An SLO with a bound of zero has no margin, and comes last.
    """
    return min(results, key=lambda r: (rank(r.verdict), r.bound == 0, r.margin or 0.0))


def slo_text(result: SloResult) -> str:
    """`p99 latency 31.2 ms (<= 40 ms)`."""
    bound = metric_text(result.metric, result.bound)
    sign = "<=" if METRICS[result.metric].better is Better.LOWER else ">="
    return f"{_value_text(result)} ({sign} {bound})"


def _value_text(result: SloResult) -> str:
    """`p99 latency 31.2 ms`."""
    value = "unknown" if result.value is None else result_text(result)
    return f"{of_stream(result.stream, METRICS[result.metric].words)} {value}"


def round_text(what: str, sustained: Point) -> str:
    """`round 1, instances 2: 412/s ok, p99 latency 31.2 ms (<= 40 ms)`."""
    return f"{what}: {point_text(sustained)}"


def gain_text(outlook: Outlook | None) -> str:
    """`2.4x as good as current`; empty while the gain is not known."""
    if outlook is None or outlook.gain is None:
        return ""
    return f"{'at least ' * outlook.at_least}{digits(outlook.gain, 3)}x as good as current"


def verdict_text(outlook: Outlook | None) -> str:
    """`verdict in about 3:50`, rounded up to 10 s, or to a minute if above 10 minutes."""
    if outlook is None:
        return ""
    if outlook.left_s <= 0.0:
        return "taking longer than estimated"
    if outlook.left_s > _FAR_S:
        return f"verdict in about {math.ceil(outlook.left_s / 60)} min"
    seconds = 10 * math.ceil(outlook.left_s / 10)
    left = f"{seconds} s" if seconds < 60 else "{}:{:02d}".format(*divmod(seconds, 60))
    return f"verdict in about {left}"


def progress_text(now: RunProgress) -> str:
    """`3/20 trials, best 412/s, 1.3x as good as current, verdict in about 2 min`."""
    best = "" if now.best_infer_per_s is None else f"best {_rate(now.best_infer_per_s)}"
    parts = (done_text(now), best, gain_text(now.outlook), verdict_text(now.outlook))
    return ", ".join(filter(None, parts))


def done_text(now: RunProgress) -> str:
    """`3/20 trials`; empty before the search begins."""
    return f"{now.done}/{count_text(now.trials, 'trial')}" if now.trials else ""


def load_text(under_way: LoadUnderWay, now_s: float) -> str:
    """`at 372/s for 3 s`; for a long load with the elapsed time: `at 372/s, 12 of 30 s`."""
    load, takes_s = under_way.load, under_way.takes_s
    if takes_s <= _LONG_S:
        return f"at {load} for {takes_s:.0f} s"
    return f"at {load}, {min(now_s - under_way.since_s, takes_s):.0f} of {takes_s:.0f} s"


def disturbances_text(count: int) -> str:
    """`measured again after a disturbance: 2 times`; empty for a count of 0."""
    times = count_text(count, "time")
    return f"measured again after a disturbance: {times}" if count else ""


def warning_lines(warnings: WarningCounts) -> list[str]:
    """Each kind of warning once, with its count."""
    return [
        f"note{f', {count} times' * (count > 1)}: {sentence(first)}" for first, count in warnings
    ]


class OutcomeText(NamedTuple):
    """How a trial ended: a short text for a table, a full text for a log."""

    short: str
    full: str


def outcome_text(trial: Trial) -> OutcomeText:
    """How a trial ended, in a few words."""
    if trial.state is TrialState.PRUNED and not trial.points and trial.saturated is not None:
        dropped = f"dropped: at most {_rate(trial.saturated.at_most_per_s or 0.0)}"
        return OutcomeText(dropped, dropped)
    if trial.state is TrialState.FAILED or trial.score is None or not trial.points:
        return OutcomeText("failed", f"failed: {reason_text(trial)}")
    if trial.state is TrialState.PRUNED:
        race, *less = trial.points
        sustained = "".join(f"; sustains {p.measurement.load}" for p in less if p.passed)
        dropped = f"dropped: {_verdict_of(race)}"
        return OutcomeText(dropped, f"dropped: {point_text(race)}{sustained}")
    best = best_point(trial)
    if best is None:
        lowest = min(trial.points, key=lambda p: p.level)
        load, nearest = lowest.measurement.load, slo_text(tightest_slo(lowest.slo))
        if trial.outcome is SloOutcome.TOO_FEW:
            few = too_few_text(lowest.slo)
            return OutcomeText(few, f"{few} for a verdict at {load}: {nearest}")
        missed = f"misses the SLOs down to {load}"
        return OutcomeText(missed, f"{missed}, the lowest load measured: {nearest}")
    rate = "at least " * bool(trial.limit) + _rate(best.measurement.throughput_infer_per_s)
    tightest = tightest_slo(best.slo)
    full = f"{rate} within the SLOs, {slo_text(tightest)}"
    return OutcomeText(f"{rate}, {_value_text(tightest)}", full)


def reason_text(trial: Trial) -> str:
    """Why a trial failed, as one line."""
    text = "" if trial.reason is None else sentence(trial.reason).strip()
    return text.splitlines()[0] if text else "no reason given"


def best_texts(best: Trial, outlook: Outlook | None) -> tuple[str, str]:
    """`412/s, 2.4x as good as current`; and the margin to each SLO."""
    point = best_point(best)
    assert point is not None, "the best trial sustains a load"
    rate = ", ".join(filter(None, (_rate(point.measurement.throughput_infer_per_s),
                                   gain_text(outlook))))  # fmt: skip
    return rate, "; ".join(f"{slo_text(s)}, {margin_text(s)}" for s in point.slo)


def _rate(per_s: float) -> str:
    return f"{digits(per_s, 4)}/s"
