"""Sentences about a run: its verdict, its configs and scores, and the next steps."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from statistics import median

from tuner.hiding import hidden_command
from tuner.load.watch.machine import OTHER_CPU_PERCENT, taken_percent
from tuner.record.bottleneck import Bottleneck, bottleneck_of
from tuner.record.confirmation import Role
from tuner.record.manifest import check_command, check_options, resume_command, run_command
from tuner.record.proved import ProvedConfig
from tuner.record.remedies import remedies
from tuner.record.status import Status
from tuner.report.blocks import Tone
from tuner.report.charts import sides
from tuner.report.data import ReportData
from tuner.report.quantities import load_text, metric_text, result_text, share_text
from tuner.score.trial import Predicted
from tuner.space.candidate import Candidate
from tuner.space.environment import of_spec
from tuner.space.words import cache_text, changes_text, field_text, variables_text
from tuner.spec.metrics import THROUGHPUT
from tuner.spec.units import count_text, digits

#: Tone and words for each way in which a run ends.
HEADLINES = {
    Status.IMPROVED: (Tone.GOOD, "Better"),
    Status.KEPT: (Tone.GOOD, "Kept"),
    Status.INFEASIBLE: (Tone.BAD, "No config meets the SLOs"),
    Status.NOT_KNOWN: (Tone.UNSURE, "Not known"),
    Status.INTERRUPTED: (Tone.UNSURE, "Interrupted"),
    Status.FAILED: (Tone.BAD, "Failed"),
}


#: Next steps that take longer than this many times the run are not offered.
LONGEST_STEP = 2.0
#: Next step for a run that cannot be resumed.
_EDITED = "run again: a config was edited since the run read it"


def sustained_text(config: ProvedConfig) -> str:
    """Evidence for the goodput: `in each of 3 rounds, and for 30 s`; empty for one round."""
    rounds, met = len(config.rounds), sum(p.passed for p in config.rounds)
    said, sustained = [], config.sustained
    # A soak may sustain more than the short window of a round.
    if rounds > 1 and (sustained is None or sustained.level <= min(p.level for p in config.rounds)):
        each = f"each of {rounds}" if met == rounds else f"{met} of {rounds}"
        said.append(f"in {each} rounds")
    if sustained is not None:
        said.append(f"for {digits(sustained.measurement.duration_s)} s")
    return ", and ".join(said)


def score_text(data: ReportData, value: float | None) -> str:
    """A score in the objective's unit."""
    metric = data.objective.metric
    return metric_text(metric.name if metric else THROUGHPUT.name, value)


def predicted_text(data: ReportData, predicted: Predicted) -> str:
    """The predicted score with its interval: `2,050/s (1,900/s to 2,200/s)`."""
    low, high = score_text(data, predicted.low), score_text(data, predicted.high)
    return f"{score_text(data, predicted.value)} ({low} to {high})"


def prediction_sentence(data: ReportData) -> str:
    """How well the search predicted the scores of trials that met the SLOs at some load."""
    pairs = [
        (t.score.value, t.predicted)
        for t in data.scored
        if t.predicted and t.score and t.score.feasible and t.score.value
    ]
    if not pairs:
        return ""
    inside = sum(p.low <= measured <= p.high for measured, p in pairs)
    typical = median(abs(p.value / measured - 1.0) for measured, p in pairs)
    return (
        f"Of {count_text(len(pairs), 'score')} that the search predicted, {inside} were within the "
        f"90% interval; the median prediction is off by {share_text(typical)}."
    )


def score_axis(data: ReportData) -> tuple[str, float]:
    """Name and unit of the score for an axis, and the factor from its base unit to that unit."""
    unit, factor = (data.objective.metric or THROUGHPUT).unit.axis
    return f"{score_name(data)} ({unit})", factor


def score_name(data: ReportData) -> str:
    """What the score of a trial is: goodput, or the minimized metric."""
    metric = data.objective.metric
    return metric.words if metric else "goodput"


def config_text(candidate: Candidate) -> list[str]:
    """Every searched field and every server argument, one phrase each."""
    fields = [field_text(candidate, knob) for knob in candidate.fields]
    fields += variables_text(candidate)
    cache = cache_text(candidate)
    return [*fields, cache] if cache else fields


def change_text(data: ReportData, candidate: Candidate) -> str:
    """The differences from the current config, in a few words."""
    if data.current is None:
        return ", ".join(config_text(candidate))
    return changes_text(candidate, data.current.candidate)


def verdict_sentence(data: ReportData) -> str:
    """The verdict in a sentence, without its figures."""
    sentence = _verdict(data)
    return sentence[0].upper() + sentence[1:]


