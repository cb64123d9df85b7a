"""Some seconds of fuzzing with fixed inputs; see docs/internals/testing.md for more of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from builders.configs import GOOD
from fuzz.targets import TARGETS, cleared, found_once
from fuzz.watch import watched
from fuzz.writes import write_and_take_back
from hypothesis import HealthCheck, example, given, settings

from tuner.errors import TunerError

#: In a hundred examples of Hypothesis' profile.
EXAMPLES = {
    "run": 4,
    "directories": 25,
    "model-py": 30,
    "resume": 20,
    "write": 40,
    "spec": 40,
    "model-analyzer": 40,
}


@pytest.mark.parametrize("name", TARGETS)
def test_texts_near_to_good_ones_do_no_harm(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    examples = EXAMPLES.get(name, 80) * settings.default.max_examples // 100

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs())
    def attempt(tried: Any) -> None:
        target.prepare(tried, cleared(tmp_path))
        with watched(tmp_path, target.longest_s), contextlib.suppress(TunerError):
            target.run(tried, tmp_path)

    for found in found_once(name):
        attempt = example(found)(attempt)
    attempt()


def test_every_published_config_is_written_and_taken_back_exactly(tmp_path: Path) -> None:
    model, done = tmp_path / "models" / "m", 0
    (model / "1").mkdir(parents=True)
    for seed, path in enumerate(GOOD):
        (model / "config.pbtxt").write_bytes(path.read_bytes())
        done += write_and_take_back(seed, model.parent)
    assert done >= len(GOOD)
