"""What a strategy with a model predicted for each trial, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tuner.report.charts.chart import BLUE, GREY, Chart, Table, axis, hover, line, scatter
from tuner.report.data import ReportData
from tuner.report.quantities import count_text, share_text
from tuner.report.sentence import change_text, predicted_text, score_axis, score_text
from tuner.score.trial import Predicted, Trial


def predicted(data: ReportData) -> Chart | None:
    """Predicted over measured scores; None if no measured score was predicted.

    Trials that met the SLOs at no load are left out: their score is not what was predicted.
    """
    pairs = [(t, t.predicted) for t in data.scored if t.predicted and t.score and t.score.feasible]
    if not pairs:
        return None
    title, factor = score_axis(data)
    name = title.split(" (")[0]
    ends = [v * factor for t, p in pairs for v in (_measured(t), p.value, p.low, p.high) if v > 0]
    span = [min(ends), max(ends)]
    equal = line("as predicted", span, span, GREY, dash="dash")
    layout: dict[str, Any] = {
        "xaxis": axis(f"measured {title}", ends),
        "yaxis": axis(f"predicted {title}", ends),
    }
    return Chart(
        name="predicted",
        title="Predicted and measured",
        note=f"Each trial's {name} as the search predicted it before the measurement. On "
        f"the line, the prediction was right. {_how_good(pairs)}",
        figure={
            "data": [equal, _points(data, pairs, factor)],
            "layout": layout,
        },
        table=Table(
            ("trial", "change", "predicted, 90 % interval", "measured", "off by"),
            tuple(_row(data, trial, expected) for trial, expected in pairs),
        ),
    )


def _measured(trial: Trial) -> float:
    assert trial.score is not None
    return trial.score.value


def _error(trial: Trial, expected: Predicted) -> float:
    """How far the prediction was above the measurement, as a share of it."""
    measured = _measured(trial)
    return expected.value / measured - 1.0 if measured else 0.0


def _how_good(pairs: Sequence[tuple[Trial, Predicted]]) -> str:
    inside = sum(p.low <= _measured(t) <= p.high for t, p in pairs)
    typical = median(abs(_error(t, p)) for t, p in pairs)
    return (
        f"Of {count_text(len(pairs), 'prediction')}, {inside} held within the 90 % interval; "
        f"the median is off by {share_text(typical)}."
    )


def _points(
    data: ReportData, pairs: Sequence[tuple[Trial, Predicted]], factor: float
) -> dict[str, Any]:
    text = [
        hover(
            f"trial {trial.number}",
            change_text(data, trial.candidate),
            f"predicted {predicted_text(data, expected)}",
            f"measured {score_text(data, _measured(trial))}",
        )
        for trial, expected in pairs
    ]
    return scatter(
        "trials, with 90 % intervals",
        [_measured(trial) * factor for trial, _ in pairs],
        [expected.value * factor for _, expected in pairs],
        color=BLUE,
        text=text,
        customdata=[trial.number for trial, _ in pairs],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [(p.high - p.value) * factor for _, p in pairs],
            "arrayminus": [(p.value - p.low) * factor for _, p in pairs],
            "color": BLUE,
            "thickness": 1,
            "width": 3,
        },
    )


def _row(data: ReportData, trial: Trial, expected: Predicted) -> tuple[str, ...]:
    return (
        str(trial.number),
        change_text(data, trial.candidate),
        predicted_text(data, expected),
        score_text(data, _measured(trial)),
        f"{_error(trial, expected) * 100:+.1f} %",
    )
