"""The run in one sentence, and its configs and scores in words."""

from __future__ import annotations

from statistics import median

from tuner.report.data import ReportData
from tuner.report.quantities import count_text, load_text, metric_text, share_text
from tuner.run.bottleneck import Bottleneck, bottleneck_of
from tuner.run.confirmation import Role
from tuner.run.status import Status
from tuner.score.judge import Verdict
from tuner.score.trial import Predicted
from tuner.space.candidate import Candidate
from tuner.space.words import cache_text, changes_text, field_text
from tuner.spec.metrics import THROUGHPUT

HEADLINES = {
    Status.IMPROVED: "Improved",
    Status.KEPT: "Current config kept",
    Status.INFEASIBLE: "No config meets the SLOs",
    Status.UNCONFIRMED: "Not known: no config was confirmed to be better",
    Status.INTERRUPTED: "Interrupted",
    Status.FAILED: "Failed",
}


def headline(data: ReportData) -> str:
    """The verdict in a few words; of a winner, whether it was written."""
    if data.status is not Status.IMPROVED:
        return HEADLINES[data.status]
    if data.result.written is None:
        return f"{HEADLINES[data.status]}, not written"
    return f"{HEADLINES[data.status]}, written{' and taken back' if data.taken_back else ''}"


def score_text(data: ReportData, value: float | None) -> str:
    """A score in the objective's unit."""
    metric = data.objective.metric
    return metric_text(metric.name if metric else THROUGHPUT.name, value)


def predicted_text(data: ReportData, predicted: Predicted) -> str:
    """What was expected, with its interval: `2,050/s (1,900/s to 2,200/s)`."""
    low, high = score_text(data, predicted.low), score_text(data, predicted.high)
    return f"{score_text(data, predicted.value)} ({low} to {high})"


def prediction_sentence(data: ReportData) -> str:
    """How well the search predicted the scores, of the trials that met the SLOs at some load."""
    pairs = [
        (t.score.value, t.predicted)
        for t in data.scored
        if t.predicted and t.score and t.score.feasible and t.score.value
    ]
    if not pairs:
        return ""
    inside = sum(p.low <= found <= p.high for found, p in pairs)
    typical = median(abs(p.value / found - 1.0) for found, p in pairs)
    return (
        f"Of {count_text(len(pairs), 'score')} that the search predicted, {inside} held within the "
        f"90% interval; the median prediction is off by {share_text(typical)}."
    )


def score_axis(data: ReportData) -> tuple[str, float]:
    """What the score is, with the unit of an axis, and the factor from its base unit to that."""
    metric = data.objective.metric
    unit, factor = (metric or THROUGHPUT).unit.axis
    return f"{metric.words if metric else 'goodput'} ({unit})", factor


def config_text(candidate: Candidate) -> list[str]:
    """Every searched field and every server argument, one phrase each."""
    fields = [field_text(candidate, knob) for knob in candidate.fields]
    cache = cache_text(candidate)
    return [*fields, cache] if cache else fields


def change_text(data: ReportData, candidate: Candidate) -> str:
    """What differs from the current config, in a few words."""
    if data.current is None:
        return ", ".join(config_text(candidate))
    return changes_text(candidate, data.current.candidate)


def verdict_sentence(data: ReportData) -> str:
    """What the run came to, in a sentence; its figures are told apart."""
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
    found = data.result.overload
    if found is None:
        return []
    named = (("current config", found.current), (data.best_name, found.winner))
    sentences = [f"{name.capitalize()}: {probe.sentence}" for name, probe in named if probe]
    return [*sentences, *(reason[0].upper() + reason[1:] for reason in found.reasons)]


def soak_sentences(data: ReportData) -> list[str]:
    """What each soak of the config that the verdict is about showed."""
    if data.subject is None:
        return []
    curve = data.subject.soak.curve
    around = [f"Load curve: {curve.sentence}."] if curve else []
    told = (f"Soak: {sentence.removesuffix('.')}." for sentence in data.subject.soak.sentences)
    return [*told, *around]


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
    """At 300/s a request spends 78% of its time in tiny-bert, 61% of that queueing.

    If the stream uses one model only, all of the time is spent there: only queueing is named.
    """
    whose = f" of the stream {found.stream}" if found.stream else ""
    spent, queueing = (f"{100 * part:.0f}%" for part in (found.share, found.queue_share))
    if found.share == 1:
        where = f"{queueing} of its time queueing for {found.model}"
    else:
        where = f"{spent} of its time in {found.model}, {queueing} of that queueing"
    return f"at {load_text(found.load)} a request{whose} spends {where}"


def _improved(data: ReportData) -> str:
    assert data.best is not None
    verb = "writes" if data.result.written else "found, and did not write,"
    verb = "found, wrote and took back" if data.taken_back else verb
    return f"{verb} {change_text(data, data.best.candidate)}."


def _kept(data: ReportData) -> str:
    tried = count_text(data.measured_count, "config")
    looked_better = any(r.role is Role.CANDIDATE for r in data.repeats)
    again = ", and what looked better was not better when measured again" if looked_better else ""
    return f"nothing better than the current config was found among {tried} measured{again}."


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
    return f"{name} was best in the search but was not confirmed; the current config stays."


def _unfinished(data: ReportData) -> str:
    how = "failed" if data.status is Status.FAILED else "was stopped"
    start = f"the run {how} after {count_text(len(data.trials), 'trial')}; nothing was written"
    if data.best is None or data.best.goodput_infer_per_s is None:
        return f"{start}."
    return f"{start}. Best so far, not confirmed: {change_text(data, data.best.candidate)}."
