"""Tables other than those of charts, and the tile of an SLO."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tuner.measurement.measurement import FailureReason, Measurement, ServerStatistics
from tuner.record.manifest import Manifest
from tuner.record.proved import ProvedConfig
from tuner.record.status import Status
from tuner.report.analysis import importance, value_text
from tuner.report.blocks import Table, Tile
from tuner.report.charts import sides
from tuner.report.data import ReportData
from tuner.report.quantities import (
    NOTHING,
    VERDICTS,
    latency_text,
    load_text,
    metric_text,
    rate_text,
    seconds_text,
    share_text,
    time_text,
    value_and_bound,
    verdict_text,
)
from tuner.report.responses import count_of, latency_metrics
from tuner.report.sentence import score_text, sustained_text
from tuner.score.judge import SloOutcome, SloResult, too_few_text
from tuner.score.point import Point
from tuner.sentences import sentence
from tuner.spec.labels import labelled, of_stream, several
from tuner.spec.metrics import METRICS, Better
from tuner.spec.units import bytes_text, count_text, digits


def comparison(data: ReportData) -> Table | None:
    """The current and the best config side by side, each at the load that stands for it.

    With several rounds, that is the load of the worst round.
    """
    sides_ = [*sides(data)]
    if not sides_:
        return None
    names = tuple(name for name, *_ in sides_)
    goodputs = tuple(_goodput(side) for _, _, side, _ in sides_)
    again = any(len(side.rounds) > 1 for _, _, side, _ in sides_)
    soaked = any(side.sustained for _, _, side, _ in sides_)
    rows = [("goodput, worst of the rounds" if again and not soaked else "goodput", *goodputs)]
    rows += _means(data) if len(sides_) == 2 else []  # only of both configs
    numbers = rows_of([_numbers(point, data.computing) for *_, point in sides_])
    rows += [(name, *cells) for name, *cells in numbers if {*cells} != {NOTHING}]
    return Table(("", *names), tuple(rows))


def rows_of(columns: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """A row for each name in any of the columns, with `-` in columns without it."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, *(column.get(name, NOTHING) for column in columns)) for name in names]


def slo_tile(worst: SloResult) -> Tile:
    """How much of one SLO is used up."""
    metric = METRICS[worst.metric]
    lower = metric.better is Better.LOWER
    share = worst.value / worst.bound if lower and worst.value and worst.bound else None
    return Tile(
        of_stream(worst.stream, metric.words),
        value_and_bound(worst),
        verdict_text(worst),
        VERDICTS[worst.verdict][0],
        share,
    )


def change(data: ReportData) -> Table | None:
    """The fields in which the winner, or the nearest config, differs from the current config.

    The caption names the files that were written, by their paths in the repository.
    """
    if data.best is None or data.current is None or data.reported_config is data.current:
        return None
    now, then = data.current.candidate.values, data.best.candidate.values
    many = len(data.manifest.models) > 1
    rows = tuple(
        (
            *([knob.owner, knob.path] if many else [data.manifest.current.title(knob)]),
            value_text(knob, now.get(knob)),
            value_text(knob, then.get(knob)),
        )
        for knob in data.best.candidate.changed(data.current.candidate)
    )
    heads = ("model", "field") if many else ("field",)
    if data.status is not Status.IMPROVED:
        return Table((*heads, "now", "there"), rows, f"The {data.best_name}")
    paths = [Path(file.path) for file in data.result.written.files] if data.result.written else []
    root = data.manifest.repository
    files = [str(p.relative_to(root) if p.is_relative_to(root) else p) for p in paths]
    where = f" in {' and '.join(files)}" if files else ""
    return Table((*heads, "before", "after"), rows, f"The change{where}")


def _goodput(config: ProvedConfig) -> str:
    goodput = config.credited_infer_per_s
    if goodput is None:
        at_most = config.at_most_infer_per_s
        few = too_few_text(config.judged.slo) if config.outcome is SloOutcome.TOO_FEW else NOTHING
        return few if at_most is None else f"at most {rate_text(at_most)}"
    return " ".join(filter(None, (rate_text(goodput, config.at_least), sustained_text(config))))


