"""How much of an SLO is used up, as a figure with a bar."""

from __future__ import annotations

from tuner.report.blocks import Tile
from tuner.report.quantities import VERDICTS, found_text, metric_text, verdict_text
from tuner.score.judge import SloResult
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, Better


def slo_tile(worst: SloResult) -> Tile:
    """How much of one SLO is used up."""
    metric = METRICS[worst.metric]
    lower = metric.better is Better.LOWER
    share = worst.value / worst.bound if lower and worst.value and worst.bound else None
    found, bound = found_text(worst), metric_text(worst.metric, worst.bound)
    unit = bound[bound.rfind(" ") :] if " " in bound else ""
    return Tile(
        of_stream(worst.stream, metric.words),
        f"{found.removesuffix(unit)} {'of' if lower else 'for'} {bound}",
        verdict_text(worst),
        VERDICTS[worst.verdict][0],
        share,
    )
