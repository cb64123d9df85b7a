"""Numbers as people write them: a few digits, and never an exponent."""

from __future__ import annotations

import math


def digits(value: float, most: int = 3) -> str:
    """``value`` with at most so many significant digits: 0.0123, 12.3; above them whole: 12345."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    behind = max(0, most - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{behind}f}"
    return text.rstrip("0").rstrip(".") if behind else text
