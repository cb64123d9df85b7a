"""How much processor time a call takes, in units of fixed work: a slow machine is slow at both."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 5


def takes_at_most(units: float, act: Callable[[], object]) -> bool:
    """Whether a call takes so much processor time in one of five tries.

    A busy machine slows down some of them, a mistake all of them.

    Args:
        units: Of hundredths of a second on a fast core.
    """
    return any(_cpu_s(act) <= units * _cpu_s(_unit) for _ in range(_TRIES))


def _unit() -> int:
    return sum(number * number for number in range(150_000))


def _cpu_s(act: Callable[[], object]) -> float:
    begin_s = time.process_time()
    act()
    return time.process_time() - begin_s
