"""The first chart as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.commands import called
from builders.pages import STATUSES, Made

from tuner.report.charts.load import load_charts
from tuner.report.picture import png

pytest.importorskip("matplotlib.font_manager")  # may ask fc-list, before processes are refused


@pytest.mark.parametrize("status", STATUSES)
def test_chart_of_every_ending_can_be_drawn(made: Made, status: str) -> None:
    data = made(status)
    for chart in load_charts(data)[:1]:
        drawn = png(data, chart)
        assert drawn.startswith(b"\x89PNG")
        width, height = (int.from_bytes(drawn[at : at + 4], "big") for at in (16, 20))
        assert (width, height) == (1280, 720)


def test_picture_is_written_beside_what_is_printed(made: Made, tmp_path: Path) -> None:
    run = made("improved").directory
    code, out, err = called("report", str(run), "--png", str(tmp_path / "chart.png"))
    assert (code, "Better" in out) == (0, True), err
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert called("report", "--png", "chart.png")[0] == 2
