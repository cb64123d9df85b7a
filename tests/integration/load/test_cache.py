"""Repeats and a real response cache: what is filled in, and how often it hits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.load_repository import make_repository

from tuner.load.probes.preparing import MAX_FILLING_S
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import StreamsLoad, streams_load
from tuner.load.traffic.repeats import ENTRY_OVERHEAD_BYTES, lru_hit_rate, popularity
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.spec.workload import RandomInputs, Workload
from tuner.triton.local import LocalLauncher

if TYPE_CHECKING:
    from tuner.server.binaries import Installation

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

WINDOW = Window(duration_s=4.0, warmup_s=0.2, deadline_s=30.0)
UNIQUE = 2000
ENTRY_BYTES = 8 * 4 + ENTRY_OVERHEAD_BYTES


@dataclass(frozen=True)
class Cached:
    """A quick model behind a cache of its own."""

    generator: StreamsLoad
    size: int

    def measure(self, rate: float, seed: int = 1, window: Window = WINDOW) -> Measurement:
        return self.generator.measure(LoadPoint(Arrivals.POISSON, rate), window, seed)


@contextmanager
def cached(program: Installation, directory: Path, size: int, **inputs: Any) -> Iterator[Cached]:
    directory.mkdir()
    repository = make_repository(directory, service_s=0.0005)
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, repository)
        with (
            launcher.launch([f"--cache-config=local,size={size}"], directory / "log") as server,
            Control(server.endpoints, timeout_s=3.0) as control,
        ):
            control.load("cached", None, 60.0)
            given = RandomInputs.model_validate({"kind": "random", **inputs})
            site = Site(control, server.endpoints, program, directory)
            requests = {"cached": StreamRequests("cached", given)}
            generator = streams_load(Workload(), requests, ["cached"], site)
            yield Cached(generator, size)


def hit_rate(measurement: Measurement) -> float:
    assert measurement.server is not None
    rate = measurement.server.cache_hit_rate
    assert rate is not None
    return rate


@pytest.mark.parametrize("room", [100, 700, 2500])
def test_zipf_repeats_hit_as_often_as_che_expects(
    program: Installation, tmp_path: Path, room: int
) -> None:
    """In the first measurement after the filling already, and within three points."""
    repeat = {"kind": "zipf", "exponent": 0.9}
    size = room * ENTRY_BYTES
    with cached(program, tmp_path / "c", size, unique=UNIQUE, repeat=repeat) as served:
        begin = time.monotonic()
        filling = served.generator.fill(seed=5, size=size)
        assert time.monotonic() - begin < MAX_FILLING_S
        assert filling.of == UNIQUE
        assert not filling.short
        measurement = served.measure(700.0)
        again = served.measure(700.0, seed=2)
        assert again.host.cache_entries == pytest.approx(min(room, UNIQUE), rel=0.03)
    expected = lru_hit_rate(popularity(UNIQUE, 0.9), room)
    assert hit_rate(measurement) == pytest.approx(expected, abs=0.03)
    assert hit_rate(again) == pytest.approx(expected, abs=0.03)


def test_inputs_that_never_come_back_never_hit(program: Installation, tmp_path: Path) -> None:
    with cached(program, tmp_path / "c", 16 << 20) as served:
        filling = served.generator.fill(seed=5, size=served.size)
        assert (filling.sent, filling.of) == (0, 0)
        for seed in (1, 2, 3):
            measurement = served.measure(500.0, seed, Window(1.5, 0.2, 30.0))
            assert hit_rate(measurement) == 0.0


def test_a_share_of_duplicates_is_the_hit_rate(program: Installation, tmp_path: Path) -> None:
    repeat = {"kind": "duplicates", "share": "40%"}
    with cached(program, tmp_path / "c", 16 << 20, repeat=repeat) as served:
        rates = [hit_rate(served.measure(500.0, seed)) for seed in (1, 2)]
    assert rates == pytest.approx([0.4, 0.4], abs=0.04)


def test_a_log_is_replayed_against_the_cache(program: Installation, tmp_path: Path) -> None:
    """A hundred inputs in turn, and room for fifty: what comes next was always thrown out.

    But for the first fifty, which may be what the filling left: they come before the window.
    """
    log = tmp_path / "log"
    log.write_text("".join(f"{n}\n" for n in range(100)))
    repeat = {"kind": "log", "file": log}
    short = Window(1.5, 0.8, 30.0)
    for room, expected in ((50, 0.0), (200, 1.0)):
        size = room * ENTRY_BYTES
        with cached(program, tmp_path / f"c{room}", size, repeat=repeat) as served:
            assert served.generator.fill(5, size).of == 100
            assert hit_rate(served.measure(400.0, 1, short)) == pytest.approx(expected, abs=0.02)