def _verdict(data: ReportData) -> str:
    tried = count_text(data.measured_count, "config")
    config = change_text(data, data.best.candidate) if data.best else "the best config"
    if data.status is Status.IMPROVED:
        if data.taken_back:
            return f"wrote {config}, then rolled it back."
        return f"wrote {config}." if data.result.written else f"proposes {config}, without writing."
    if data.status is Status.KEPT:
        again = any(r.role is Role.CANDIDATE for r in data.repeats)
        but = ", and one that looked better was not when measured again" if again else ""
        return f"no gain worth a change was found among {tried} measured{but}."
    if data.status is Status.INFEASIBLE:
        only = data.measured_count == 1
        none = (
            "the only config measured does not meet" if only else f"none of {tried} measured meets"
        )
        if data.reported_config is None or not data.missed:
            return f"{none} every SLO."
        misses = (f"{r.expression}, measured {result_text(r)}" for r in data.missed[:2])
        is_current = data.reported_config is data.current
        config = (
            "the current config"
            if is_current
            else change_text(data, data.reported_config.candidate)
        )
        start = f"{none} every SLO; the nearest, {config}, misses"
        return f"{start} {'; '.join(misses)}."
    if data.status is Status.NOT_KNOWN:
        return "no gain was proved, and none ruled out; the current config stays."
    how = "failed" if data.status is Status.FAILED else "was stopped"
    start = f"the run {how} after {count_text(len(data.trials), 'trial')}; nothing was written"
    if data.best is None or data.best.credited_infer_per_s is None:
        return f"{start}."
    return f"{start}. Best so far, not confirmed: {config}."


def edge_sentences(data: ReportData) -> list[str]:
    """Fields that may have a better value in a wider space, with the line for the spec."""
    many = len(data.manifest.models) > 1
    return [
        f"The best value of {edge.field}{f' of {edge.model}' if many else ''} is the "
        f"{'largest' if edge.largest else 'smallest'} that the space allows ({edge.value} of "
        f"{edge.allowed}). To widen it, write in space: {edge.field}: {edge.wider}"
        for edge in data.result.edges
    ]


def overload_sentences(data: ReportData) -> list[str]:
    """The overload of each config, or why there was none."""
    overload = data.result.overload
    if overload is None:
        return []
    named = (("current config", overload.current), (data.best_name, overload.winner))
    sentences = [f"{name.capitalize()}: {probe.sentence}" for name, probe in named if probe]
    return [*sentences, *(reason[0].upper() + reason[1:] for reason in overload.reasons)]


def soak_sentences(data: ReportData) -> list[str]:
    """The results of each soak of the config that the verdict is about."""
    soak = None if data.reported_config is None else data.reported_config.soak
    if soak is None:
        return []
    return [f"Soak: {sentence.rstrip('.')}." for sentence in soak.sentences]


def bottleneck_sentences(data: ReportData) -> list[str]:
    """The model in which a request spends most of its time, for each config."""
    bottlenecks = ((name, bottleneck_of(point, data.manifest)) for name, *_, point in sides(data))
    return [
        f"{name.capitalize()}: {bottleneck_text(b)}." for name, b in bottlenecks if b is not None
    ]


def bottleneck_text(bottleneck: Bottleneck) -> str:
    """`at 300/s a request spends 78% of its time in tiny-bert, 61% of that queueing`.

    If the stream uses a single model, only the queueing is given.
    """
    whose = f" of the stream {bottleneck.stream}" if bottleneck.stream else ""
    spent, queueing = (f"{100 * part:.0f}%" for part in (bottleneck.share, bottleneck.queue_share))
    if bottleneck.share == 1:
        where = f"{queueing} of its time queueing for {bottleneck.model}"
    else:
        where = f"{spent} of its time in {bottleneck.model}, {queueing} of that queueing"
    return f"at {load_text(bottleneck.load)} a request{whose} spends {where}"


def busy_text(data: ReportData) -> str:
    """How much of the machine other work took, if the answer stayed open; else empty."""
    taken = max((taken_percent(r.point.measurement) for r in data.repeats), default=0.0)
    if data.status is not Status.NOT_KNOWN or taken <= OTHER_CPU_PERCENT:
        return ""
    return (
        f"Other programs and pauses of the machine took up to {digits(taken, 2)}% of the CPU while "
        "this was measured, so the answer stayed open."
    )


