"""The run in one sentence, and its configs and scores in words."""

from __future__ import annotations

from tuner.report.data import ReportData
from tuner.report.quantities import count_text, load_text, metric_text, rate_text
from tuner.report.side import Side
from tuner.run.bottleneck import Bottleneck, bottleneck_of
from tuner.run.confirmation import Role
from tuner.run.status import Status
from tuner.score.judge import value_of
from tuner.score.trial import Predicted
from tuner.score.verdict import Verdict
from tuner.space.candidate import Candidate
from tuner.space.words import cache_text, changes_text, field_text
from tuner.spec.metrics import THROUGHPUT

HEADLINES = {
    Status.IMPROVED: "Improved",
    Status.KEPT: "Current config kept",
    Status.INFEASIBLE: "No config meets the SLOs",
    Status.UNCONFIRMED: "Not confirmed",
    Status.INTERRUPTED: "Interrupted",
    Status.FAILED: "Failed",
}


def score_text(data: ReportData, value: float | None) -> str:
    """A score in the objective's unit."""
    metric = data.objective.metric
    return metric_text(metric.name if metric else THROUGHPUT.name, value)


def predicted_text(data: ReportData, predicted: Predicted) -> str:
    """What was expected, with its interval: `2,050/s (1,900/s to 2,200/s)`."""
    low, high = score_text(data, predicted.low), score_text(data, predicted.high)
    return f"{score_text(data, predicted.value)} ({low} to {high})"


def score_axis(data: ReportData) -> tuple[str, float]:
    """What the score is, with the unit of an axis, and the factor from its base unit to that."""
    metric = data.objective.metric
    unit, factor = (metric or THROUGHPUT).unit.axis
    return f"{metric.name if metric else 'goodput'} ({unit})", factor


def config_text(candidate: Candidate) -> list[str]:
    """Every searched field and every server argument, one phrase each."""
    fields = [field_text(knob, value) for knob, value in candidate.fields.items()]
    cache = cache_text(candidate)
    return [*fields, cache] if cache else fields


def change_text(data: ReportData, candidate: Candidate) -> str:
    """What differs from the current config, in a few words."""
    if data.current is None:
        return ", ".join(config_text(candidate))
    return changes_text(candidate, data.current.candidate)


def verdict_sentence(data: ReportData) -> str:
    """The run in one sentence, with its numbers and their confidence."""
    sentence = {
        Status.IMPROVED: _improved,
        Status.KEPT: _kept,
        Status.INFEASIBLE: _infeasible,
        Status.UNCONFIRMED: _unconfirmed,
        Status.INTERRUPTED: _unfinished,
        Status.FAILED: _unfinished,
    }[data.status](data)
    return sentence[0].upper() + sentence[1:]


def overload_sentences(data: ReportData) -> list[str]:
    """What each config did beyond its capacity, or why that is not known."""
    if data.overload is None:
        return []
    sentences = [
        f"{name.capitalize()}: {overload.sentence}"
        for name, overload in (
            ("current config", data.overload.current),
            (data.best_name, data.overload.winner),
        )
        if overload is not None
    ]
    return [*sentences, *(reason[0].upper() + reason[1:] for reason in data.overload.reasons)]


def soak_sentences(data: ReportData) -> list[str]:
    """What each soak of the config that the verdict is about showed."""
    if data.subject is None:
        return []
    curve = data.subject.soak.curve
    none = [f"Load curve: {curve.sentence}."] if curve and not curve.points else []
    told = (f"Soak: {sentence.removesuffix('.')}." for sentence in data.subject.soak.sentences)
    return [*told, *none]


def bottleneck_sentences(data: ReportData) -> list[str]:
    """In which of several models a request spends most of its time, for each config."""
    named = (("current config", data.current), (data.best_name, data.best))
    sentences = []
    for name, side in named:
        point = None if side is None else side.judged
        found = None if point is None else bottleneck_of(point, data.manifest)
        if found is not None:
            sentences.append(f"{name.capitalize()}: {bottleneck_text(found)}.")
    return sentences


