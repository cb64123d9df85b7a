"""Whether the answer can be trusted, as a list of checks."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.load.watch.machine import OTHER_CPU_PERCENT, taken_percent
from tuner.reason import ReasonKind
from tuner.record.confirmation import Soak
from tuner.record.proved import ProvedConfig
from tuner.record.status import Status
from tuner.report.blocks import Table, Tone
from tuner.report.data import ReportData
from tuner.report.quantities import beside_bound, load_text, metric_text, verdict_text
from tuner.score.judge import SloOutcome, Verdict
from tuner.sentences import clause, sentence
from tuner.space.words import changes_text
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS
from tuner.spec.units import count_text, digits, digits_beside

Check = tuple[Tone, str, str]
_WORDS = {Tone.GOOD: "yes", Tone.BAD: "no", Tone.UNSURE: "caution", Tone.PLAIN: "not done"}
TONES = {SloOutcome.MET: Tone.GOOD, SloOutcome.MISSED: Tone.BAD, SloOutcome.TOO_FEW: Tone.UNSURE}
_ANSWERS = {
    ReasonKind.ANSWERS_SAME: Tone.GOOD,
    ReasonKind.ANSWERS_CHANGED: Tone.BAD,
    ReasonKind.ANSWERS_VARY: Tone.UNSURE,
    ReasonKind.ANSWERS_NOT_COMPARED: Tone.UNSURE,
}


def trust(data: ReportData) -> Table | None:
    """The checks of the config that the answer is about; the caption has the overall verdict."""
    if data.reported_config is None or data.status not in (
        Status.IMPROVED,
        Status.KEPT,
        Status.NOT_KNOWN,
    ):
        return None
    checks = [*_checks(data, data.reported_config)]
    tones = [tone for tone, *_ in checks]
    word = "Yes" if {*tones} == {Tone.GOOD} else "With caution"
    if data.status is Status.NOT_KNOWN:
        word = "No"
    rows = tuple((_WORDS[tone], check, text) for tone, check, text in checks)
    return Table(("", "check", "result"), rows, f"Can I trust it? {word}", tuple(tones))


def _checks(data: ReportData, config: ProvedConfig) -> Iterator[Check]:
    yield _rounds(data, config)
    if config.soak is not None:
        yield from _soaks(config.soak)
    elif data.status is Status.IMPROVED:
        yield Tone.UNSURE, "no soak", "whether the load is sustained for long was not measured"
    name = changes_text(config.candidate, data.manifest.current)
    for reason in data.result.why:
        if reason.subject == name and reason.kind in _ANSWERS:
            yield _ANSWERS[reason.kind], "answers", clause(reason)
    yield from _lone_requests(data, config)
    yield _machine(data, config)
    for reason in data.result.why:
        if reason.kind is ReasonKind.LEFT_OUT:
            yield Tone.PLAIN, "left out for lack of time", str(reason.facts["what"])


def _rounds(data: ReportData, config: ProvedConfig) -> Check:
    """The latencies of the rounds, and the loads of the rounds."""
    rounds, met = config.rounds, sum(p.passed for p in config.rounds)
    loads = [p.measurement.load for p in sorted(rounds, key=lambda p: p.level)]
    at = " to ".join(dict.fromkeys(map(load_text, (loads[0], loads[-1]))))
    texts = []
    for row in data.slo:
        slo, metric = row.worst, METRICS[row.worst.metric]
        values_ = sorted(value for value in row.values if value is not None)
        if not values_ or not (metric.is_latency or slo.verdict is not Verdict.PASS):
            continue
        values = " to ".join(dict.fromkeys(beside_bound(slo, v) for v in (values_[0], values_[-1])))
        name = of_stream(slo.stream, metric.words)
        text = f"{name} {values} of {metric_text(slo.metric, slo.bound)}"
        texts.append(text if slo.verdict is Verdict.PASS else f"{text}, {verdict_text(slo)}")
    said = f"{'; '.join(texts) or 'every SLO met'}, at {at}"
    if config.from_search:
        return Tone.UNSURE, "no rounds: measured once in the search", said
    missed = any(p.outcome is SloOutcome.MISSED for p in rounds)
    tone = Tone.BAD if missed else Tone.GOOD if met == len(rounds) else Tone.UNSURE
    return tone, f"{met} of {count_text(len(rounds), 'round')} on fresh servers", said


def _soaks(soak: Soak) -> Iterator[Check]:
    """Each soak, with lost ones first."""
    for tried in soak.tried:
        summary = f"{digits(tried.measurement.duration_s)} s: {tried.summary}"
        tone = TONES[tried.point.outcome]
        lowered = "" if tried.sustained or soak.sustained is None else ", so the claim was lowered"
        yield tone, f"soak at {load_text(tried.measurement.load)}", f"{summary}{lowered}"
        yield from ((Tone.UNSURE, "over that time", sentence(r)) for r in tried.trends)
    yield from ((Tone.UNSURE, "soak", text) for text in soak.limited)
    if soak.why_unknown is not None:
        yield Tone.UNSURE, "soak", soak.reason


def _lone_requests(data: ReportData, config: ProvedConfig) -> Iterator[Check]:
    """Whether the queue policy serves lone requests again after an overload."""
    overload = data.result.overload
    probe = overload and (overload.current if config is data.current else overload.winner)
    if probe and probe.lone:
        tone = Tone.GOOD if probe.lone.served == probe.lone.asked else Tone.BAD
        yield tone, "after an overload", probe.lone.text


def _machine(data: ReportData, config: ProvedConfig) -> Check:
    """Whether the configs had the whole machine, in each round and soak."""
    sides = (config, *(side for side in (data.current, data.best) if side is not None))
    soaks = [s.point for side in sides if side.soak for s in side.soak.tried]
    measured = [p.measurement for p in (*(p for side in sides for p in side.rounds), *soaks)]
    worst = max(measured, key=lambda m: (bool(m.disturbances), taken_percent(m)))
    taken = max(map(taken_percent, measured))
    count = next((m.host.cores for m in measured if m.host.cores), None)
    cores = count_text(count, "core") if count else "the CPU"
    if all(m.host.other_cpu_percent is None for m in measured):
        return Tone.UNSURE, "machine", f"what others took of {cores} is not known"
    most = digits_beside(taken, OTHER_CPU_PERCENT)
    said = f"other programs and pauses took at most {most}% of {cores}"
    if worst.disturbances:
        return Tone.UNSURE, "busy machine", f"{said}: {' '.join(worst.disturbance_texts)}"
    quiet = taken <= OTHER_CPU_PERCENT
    return (Tone.GOOD, "quiet machine", said) if quiet else (Tone.UNSURE, "busy machine", said)
