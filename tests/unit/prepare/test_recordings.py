"""What a recording means for a run; what is told of one is in `golden/messages`."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.messages_requests import ROWS, STREAMED, STREAMS, replayed

from tuner.load.generators import TUNE_CLIENT
from tuner.modelconfig.content import content_of
from tuner.prepare.tools import choose_generator
from tuner.spec.files import files_of


def test_pace_is_a_separate_rate_that_the_client_sends(tmp_path: Path) -> None:
    job = replayed(tmp_path, arrivals=", pace: [2, 1]")
    assert job.plan.listed == pytest.approx((8.0, 16.0))
    assert choose_generator(job).kind is TUNE_CLIENT
    assert replayed(tmp_path).plan.listed is None


def test_a_window_is_long_enough_for_several_stretches_unless_the_spec_says_otherwise(
    tmp_path: Path,
) -> None:
    assert replayed(tmp_path).spec.workload.window == 30.0
    assert replayed(tmp_path, more=", window: 5s").spec.workload.window == 5.0


def test_shares_of_streams_are_those_of_the_recording(tmp_path: Path) -> None:
    job = replayed(tmp_path, STREAMED, spec=STREAMS % ("75%", "25%"))
    assert {name: stream.count for name, stream in job.recorded.items()} == {
        "online": 450,
        "nightly": 151,
    }


def test_worker_compares_the_content_of_a_recording(tmp_path: Path) -> None:
    job = replayed(tmp_path)
    files = files_of(job.spec)
    assert files["workload.arrivals.file"] == tmp_path / "requests.jsonl"
    before = content_of(job.served, files)
    other = replayed(tmp_path, [*ROWS, {"due_s": 99.0, "shapes": {"ids": [1]}}])
    after = content_of(other.served, files_of(other.spec))
    assert {name for name in before if before[name] != after[name]} == {"workload.arrivals.file"}