def bottleneck_text(found: Bottleneck) -> str:
    """At 300/s a request spends 78 % of its time in tiny-bert, 61 % of that queueing.

    If the stream uses one model only, all of the time is spent there: only queueing is named.
    """
    whose = f" of the stream {found.stream}" if found.stream else ""
    spent, queueing = (f"{100 * part:.0f} %" for part in (found.share, found.queue_share))
    if found.share == 1:
        where = f"{queueing} of its time queueing for {found.model}"
    else:
        where = f"{spent} of its time in {found.model}, {queueing} of that queueing"
    return f"at {load_text(found.load)} a request{whose} spends {where}"


def _improved(data: ReportData) -> str:
    assert data.best is not None
    not_there = "found, wrote and took back" if data.taken_back else "found, and did not write,"
    verb = "writes" if data.in_place else not_there
    standing = _standing(data, data.best)
    return f"{verb} {change_text(data, data.best.candidate)}: {standing}{_gain(data)}."


def _kept(data: ReportData) -> str:
    standing = f"; the current config: {_standing(data, data.current)}" if data.current else ""
    tried = count_text(data.measured_count, "config")
    looked_better = any(r.role is Role.CANDIDATE for r in data.repeats)
    again = ", and what looked better was not better when measured again" if looked_better else ""
    return (
        f"nothing better than the current config was found among {tried} measured{again}{standing}."
    )


def _infeasible(data: ReportData) -> str:
    side = data.best or data.current
    tried = count_text(data.measured_count, "config")
    missed = [row.found for row in data.slo if row.found.verdict is not Verdict.PASS]
    if side is None or not missed:
        return f"none of {tried} measured meets every SLO."
    worst = "; ".join(f"{r.expression}, found {metric_text(r.metric, r.value)}" for r in missed[:2])
    name = change_text(data, side.candidate)
    return f"none of {tried} measured meets every SLO; the nearest, {name}, misses {worst}."


def _unconfirmed(data: ReportData) -> str:
    name = change_text(data, data.best.candidate) if data.best else "the best config"
    return (
        f"{name} was best in the search but was not confirmed, for the reasons below; "
        "the current config stays."
    )


def _unfinished(data: ReportData) -> str:
    how = "failed" if data.status is Status.FAILED else "was stopped"
    start = f"the run {how} after {count_text(len(data.trials), 'trial')}; nothing was written"
    if data.best is None or data.best.goodput_infer_per_s is None:
        return f"{start}."
    name = change_text(data, data.best.candidate)
    return f"{start}. Best so far, not confirmed: {name}, {_standing(data, data.best)}."


def _standing(data: ReportData, side: Side | None) -> str:
    """`2,050/s within p99_latency <= 40ms in each of 3 rounds`, the worst of the rounds.

    For a minimised metric: its worst, and the load.
    """
    if side is None or side.judged is None:
        return "not measured"
    slo = " and ".join(s.expression for s in side.judged.slo)
    metric = data.objective.metric
    if metric is not None:
        points = [r.point for r in side.proofs] or [side.judged]
        values = [value_of(metric, p.measurement) for p in points]
        worst = max((v for v in values if v is not None), default=None)
        load = load_text(side.judged.measurement.load)
        found = metric_text(metric.name, worst)
        return f"{metric.name} {found} at {load} within {slo}{side.rounds_text}"
    if side.goodput_infer_per_s is None:
        return f"no load tried met {slo}"
    least = "at least " if side.at_least else ""
    return f"{least}{rate_text(side.goodput_infer_per_s)} within {slo}{side.rounds_text}"


def _gain(data: ReportData) -> str:
    if data.improvement is None:
        reason = "the current config does not meet the SLOs"
        return f"; {reason}" if data.current and data.current.goodput_infer_per_s is None else ""
    times, means = data.improvement.times_text, data.improvement.means
    if not data.maximizes:
        said = f", {times} better than the current config"
    elif data.improvement.compared == "capacity":
        said = f"; its capacity is {times} the current config's"
        if means is not None:
            less = "less than " if data.improvement.at_least else ""
            said += f", {rate_text(means.winner)} over {less}{rate_text(means.current)} on average"
    else:
        said = f", {times} the current config"
    return f"{said} ({data.improvement.confidence_text})"
