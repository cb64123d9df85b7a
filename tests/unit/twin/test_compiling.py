"""The simulator compiled ahead: once, for whatever will be simulated."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tuner.twin import events
from tuner.twin.compiling import compile_simulator
from tuner.twin.simulator import simulate
from tuner.twin.system import Scheduler, Service, Traffic, Way


def test_what_was_compiled_ahead_does_for_every_kind_of_load() -> None:
    compile_simulator(lambda: None)
    (signature,) = events.run.signatures
    service, way = Service(overlap_base_s=0.001), Way(cores=2)
    open_loop = Traffic((0.0, 0.1), 0.1, np.arange(0.0, 0.1, 0.01))
    closed = Traffic((0.0, 0.1), 0.1, concurrency=4)
    keys = np.arange(100) % 7
    cached = Traffic((0.0, 0.1), 0.1, concurrency=4, keys=keys, warm_keys=keys)
    for traffic in (open_loop, closed, cached):
        simulate(Scheduler(instances=2, max_batch_size=8, cache_entries=5), service, way, traffic)
    assert events.run.signatures == [signature]


def test_it_can_be_given_up_between_two_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    from tuner.twin import compiling

    @numba.njit  # type: ignore[misc]
    def inner(x: float) -> float:
        return x + 1.0

    @numba.njit  # type: ignore[misc]
    def outer(x: float) -> float:
        return inner(x) * 2.0

    calls = []

    def between() -> None:
        calls.append(threading.get_ident())
        if len(calls) == 3:  # at the start, before the outer one, before the inner one
            raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "simulate", lambda *_: outer(1.0))
    with pytest.raises(KeyboardInterrupt):
        compile_simulator(between)
    assert len(calls) == 3
    assert outer(1.0) == 4.0  # it is compiled where it is needed
