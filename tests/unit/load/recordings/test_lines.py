"""A recording is read line by line, and what is wrong with one is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tuner.errors import SpecError
from tuner.load.recordings.lines import Label, read_recording, streams_of


def written(directory: Path, *lines: object, end: str = "\n") -> Path:
    path = directory / "requests.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end)
    return path


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


BAD = {
    "not JSON": ('{"due_s": 1, x}', "2:14: not JSON: Expecting property name"),
    "no object": ("[1]", '2:1: not a request such as {"due_s": 0.5'),
    "a mistyped key": ({"due_s": 1, "imputs": {}}, "2:14: unknown key 'imputs' (did you mean inp"),
    "no time": ({"entry": 1}, "2:1: due_s is missing"),
    "a time in words": ({"entry": 1, "due_s": "1s"}, "2:14: due_s is no number of seconds: '1s'"),
    "a time without end": ('{"due_s": Infinity}', "2:2: due_s is no number of seconds: inf"),
    "a truth as time": ({"due_s": True}, "2:2: due_s is no number of seconds: True"),
    "a time going back": ({"due_s": 0.2}, "2:2: due_s 0.2 is before the line above, 0.5: requests"),
    "two of a kind": (
        {"due_s": 1, "inputs": {}, "entry": 1},
        "2:28: inputs and entry are given, and one of them is enough",
    ),
    "a stream of no name": ({"due_s": 1, "stream": 7}, "2:14: stream is no name: 7"),
    "an empty line": ("", "2:1: not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_told_with_its_place(tmp_path: Path, name: str) -> None:
    line, told = BAD[name]
    path = written(tmp_path, {"due_s": 0.5}, line, {"due_s": 2})
    with pytest.raises(SpecError) as caught:
        read_recording(path)
    assert caught.value.message.startswith(f"{path}:{told}")
    assert "tune record" in caught.value.hint


def test_every_bad_line_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "{", {"due_s": 1}, "}", {"due_s": 0})
    with pytest.raises(SpecError) as caught:
        read_recording(path)
    places = [line.removeprefix(f"{path}:")[:3] for line in caught.value.message.splitlines()]
    assert places == ["1:2", "3:1", "4:2"]


def test_a_file_that_was_cut_off_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, {"due_s": 0}, {"due_s": 1}, '{"due_s": 2, "inp', end="")
    with pytest.raises(SpecError, match=r":3:14: the line is cut off: the file is not whole"):
        read_recording(path)
    whole = written(tmp_path, {"due_s": 0}, {"due_s": 1}, end="")
    assert read_recording(whole).due_s.size == 2


@pytest.mark.parametrize(
    ("times", "told"),
    [([], "no request"), ([3.0], "one request only"), ([3.0, 3.9], "less than a second")],
)
def test_a_recording_without_a_length_is_none(
    tmp_path: Path, times: list[float], told: str
) -> None:
    path = written(tmp_path, *({"due_s": t} for t in times), end="\n" if times else "")
    with pytest.raises(SpecError, match=f"there is {told} in the recording"):
        read_recording(path)


def test_what_is_no_file_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        read_recording(tmp_path / "absent")
    with pytest.raises(SpecError, match="it is a directory"):
        read_recording(tmp_path)
    path = tmp_path / "bytes"
    path.write_bytes(b'{"due_s": 0}\n{"due_s": 1, "stream": "\xff"}\n')
    with pytest.raises(SpecError, match=r"bytes:2:25: not UTF-8 text"):
        read_recording(path)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    first = read_recording(written(tmp_path, {"due_s": 0}, {"due_s": 1}))
    path = written(tmp_path, {"due_s": 0}, {"due_s": 1}, {"due_s": 2})
    assert read_recording(path).due_s.size == 3
    path.write_text("[]" * 20)
    with pytest.raises(SpecError, match=r":2:1: changed since tune read it first"):
        list(first.read([1]))


STREAMS = {"online": "texts", "nightly": "texts", "pictures": "resnet"}


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


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, ":2:1: it names no stream; the spec's streams are online (model texts)"),
        ({"model": "texts"}, ":2:1: no one stream has model 'texts'"),
        ({"stream": "onlin"}, ":2:1: no one stream has stream 'onlin'"),
        ({"stream": "online", "model": "resnet"}, "stream 'online' and model 'resnet'"),
    ],
)
def test_a_request_of_no_stream_is_told(tmp_path: Path, row: dict[str, str], told: str) -> None:
    path = written(tmp_path, {"due_s": 0, "stream": "online"}, {"due_s": 1, **row})
    with pytest.raises(SpecError) as caught:
        streams_of(read_recording(path), STREAMS)
    assert told in caught.value.message


def test_a_stream_without_requests_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, {"due_s": 0, "stream": "online"}, {"due_s": 1, "stream": "online"})
    with pytest.raises(SpecError, match="none of its requests is of the stream nightly"):
        streams_of(read_recording(path), STREAMS)


def test_only_times_and_places_of_lines_are_kept(tmp_path: Path) -> None:
    rows = ({"due_s": k / 10, "inputs": {"x": ["a" * 10_000]}} for k in range(100))
    recording = read_recording(written(tmp_path, *rows))
    kept = (recording.due_s, recording.offsets, recording.owners, recording.forms)
    assert sum(array.nbytes for array in kept) == 32 * 100
    assert all(array.dtype in (np.float64, np.int64) for array in kept)
