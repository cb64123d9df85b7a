"""The charts as pictures."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from unit.report.conftest import NASTY, Made

from tuner.report.charts.chart import BEST, CURRENT, RED
from tuner.report.charts.latency import curves
from tuner.report.charts.picture import draw, write_pngs

MAIN = ["curve-p99_latency", "pareto", "parts", "batches", "importance", "history", "overload-p99"]


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def share_of(png: bytes, color: str) -> float:
    """Share of the picture's pixels that have exactly this colour."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png))[:, :, :3]
    wanted = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return float((abs(pixels - wanted) < 0.004).all(axis=2).mean())


@pytest.mark.parametrize("status", ["improved", "kept", "killed"])
def test_a_run_of_any_end_has_its_main_charts(made: Made, tmp_path: Path, status: str) -> None:
    paths = write_pngs(made(status), tmp_path / "charts")
    assert [p.stem for p in paths] == (MAIN[:-1] if status == "killed" else MAIN)
    for path in paths:
        width, height = size(path.read_bytes())
        assert width == 1080
        assert 200 <= height <= 1000


def test_the_same_run_gives_the_same_pictures(made: Made, tmp_path: Path) -> None:
    data = made()
    first = [p.read_bytes() for p in write_pngs(data, tmp_path)]
    assert [p.read_bytes() for p in write_pngs(data, tmp_path)] == first


def test_a_run_without_trials_has_none(made: Made, tmp_path: Path) -> None:
    data = replace(made("killed"), trials=(), current=None, best=None)
    assert write_pngs(data, tmp_path) == []


def test_names_from_outside_are_drawn_as_they_are(made: Made, tmp_path: Path) -> None:
    data = made(model=f"a $ and another $ {NASTY}")
    assert len(write_pngs(data, tmp_path)) == len(MAIN)


def test_both_configs_and_the_bound_are_in_the_picture(made: Made) -> None:
    (chart,) = curves(made())
    picture = draw(chart, "a title")
    for color in (CURRENT, BEST, RED):
        assert share_of(picture, color) > 0.0002
