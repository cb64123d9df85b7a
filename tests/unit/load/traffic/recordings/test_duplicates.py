"""Requests that repeat, and what a cache makes of them."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from tuner.load.traffic.recordings.duplicates import Duplicates, duplicates, stack_distances
from tuner.load.traffic.recordings.lines import read_recording


def answered(contents: list[int], holds: int) -> int:
    """What a cache answers that drops what was used least recently."""
    kept, hits = OrderedDict[int, None](), 0
    for content in contents:
        hits += content in kept
        kept.pop(content, None)
        kept[content] = None
        if len(kept) > holds:
            kept.popitem(last=False)
    return hits


@pytest.mark.parametrize("seed", range(5))
def test_distance_says_which_cache_answers_a_request(seed: int) -> None:
    draw = random.Random(seed)
    contents = [draw.randint(0, 12) for _ in range(200)]
    distances = stack_distances(np.array(contents))
    for holds in (1, 2, 5, 12, 13):
        assert int(((distances > 0) & (distances <= holds)).sum()) == answered(contents, holds)


def recorded(directory: Path, *rows: dict[str, object]) -> Duplicates | None:
    path = directory / "requests.jsonl"
    lines = [json.dumps({"due_s": float(k), **row}) for k, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return duplicates(read_recording(path))


def test_share_of_repeats_the_caches_and_the_client_are_reported(tmp_path: Path) -> None:
    rows = [{"inputs": {"x": [k % 3]}, "client": "rogue"} for k in range(57)]
    rows += [{"inputs": {"x": [100 + k]}, "client": "web"} for k in range(3)]
    repeats = recorded(tmp_path, *rows)
    assert repeats is not None
    assert (repeats.requests, repeats.repeats, repeats.client) == (60, 54, "rogue")
    assert repeats.caches == ((3, 0.9),)
    share, whose = repeats.sentences(response_bytes=1000)
    assert share.startswith("54 of 60 requests (90%) repeat an earlier one byte for byte; ")
    assert share.endswith("a response cache would answer 90% with 3 responses, 3,000 bytes")
    assert whose == "rogue sends 100% of the repeats: can it reuse its answers?"


def test_equal_inputs_of_two_models_are_no_repeats(tmp_path: Path) -> None:
    row = {"inputs": {"x": [1]}}
    repeats = recorded(tmp_path, {**row, "model": "a"}, {**row, "model": "b"})
    assert repeats is not None
    assert repeats.repeats == 0
    assert list(repeats.sentences()) == []


def test_requests_of_unknown_content_get_no_note(tmp_path: Path) -> None:
    assert recorded(tmp_path, {"shapes": {"x": [1]}}, {"shapes": {"x": [1]}}) is None
    assert recorded(tmp_path, {}, {"inputs": {"x": [1]}}) is None
