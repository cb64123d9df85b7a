"""Charts of the response cache and the GPUs, for runs that had them."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.report.charts.chart import BLUE, GREEN, ORANGE, Chart, Table, hover, panels, trial_axis
from tuner.report.data import ReportData
from tuner.report.quantities import load_text, share_text
from tuner.report.sentence import change_text
from tuner.report.side import judged_point
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.words import bytes_text


def _judged(data: ReportData) -> list[tuple[Trial, Point]]:
    return [(t, p) for t in data.trials if (p := judged_point(t)) is not None]


def cache(data: ReportData) -> Chart | None:
    """The cache hit rate, above the depth of the queue, for every trial with a cache."""
    shown = [(t, p) for t, p in _judged(data) if _has_cache(t, p)]
    if not shown:
        return None
    rates = [p.measurement.server.cache_hit_rate or 0.0 for _, p in shown if p.measurement.server]
    depths = [p.measurement.host.pending_requests_max or 0.0 for _, p in shown]
    text = [
        hover(
            f"trial {t.number} at {load_text(p.measurement.load)}",
            change_text(data, t.candidate),
            f"hit rate {share_text(rate)}, at most {depth:.0f} requests waiting",
        )
        for (t, p), rate, depth in zip(shown, rates, depths, strict=True)
    ]
    figure = panels(
        [t.number for t, _ in shown],
        trial_axis(data),
        [
            ("hit rate (%)", GREEN, [100 * r for r in rates], text),
            ("requests waiting, maximum", ORANGE, depths, text),
        ],
    )
    rows = tuple(
        (str(t.number), change_text(data, t.candidate), share_text(rate), f"{depth:.0f}")
        for (t, _), rate, depth in zip(shown, rates, depths, strict=True)
    )
    return Chart(
        name="cache",
        title="Response cache",
        note="Cache hits should also shorten the queue. The hit rate is that of the input repeats "
        "stated in the workload; other traffic will have another hit rate.",
        figure=figure,
        table=Table(("trial", "change", "hit rate", "requests waiting, maximum"), rows),
    )


def _has_cache(trial: Trial, point: Point) -> bool:
    server = point.measurement.server
    if server is None:
        return False
    asked = trial.candidate.cache_bytes is not None
    return asked or server.cache_hit_count + server.cache_miss_count > 0


def gpu(data: ReportData) -> Chart | None:
    """GPU memory, utilisation and power for every trial that was measured with them."""
    shown = [(t, p) for t, p in _judged(data) if p.measurement.host.gpu_memory_used_bytes]
    if not shown:
        return None
    hosts = [p.measurement.host for _, p in shown]
    rows = tuple(
        (
            str(t.number),
            change_text(data, t.candidate),
            bytes_text(h.gpu_memory_used_bytes or 0),
            share_text(h.gpu_utilization),
            "-" if h.gpu_power_w is None else f"{h.gpu_power_w:.0f} W",
        )
        for (t, _), h in zip(shown, hosts, strict=True)
    )
    text = [hover(f"trial {row[0]}", row[1], ", ".join(row[2:])) for row in rows]
    memory = [(h.gpu_memory_used_bytes or 0) / (1 << 30) for h in hosts]
    stack: list[tuple[str, str, Sequence[float], Sequence[str]]] = [
        ("memory (GiB)", BLUE, memory, text)
    ]
    if all(h.gpu_utilization is not None for h in hosts):
        use = [100 * (h.gpu_utilization or 0.0) for h in hosts]
        stack.append(("utilisation (%)", GREEN, use, text))
    if all(h.gpu_power_w is not None for h in hosts):
        stack.append(("power (W)", ORANGE, [h.gpu_power_w or 0.0 for h in hosts], text))
    return Chart(
        name="gpu",
        title="GPU",
        note="Peak memory, mean utilisation and mean power at the load each trial is judged at.",
        figure=panels([t.number for t, _ in shown], trial_axis(data), stack),
        table=Table(("trial", "change", "memory", "utilisation", "power"), rows),
    )
