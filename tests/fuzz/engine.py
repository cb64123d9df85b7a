"""Hypothesis over one target: so many inputs, or as many as fit into some time."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import hypothesis
from fuzz.targets import TARGETS, Target, cleared
from fuzz.watch import watched
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

from tuner.errors import TunerError

_BATCH = 200


def run_one(target: Target, tried: Any, directory: Path) -> None:
    """Raises whatever is neither an answer nor a `TunerError`."""
    target.prepare(tried, cleared(directory))
    with watched(directory, target.longest_s):
        with contextlib.suppress(TunerError):
            target.run(tried, directory)


def run_many(name: str, examples: int, seed: int | None = None) -> None:
    """``examples`` inputs of a target; the same ones each time without a ``seed``.

    Raises:
        AssertionError: An input misbehaved; Hypothesis has made it as small as it could, and
            `last_tried` has it.
    """
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        directory = Path(place)

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=seed is None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        )
        @given(target.inputs())
        def attempt(tried: Any) -> None:
            last_tried[name] = tried
            run_one(target, tried, directory)

        if seed is not None:
            attempt = seeded(seed)(attempt)
        attempt()


#: The input of a target that was tried last; after a failure, the smallest that fails.
last_tried: dict[str, Any] = {}


def run_for(name: str, seconds: float, first_seed: int) -> int:
    """Batches of inputs, each with a seed of its own, until the time is up; how many inputs."""
    began, seed = time.monotonic(), first_seed
    while time.monotonic() - began < seconds:
        run_many(name, _BATCH, seed)
        seed += 1
        print(f"{name}: seed {seed - 1} done, {(seed - first_seed) * _BATCH} inputs", flush=True)
    return (seed - first_seed) * _BATCH
