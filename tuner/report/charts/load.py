"""Latency over load: what the current and the best config sustain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from tuner.record.confirmation import Soak
from tuner.record.proved import ProvedConfig
from tuner.report.analysis import Latency, latency_slos
from tuner.report.blocks import Chart, Table
from tuner.report.charts import BEST, MS, TrialMarker, hover, latency_layout, scatter, sides
from tuner.report.data import ReportData
from tuner.report.quantities import latency_text, load_text, rate_text, verdict_text
from tuner.score.judge import SloOutcome, SloResult
from tuner.score.point import Point

#: Opacity of a trace that only shows where the search has measured.
FAINT = 0.7


@dataclass(frozen=True)
class _Series:
    """Measurements of one config from one part of a run, each with the name of that part."""

    name: str
    color: str
    points: tuple[tuple[str, Point], ...]
    style: dict[str, Any]


def load_charts(data: ReportData) -> tuple[Chart, ...]:
    """Latency over the load for the current and the best config, one chart per latency SLO."""
    series = [
        s for name, color, config, _ in sides(data) for s in _series(data, name, color, config)
    ]
    numbered = enumerate(latency_slos(data).items())
    charts = (_chart(data, n, latency, slos, series) for n, (latency, slos) in numbered)
    return tuple(chart for chart in charts if chart.table.rows)


def _series(data: ReportData, name: str, color: str, config: ProvedConfig) -> Iterator[_Series]:
    """The config's measurements in the search, the rounds and the soak, if there are any."""
    trial = data.trial_of(config)
    searched = () if trial is None else sorted(trial.points, key=lambda p: p.level)
    key = config.candidate.key
    rounds = [r for r in data.repeats if r.candidate_key == key and not (r.alone or r.is_look)]
    again = [(f"round {r.round + 1}", r.point) for r in rounds]
    if not again and not config.from_search:
        again = [(f"round {n}", p) for n, p in enumerate(config.rounds, start=1)]
    soak = config.soak or Soak()
    # Two loads far apart make no curve.
    mode = "lines+markers" if len(searched) > 2 else "markers"
    faint = {"mode": mode, "size": 6, "opacity": FAINT if again else 1.0}
    yield _Series(name, color, tuple(("search", p) for p in searched), faint)
    yield _Series(name, color, tuple(again), {})
    soaked = tuple(("soak", s.point) for s in soak.tried)
    yield _Series(name, color, soaked, {"symbol": "square", "size": 12})


def _chart(
    data: ReportData,
    number: int,
    latency: Latency,
    slos: Sequence[SloResult],
    series: Sequence[_Series],
) -> Chart:
    plotted = [
        (s, [(at, p, us) for at, p in s.points if (us := latency.of(p)) is not None])
        for s in series
    ]
    values = [us * MS for _, points in plotted for *_, us in points]
    loads = (p.measurement.load for _, points in plotted for _, p, _ in points)
    is_rate = all(load.arrivals.open_loop for load in loads)
    x_title = "load (requests/s)" if is_rate else "throughput (infer/s)"
    layout, edge = latency_layout(x_title, f"{latency} (ms)", values, slos)
    _mark_credit(layout, data, is_rate=is_rate)
    heads = ("config", "in", "load", "throughput", str(latency), "SLOs")
    traces, cells = [], []
    for s, points in plotted:
        if not points:
            continue
        rows = [_row(s.name, at, p, us) for at, p, us in points]
        x = [p.level if is_rate else p.measurement.throughput_infer_per_s for _, p, _ in points]
        y = [min(us * MS, edge) for *_, us in points]
        text = [hover(*(f"{h}: {c}" for h, c in zip(heads, row, strict=True))) for row in rows]
        where = points[0][0].replace("round 1", "rounds")
        trace = scatter(f"{s.name}, {where}", x, y, color=s.color, text=text, **s.style)
        shapes = [_symbol(trace["marker"]["symbol"], p.outcome) for _, p, _ in points]
        traces.append({**trace, "marker": {**trace["marker"], "symbol": shapes}})
        cells += rows
    beyond = " A point at the upper edge is really higher." if max(values, default=0) > edge else ""
    suffix = f"-{number}" if latency.stream else ""  # a stream's name may be any text
    return Chart(
        name=f"load-{latency.metric}{suffix}",
        title=f"Load against {latency}",
        note="Filled: every SLO met; hollow: one missed; star: too few answers to say. Large dots "
        "are the rounds, small ones the search, squares the soaks. Below the dashed line a config "
        f"sustains the load; the dotted line is the load that the best is credited with.{beyond}",
        figure={"data": traces, "layout": layout},
        table=Table(heads, tuple(cells)),
    )


def _symbol(filled: str, outcome: SloOutcome) -> str:
    match outcome:
        case SloOutcome.MET:
            return filled
        case SloOutcome.MISSED:
            return f"{filled}-open"
        case SloOutcome.TOO_FEW:
            return TrialMarker.TOO_FEW.symbol
        case _:
            assert_never(outcome)


def _mark_credit(layout: dict[str, Any], data: ReportData, *, is_rate: bool) -> None:
    """Draws a dotted line at the load that the best config is credited with.

    ``is_rate``: the axis is in requests, each of which may have several inferences.
    """
    best = data.best
    if best is None or best.credited_infer_per_s is None:
        return
    credited = best.credited_infer_per_s
    at = credited / best.judged.measurement.batch_size if is_rate else credited
    dotted = {"color": BEST, "width": 2, "dash": "dot"}
    across = {"yref": "paper", "y0": 0, "y1": 1, "x0": at, "x1": at}
    layout["shapes"].append({"type": "line", "line": dotted, **across})
    how = "measured once" if best.from_search else "credited"
    label = {"text": f"{how}: {rate_text(credited, best.at_least)}", "font": {"color": BEST}}
    place = {"x": at, "xanchor": "right", "xshift": -4, "yref": "paper", "y": 1, "yanchor": "top"}
    layout["annotations"].append({**label, **place, "showarrow": False})


def _row(name: str, at: str, point: Point, latency_us: float) -> tuple[str, ...]:
    return (
        name,
        at,
        load_text(point.measurement.load),
        rate_text(point.measurement.throughput_infer_per_s),
        latency_text(latency_us),
        ", ".join(f"{s.expression} {verdict_text(s)}" for s in point.slo),
    )