def _means(data: ReportData) -> list[tuple[str, ...]]:
    """The means whose ratio is the gain; empty for a minimized metric."""
    gain = data.result.gain
    if gain is None or gain.means is None or not data.maximizes:
        return []
    current, best = rate_text(gain.means.current), rate_text(gain.means.best)
    if gain.at_least:
        current = f"less than {current}"
    elif gain.rounds is not None and gain.rounds.current < gain.rounds.best:
        current += f" in {count_text(gain.rounds.current, 'round')}"
    return [(f"{gain.compared}, mean of the rounds", current, best)]


def _numbers(point: Point, labels: Collection[str]) -> dict[str, str]:
    m, host = point.measurement, point.measurement.host
    cpu = None if host.cpu_percent is None else host.cpu_percent / 100
    memory = host.gpu_memory_used_bytes
    timed = latency_metrics(m)
    return {
        "measured at load": load_text(m.load),
        "throughput": rate_text(m.throughput_infer_per_s),
        **{metric.words: metric_text(metric.name, point.reading(metric)) for metric in timed},
        "responses per request": NOTHING if m.responses is None else count_of(m.responses),
        "requests in the window": f"{m.completed_count:,}",
        "failed requests": f"{m.failed_count:,}",
        **{f"of which {reason.words}": _failures(m, reason) for reason in FailureReason},
        "requests without an answer": _unless_zero(m.unanswered_count),
        **_by_model(m.models, labels),
        **_by_stream(point),
        "CPU, all cores": share_text(cpu),
        "GPU memory": NOTHING if memory is None else bytes_text(memory),
        "GPU utilisation": share_text(host.gpu_utilization),
        "GPU power": NOTHING if host.gpu_power_w is None else f"{host.gpu_power_w:.0f} W",
    }


def _by_model(models: Mapping[str, ServerStatistics], labels: Collection[str]) -> dict[str, str]:
    rows: dict[str, str] = {}
    for label, server in models.items():
        if label in labels:
            hits = server.cache_hit_rate if server.cache_hit_count else None
            batch = server.mean_batch_size
            mean = NOTHING if batch is None else digits(batch)
            rows[labelled(label, "mean batch", models)] = mean
            rows[labelled(label, "cache hit rate", models)] = share_text(hits)
    return rows


def _by_stream(point: Point) -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, stream in point.measurement.streams.items():
        rows |= {
            f"{name}: throughput": rate_text(stream.throughput_infer_per_s),
            f"{name}: p50 latency": latency_text(stream.p50_latency_us),
            f"{name}: p99 latency": latency_text(stream.p99_latency_us),
            f"{name}: SLO utilisation": share_text(point.utilisation_of(name)),
            f"{name}: failed requests": _unless_zero(stream.failed_count),
        }
    return rows


def _failures(measurement: Measurement, reason: FailureReason) -> str:
    failures = measurement.failures.get(reason)
    return NOTHING if failures is None else failures.text


def _unless_zero(count: int) -> str:
    return f"{count:,}" if count else NOTHING


def rejections(data: ReportData) -> Table | None:
    """Measurements that do not count, in order; the last row is the total."""
    if not data.rejected:
        return None
    trials = {t.candidate.key: str(t.number) for t in data.trials}
    rows = [
        (
            r.stage.value,
            trials.get(r.candidate_key, NOTHING),
            digits(r.level, 4),
            seconds_text(r.wall_s),
            sentence(r.reason),
        )
        for r in data.rejected
    ]
    total = seconds_text(sum(r.wall_s for r in data.rejected))
    rows.append(("all", "", "", total, count_text(len(data.rejected), "measurement")))
    return Table(("during", "trial", "load", "took", "why"), tuple(rows), "Rejected measurements")


def count_of_refused(point: Point | None) -> str:
    """Number of requests that a queue policy refused."""
    return NOTHING if point is None else f"{point.measurement.rejected_count:,}"


