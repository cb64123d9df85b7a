"""The report of a run: the answer on the first screen, then the details as folds.

A new section is a function that makes a fold, and a place in `SECTIONS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from xml.etree import ElementTree as ET

from tuner.measurement.measurement import Measurement
from tuner.reason import ReasonKind
from tuner.record.responses import responses_of
from tuner.record.status import Status
from tuner.report import by_load, ended, junit, sentence, tables, tradeoffs
from tuner.report.blocks import (
    Block,
    Bullets,
    Code,
    Document,
    Fold,
    Row,
    Rows,
    Sentence,
    Steps,
    Table,
    filled,
)
from tuner.report.charts import TrialMarker, sides
from tuner.report.charts.load import load_charts
from tuner.report.charts.request import batches, latency_parts, model_times
from tuner.report.charts.trials import front, history
from tuner.report.data import ReportData, judged_point
from tuner.report.ended import Ended, RequestsOf
from tuner.report.headline import gain_sentence, headline
from tuner.report.quantities import (
    NOTHING,
    latency_text,
    load_text,
    rate_text,
    seconds_text,
    verdict_text,
)
from tuner.report.trust import trust
from tuner.score.judge import SloOutcome, Verdict
from tuner.score.trial import Trial
from tuner.sentences import sentence as sentence_of
from tuner.space.environment import places
from tuner.spec.labels import of_label
from tuner.spec.units import count_text

_REJECTED = (
    "These do not count. Their time is part of the run's time; their figures are in rejected.jsonl."
)
_SIMPLER = (
    "Changes that made no difference were undone, each tested at the first load of the soak. The "
    "rounds are those of the config with all changes, the soak that of the simpler config."
)
#: Warnings of every measurement of an overloaded config.
_OVERLOADED = (ReasonKind.ENDED_EARLY, ReasonKind.UNANSWERED)


#: The word for each status in JUnit.
_PROBLEMS = {
    Status.INTERRUPTED: "error",
    Status.FAILED: "error",
    Status.NOT_KNOWN: "failure",
    Status.INFEASIBLE: "skipped",
}


def document(data: ReportData) -> Document:
    """The whole report."""
    this_run = ended_run(data)
    folds = (section(data) for section in SECTIONS)
    return ended.document(this_run, answer(data), (*first_screen(data, this_run), *folds))


def junit_of(data: ReportData) -> str:
    """A test suite: an SLO not known to be met is a failure, a run that broke is an error."""
    config, facts = data.reported_config, dict[str, str]()
    if config is not None:
        facts["rejected_count"] = str(config.judged.measurement.rejected_count)
    shapes = () if config is None else config.shapes
    return ended.suite(ended_run(data), _confirmation(data), facts, shapes)


def ended_run(data: ReportData) -> Ended:
    """The part of the report that checks have too."""
    size, measured = data.manifest.space_size, data.measured_count
    return Ended(
        kind="run",
        name=data.model,
        run_id=data.run_id,
        started_at=data.manifest.created_at,
        took_s=data.result.time.wall_s,
        status=data.status.value,
        tone=sentence.HEADLINES[data.status][0],
        headline=headline(data),
        facts=(
            (f"{measured} of " if size else "") + count_text(size or measured, "config"),
            tables.machine_text(data.manifest),
            *(f"Triton {v}" for k, v in data.manifest.versions.items() if k == "tritonserver"),
        ),
        slo=data.slo,
        requests=tuple(
            RequestsOf(name, config.shapes, responses_of(judged.measurement))
            for name, _, config, judged in sides(data)
        ),
        steps=sentence.next_steps(data),
    )


def answer(data: ReportData) -> Iterator[Block | None]:
    """The verdict, in sentences and figures."""
    improved = data.status is Status.IMPROVED
    yield Sentence(sentence.busy_text(data))
    yield Sentence("" if improved else sentence.verdict_sentence(data))
    yield Sentence(gain_sentence(data))
    if not improved:
        yield Bullets("", tuple(map(sentence_of, data.result.why)))
    yield tables.change(data)
    yield Bullets("At the edge of the space", tuple(sentence.edge_sentences(data)))


def first_screen(data: ReportData, this_run: Ended) -> Iterator[Block | None]:
    """The basis of the answer, what the config needs, and one picture."""
    yield trust(data)
    yield from ended.request_tables(this_run)
    yield Bullets("First calls", tuple(_first_calls(data)))
    yield Code("Server flags of the config", "\n".join(data.result.server_args))
    yield Code("Server environment of the config", "\n".join(places(data.result.environment)))
    yield Bullets("Caution", tuple(dict.fromkeys(_cautions(data))))
    yield next(iter(load_charts(data)), None)


def _first_calls(data: ReportData) -> Iterator[str]:
    """How much time a `model_warmup` saves users, and where its text is."""
    if (warm_up := data.result.warm_up) is None:
        return
    yield warm_up.sentence
    if warm_up.helps:
        written = any(
            "# model_warmup" in model.config_after for model in data.result.models.values()
        )
        yield f"It is {'a comment in the new config' if written else 'below, to be pasted'}."


def _cautions(data: ReportData) -> Iterator[str]:
    """Warnings about the measurements that the figures come from.

    That the current config was overloaded at the winner's load is no warning.
    """
    yield from data.torn
    for whose, side in (("current config", data.current), (data.best_name, data.best)):
        if side is not None:
            measured = side.judged.measurement
            beaten = side is data.current and data.status is Status.IMPROVED
            missed = beaten and side.judged.outcome is SloOutcome.MISSED
            warnings = [w for w in measured.warnings if not (missed and w.kind in _OVERLOADED)]
            for text in (*measured.disturbance_texts, *map(sentence_of, warnings)):
                yield f"{whose} at {load_text(measured.load)}: {text}"


def failures(data: ReportData) -> Fold:
    """Each reason of failures with the trials that it applies to, the most frequent first."""
    trials_of: dict[str, list[int]] = defaultdict(list)
    for trial in data.failed:
        reason = "no reason was given" if trial.reason is None else sentence_of(trial.reason)
        trials_of[reason].append(trial.number)
    most = sorted(trials_of.items(), key=lambda item: (-len(item[1]), item[1]))
    codes = (Code(f"Trials {', '.join(map(str, numbers))}", text) for text, numbers in most)
    return Fold("failures", "Failed trials", tuple(codes), opened=data.status is Status.FAILED)


def proof(data: ReportData) -> Fold:
    reasons = map(sentence_of, data.result.why) if data.status is Status.IMPROVED else ()
    simpler = data.result.simplification or ()
    blocks = filled(
        ended.slo_table(ended_run(data)),
        Bullets("", (*reasons, *sentence.soak_sentences(data), *tables.noise_sentences(data))),
        tables.simplification(data),
        Sentence(_SIMPLER if any(not r.kept for r in simpler) else "", aside=True),
    )
    title = "How it was proved" if data.status is Status.IMPROVED else "What was measured"
    return Fold("proof", title, blocks)


def diff(data: ReportData) -> Fold:
    files = data.result.written.files if data.result.written else ()
    since = "; it has since been taken back" if data.taken_back else ""
    lines = (
        f"Written to {file.path}"
        f"{f'; the old file is kept as {file.backup}' if file.backup else ''}{since}."
        for file in files
    )
    diff = Code("", data.result.diff or "", "diff")
    return Fold("change", "The change as a diff", filled(diff, *map(Sentence, lines)))


def numbers(data: ReportData) -> Fold:
    blocks = filled(tables.comparison(data), by_load.table(data))
    return Fold("numbers", "Before and after in numbers", blocks)


def loads(data: ReportData) -> Fold:
    return Fold("loads", "The other latencies over the load", load_charts(data)[1:], page_only=True)


def request_time(data: ReportData) -> Fold:
    sentences = Bullets("", tuple(sentence.bottleneck_sentences(data)))
    charts = (latency_parts(data), model_times(data), *batches(data))
    return Fold("request-time", "Where the time of a request goes", filled(sentences, *charts))


def search(data: ReportData) -> Fold:
    """The search; the importance of fields is a hint, since a trial changes several at once."""
    rejected = tables.rejections(data)
    blocks = filled(
        history(data),
        front(data),
        tradeoffs.table(data),
        Sentence(sentence.prediction_sentence(data), aside=True),
        tables.field_importance(data),
        rejected,
        Sentence(_REJECTED, aside=True) if rejected else None,
        tables.wall_time(data),
    )
    return Fold("search", "The search", blocks, page_only=True)


def trials(data: ReportData) -> Fold:
    score = sentence.score_name(data)
    heads = ("trial", "outcome", "change", score, "p99", "refused", "deployed", "time")
    rows = Rows(heads, tuple(_trial(data, t) for t in data.trials))
    return Fold("trials", "Every trial", filled(rows), page_only=True)


def overload(data: ReportData) -> Fold:
    sentences = Bullets("", tuple(sentence.overload_sentences(data)))
    return Fold("overload", "Overload and recovery", filled(sentences))


def warm_up(data: ReportData) -> Fold:
    """A block to paste, or to uncomment if it was written."""
    proposal = data.result.warm_up
    block = Code(
        "For config.pbtxt, as it was tested", proposal.block if proposal and proposal.helps else ""
    )
    return Fold("warm-up", "A warm-up for the first calls", filled(block))


def surroundings(data: ReportData) -> Fold:
    configs = [
        Code(
            f"The config{of_label(label, data.manifest.models)}, as it was read",
            config.text or "There was no config.pbtxt: Triton completed it by itself.",
        )
        for label, config in data.manifest.models.items()
    ]
    texts = Fold(
        "inputs",
        "The spec and the configs, as they were read",
        (Code("The spec, as it was read", data.manifest.spec_text), *configs),
    )
    steps = Steps("How to repeat it", tuple(sentence.repeat_commands(data)))
    blocks = (tables.environment(data), steps, texts)
    return Fold("environment", "Environment, and how to repeat it", blocks, page_only=True)


#: The folds of the report in order; empty ones are left out.
SECTIONS: tuple[Callable[[ReportData], Fold], ...] = (
    failures,
    diff,
    proof,
    numbers,
    loads,
    request_time,
    overload,
    warm_up,
    search,
    trials,
    surroundings,
)


def _trial(data: ReportData, trial: Trial) -> Row:
    judged, outcome = judged_point(trial), TrialMarker.of(trial)
    bound = "at best " if outcome is TrialMarker.PRUNED else ""
    score = sentence.score_text(data, trial.score.value if trial.score else None)
    seconds = sum(asdict(trial.time).values())
    said = sentence.predicted_text(data, trial.predicted) if trial.predicted else ""
    return Row(
        f"trial-{trial.number}",
        (
            str(trial.number),
            outcome.words,
            sentence.change_text(data, trial.candidate),
            f"{bound}{score}",
            tables.p99_of(judged),
            tables.count_of_refused(judged),
            trial.deployment or "",
            seconds_text(seconds),
        ),
        (
            *("", "", ""),
            f"{trial.score.value:.6g}" if trial.score else "",
            f"{judged.limiting.p99_latency_us:.0f}" if judged else "",
            *("", "", f"{seconds:.2f}"),
        ),
        filled(
            Bullets("", tuple(sentence.config_text(trial.candidate))),
            Sentence(f"predicted {said}, 90% interval" if said else ""),
            Sentence("" if trial.reason is None else sentence_of(trial.reason)),
            _points(trial),
        ),
    )


def _points(trial: Trial) -> Table:
    """The loads of one trial."""
    heads = ["load", "throughput", "p50", "p90", "p95", "p99", "refused", "SLOs"]
    restarted = any(p.measurement.restarts for p in trial.points)
    rows = []
    for point in sorted(trial.points, key=lambda p: p.level):
        m, stream = point.measurement, point.limiting
        open_slos = [s for s in point.slo if s.verdict is not Verdict.PASS]
        missed = "; ".join(f"{s.expression} {verdict_text(s)}" for s in open_slos)
        times = (stream.p50_latency_us, stream.p90_latency_us, stream.p95_latency_us)
        rows.append(
            (
                load_text(m.load),
                rate_text(m.throughput_infer_per_s),
                *(latency_text(t) for t in times),
                tables.p99_of(point),
                tables.count_of_refused(point),
                *([_starts(m)] if restarted else []),
                missed or "all met",
            )
        )
    if restarted:
        heads.insert(-1, "starts")
    return Table(tuple(heads), tuple(rows))


def _starts(measurement: Measurement) -> str:
    """The lowest and highest throughput of a closed loop's starts, which may differ in mode."""
    rates = [start.throughput_infer_per_s for start in measurement.restarts]
    return f"{rate_text(min(rates))} to {rate_text(max(rates))}" if rates else NOTHING


def _confirmation(data: ReportData) -> ET.Element:
    verdict, problem = sentence.verdict_sentence(data), None
    if (kind := _PROBLEMS.get(data.status)) is not None:
        message = " ".join((verdict, *map(sentence_of, data.result.why)))
        if kind == "skipped":
            message = "nothing to confirm: no measured config meets the SLOs"
        problem = (kind, data.status.value, message)
    checks = trust(data)
    trusted = [f"{checks.caption}."] if checks else []
    figures = filter(None, (f"{headline(data)}.", gain_sentence(data), *trusted))
    said = (verdict, *figures, *sentence.soak_sentences(data), *sentence.bottleneck_sentences(data))
    return junit.case(data.model, "tune", "confirmation", problem, " ".join(said))
