"""Where the start of a measurement ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

#: Requests whose mean is one value.
BATCH = 5


def settled_from(values: Values) -> int | None:
    """The index from which values are those of the steady state; None where too few would be left.

    MSER-5: values are averaged in fives, and as many of these means are dropped from the beginning
    as gives the mean of the rest the smallest standard error. Source: White, "An effective
    truncation heuristic for bias reduction in simulation output", Simulation 69 (1997). Where the
    minimum lies in the second half, the series is too short to tell (White, Cobb and Spratt 2000).

    Args:
        values: In the order of time.
    """
    count = values.size // BATCH
    if count < 4:
        return None
    means = values[: count * BATCH].reshape(count, BATCH).mean(axis=1)[::-1]
    left = np.arange(1, count + 1)
    average = np.cumsum(means) / left
    squares = np.maximum(np.cumsum(means**2) - left * average**2, 0.0)
    errors = (squares / left**2)[::-1]  # of what is left without the first 0, 1, 2, ... means
    least = int(np.argmin(errors[: count - 2]))  # of two or one means it says nothing
    return None if least > count // 2 else BATCH * least