def p99_of(point: Point | None) -> str:
    """The p99; for several streams, that of the stream nearest to its SLO, with its name."""
    if point is None:
        return NOTHING
    latency = latency_text(point.limiting.p99_latency_us)
    return f"{latency} ({point.limiting_stream})" if point.limiting_stream else latency


def simplification(data: ReportData) -> Table | None:
    """The winner with one field at a time undone."""
    if not data.result.simplification:
        return None
    rows = tuple(
        (
            row.field,
            score_text(data, row.with_change),
            # A config that missed an SLO at the required load has a goodput of zero.
            "misses an SLO"
            if row.without_change == 0 and data.maximizes
            else score_text(data, row.without_change),
            _signed(data, row.difference),
            share_text(row.loss_allowed),
            "kept" if row.kept else "undone",
        )
        for row in data.result.simplification
    )
    heads = ("field", "with", "without", "difference", "allowed loss", "")
    return Table(heads, rows, "Field by field")


def noise_sentences(data: ReportData) -> list[str]:
    """How well measurements repeat in this run."""
    noise = data.result.noise
    if noise is None:
        return []
    spreads = {
        "throughput": noise.throughput_cv,
        "p99 latency": noise.p99_cv,
        "capacity": noise.capacity_cv,
    }
    known = [f"{name} {share_text(cv)}" for name, cv in spreads.items() if cv is not None]
    spread = "Spread of repeated measurements, each on a different server"
    return [f"{spread} (coefficient of variation): {', '.join(known)}."]


def _signed(data: ReportData, value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{'-' if value < 0 else '+'}{score_text(data, abs(value))}"


def machine_text(manifest: Manifest) -> str:
    """Processor, cores and GPUs of the machine."""
    host = manifest.host
    gpus = [f"{gpu.get('name')} (driver {gpu.get('driver')})" for gpu in manifest.gpus]
    count = host.get("cores")
    cores = [count_text(count, "core")] if isinstance(count, int) else []
    return ", ".join([str(host.get("cpu")), *cores, *gpus])


def environment(data: ReportData) -> Table:
    """Machine, programs and identity of the run."""
    manifest = data.manifest
    facts: dict[str, object] = {
        "started": time_text(manifest.created_at),
        "seed": manifest.seed,
        "objective": str(data.objective),
        "configs in the space": manifest.space_size,
        "spec": f"{manifest.spec_path} (sha256 {manifest.spec_sha256[:12]})",
        **{f"model {label}": c.path for label, c in several(manifest.models).items()},
        **{f"stream {name}": f"served by {la}" for name, la in several(manifest.streams).items()},
        **manifest.versions,
        **{
            f"host {_label(key)}": _plain(key, value)
            for key, value in manifest.host.items()
            if value is not None
        },
        **{
            f"GPU {n}": ", ".join(f"{_label(key)} {_plain(key, gpu[key])}" for key in gpu)
            for n, gpu in enumerate(manifest.gpus)
        },
        "fingerprint": manifest.fingerprint,
    }
    rows = tuple((key, str(value)) for key, value in facts.items() if value is not None)
    return Table(("fact", "value"), rows, "Environment")


def _label(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ")


def _plain(key: str, value: object) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return bytes_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value)
    return digits(value) if isinstance(value, float) else str(value)


def wall_time(data: ReportData) -> Table:
    """The whole time of the run by phase."""
    wall_s = data.result.time.wall_s
    rows = tuple(
        (phase.removesuffix("_s").replace("_", " "), seconds_text(s), share_text(s / wall_s))
        for phase, s in data.result.time.by_phase().items()
        if wall_s > 0
    )
    return Table(("phase", "time", "share"), rows, "Where the time of the run went")


def field_importance(data: ReportData) -> Table:
    """The share of the score that each field explains."""
    rows = tuple(
        (data.manifest.current.title(i.knob), share_text(i.share), str(i.levels))
        for i in importance(data)
    )
    heads = ("field", "share of the score it explains", "values or groups compared")
    return Table(heads, rows, "Which fields matter")
