"""A recording is read line by line; what is wrong with one is told in `golden/messages`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders.messages_recordings import STREAMS, written

from tuner.errors import SpecError
from tuner.load.traffic.recordings.lines import Label, read_recording, streams_of


def test_times_count_from_the_first_request_and_lines_are_read_by_number(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"due_s": 1700000000.25, "inputs": {"x": [1.5]}},
        {"due_s": 1700000000.5, "shapes": {"x": [3]}, "model": "é"},
        {"due_s": 1700000002.25, "entry": 3, "stream": "online"},
    )
    recording = read_recording(path)
    assert recording.due_s.tolist() == [0.0, 0.25, 2.0]
    assert recording.length_s == 3.0
    assert recording.rate_per_s == 1.0
    assert recording.labels == (Label(), Label(model="é"), Label("online"))
    assert [row.get("entry") for _, _, row in recording.read([2, 0])] == [3, None]


def test_a_last_line_may_lack_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, {"due_s": 0}, {"due_s": 1}, end="")
    assert read_recording(path).due_s.size == 2


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    first = read_recording(written(tmp_path, {"due_s": 0}, {"due_s": 1}))
    path = written(tmp_path, {"due_s": 0}, {"due_s": 1}, {"due_s": 2})
    assert read_recording(path).due_s.size == 3
    path.write_text("[]" * 20)
    with pytest.raises(SpecError, match=r":2:1: "):
        list(first.read([1]))


def test_a_line_names_its_stream_or_a_model_that_one_stream_has(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"due_s": 0, "stream": "nightly"},
        {"due_s": 1, "model": "resnet"},
        {"due_s": 2, "stream": "online", "model": "texts"},
    )
    assert streams_of(read_recording(path), STREAMS).tolist() == [1, 2, 0]
    alone = read_recording(written(tmp_path, {"due_s": 0}, {"due_s": 1}))
    assert streams_of(alone, {"m": "m"}).tolist() == [0, 0]


def test_only_times_and_places_of_lines_are_kept(tmp_path: Path) -> None:
    rows = ({"due_s": k / 10, "inputs": {"x": ["a" * 10_000]}} for k in range(100))
    recording = read_recording(written(tmp_path, *rows))
    kept = (recording.due_s, recording.offsets, recording.owners, recording.forms)
    assert sum(array.nbytes for array in kept) == 32 * 100
    assert all(array.dtype in (np.float64, np.int64) for array in kept)
