"""Compiles the simulator ahead of its first use, in pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from tuner.twin.simulator import simulate
from tuner.twin.system import Scheduler, Service, Traffic, Way

_MOMENT_S = 0.01


def compile_simulator(between: Callable[[], None]) -> None:
    """Returns when the simulator is compiled, or loaded where that was done before.

    Args:
        between: Called before each function that is to be compiled. What it raises ends it.
    """
    between()
    from numba.core import event  # numba takes a second to import

    class Between(event.Listener):
        def on_start(self, _: object) -> None:
            if threading.get_ident() == own:
                between()

        def on_end(self, _: object) -> None:
            pass

    own = threading.get_ident()
    traffic = Traffic((0.0, _MOMENT_S), _MOMENT_S, np.array([0.0]))
    with event.install_listener("numba:compile", Between()):
        simulate(Scheduler(), Service(overlap_base_s=_MOMENT_S / 2), Way(), traffic)