def next_steps(data: ReportData) -> list[tuple[str, str]]:
    """Next steps: (reason, command) pairs; the command may be empty."""
    if data.status is Status.IMPROVED:
        return _steps_to_write(data)
    go_on = resume_command(data.directory, [data.manifest.spec_path], data.manifest.choices)
    again = run_command([data.manifest.spec_path or "SPEC"], data.manifest.choices)
    edited = data.manifest.is_edited
    if data.status is Status.NOT_KNOWN and busy_text(data):
        then, command = (
            ("go on where it stopped", go_on)
            if data.result.to_know is not None and not edited
            else ("run again", again)
        )
        return [(f"stop the other work on this machine, then {then}", command)]
    failed = ", ".join(str(t.number) for t in data.failed if data.status is Status.INFEASIBLE)
    text = f"fix why configs failed, or leave them out of the space: trial {failed}"
    fix = [(text, "")] if failed else []
    if causes := remedies(data.result.why):
        return [*fix, *((cause, "") for cause in causes), ("then run again", again)]
    if data.status is Status.KEPT:
        if len(data.trials) == data.manifest.space_size:
            return [("every config of the space was tried: another space may have better ones", "")]
        return [("search further: raise the budget, or widen the space", again)]
    if data.status is Status.INFEASIBLE:
        return [
            *fix,
            ("see above which SLO is out of reach, and by how much", ""),
            ("widen the space, relax that SLO, or use faster hardware", again),
        ]
    if data.status is Status.NOT_KNOWN:
        return [_step_to_know(data, go_on, again)]
    if data.status is Status.FAILED:
        return [
            ("read the reasons above, those of each trial, and the run's logs/server.log", ""),
            ("check this machine", "tune doctor"),
        ]
    return [(_EDITED, again) if edited else ("resume it where it stopped", go_on)]


def _steps_to_write(data: ReportData) -> list[tuple[str, str]]:
    """Next steps for a better config that is written, or can be."""
    run = shlex.quote(str(data.directory))
    flags = [("start the server with the flags below", "")] if data.result.server_args else []
    if needed := data.result.environment:
        flags.append(("set the variables below in the server's environment", ""))
        flags.append((f"and in {_spec(data)}, for later runs: {of_spec(needed)}", ""))
    if data.result.written is None or data.taken_back:
        return [
            ("look at the change", f"tune apply {run} --dry-run"),
            ("write it again" if data.taken_back else "write it", f"tune apply {run}"),
            *flags,
        ]
    models = [Path(file.path).parent.name for file in data.result.written.files]
    model = shlex.quote(models[0])  # a rollback includes what was written with it
    url = "localhost:8000/v2/repository/models"
    loads = (f"-X POST {url}/{shlex.quote(name)}/load" for name in models)
    reload = f"curl {' --next '.join(loads)}"
    repository = shlex.quote(str(data.manifest.repository))
    options = check_options(data.manifest.choices, data.directory.parent)
    accept = check_command(data.manifest.spec_path, options, "--update-baseline")
    all_models = f" ({', '.join(models)})" if models[1:] else ""
    what = "it" if not models[1:] else f"{'both' if len(models) == 2 else 'all'} configs"
    return [
        (f"undo {what}{all_models}", f"tune rollback {model} --repository {repository}"),
        ("let a running server read it, or restart the server", reload),
        *flags,
        ("make it the baseline of later checks", accept),
    ]


def _step_to_know(data: ReportData, go_on: str, again: str) -> tuple[str, str]:
    more = data.result.to_know
    if more is None:  # more rounds would not help
        return "see the reasons above, then run again", again
    if data.manifest.is_edited:
        return _EDITED, again
    minutes = max(math.ceil(more.minutes), 1)
    if 60.0 * minutes > LONGEST_STEP * data.result.time.wall_s:
        what = f"about {minutes} more minutes of rounds would settle it"
        return f"{what}: bound a lower percentile, or use a quieter machine, then run again", again
    rounds = count_text(more.rounds, "more round")
    return f"{rounds} (about {minutes} min) would settle it", f"{go_on} --more {minutes}m"


def repeat_commands(data: ReportData) -> list[tuple[str, str]]:
    """(what, command line) pairs that repeat the run."""
    manifest = data.manifest
    seed = ("--seed", str(manifest.seed))
    same = run_command([manifest.spec_path or "SPEC"], manifest.choices, *seed)
    return [
        ("the run, as it was started", shlex.join(hidden_command(manifest.command))),
        ("the same search, from its seed", same),
        ("this report", f"tune report {shlex.quote(str(data.directory))}"),
    ]


def _spec(data: ReportData) -> str:
    return shlex.quote(data.manifest.spec_path or "SPEC")
