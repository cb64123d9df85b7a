"""Colours of the charts, as people with other colour vision see them, on both grounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import pytest

from tuner.report.charts.chart import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

COLOURS = {
    "blue": BLUE, "orange": ORANGE, "green": GREEN, "red": RED, "purple": PURPLE, "grey": GREY,
    "sky": SKY,
}  # fmt: skip
GROUNDS = {"light": "#fdfdfc", "dark": "#16191b"}

#: Linear RGB as seen with no cone of a kind. Source: Machado, Oliveira and Fernandes, A
#: Physiologically-based Model for Simulation of Color Vision Deficiency (2009), severity 1.
VISIONS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}  # fmt: skip
#: A difference in CIELAB of 2.3 is just noticed; this many of them are plain.
PLAIN = 6 * 2.3


def linear(colour: str) -> list[float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(colour: str) -> float:
    return sum(c * w for c, w in zip(linear(colour), (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    """As WCAG 2.1 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    seen = [sum(w * c for w, c in zip(row, linear(colour), strict=True)) for row in vision]
    r, g, b = (min(max(c, 0.0), 1.0) for c in seen)
    x, y, z = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
    )
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(("one", "other"), [*combinations(COLOURS, 2)])
def test_any_two_colours_are_plainly_different(vision: str, one: str, other: str) -> None:
    seen = [lab(COLOURS[name], VISIONS[vision]) for name in (one, other)]
    assert math.dist(*seen) > PLAIN


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("name", [name for name in COLOURS if name != "sky"])
def test_lines_and_points_stand_out(ground: str, name: str) -> None:
    assert contrast(COLOURS[name], GROUNDS[ground]) >= 3.0
