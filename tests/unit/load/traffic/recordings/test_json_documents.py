"""Logs in JSON that is no object a line: lists, documents, lists in documents."""

from __future__ import annotations

import json
import tracemalloc
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from builders import logs

from tuner.errors import SpecError
from tuner.load.traffic.recordings.json_elements import decoded, elements
from tuner.load.traffic.recordings.log_objects import CUT_OFF

ROWS = [{"t": k, "path": "/v2/models/bert/infer", "é": [{"x": '"]}'}]} for k in (1, 2, 4)]


requests_in = partial(logs.requests_in, time="t", by_path=True)


def pretty(*documents: Any) -> str:
    return "".join(json.dumps(document, indent=2) + "\n" for document in documents)


@pytest.mark.parametrize(
    "text",
    [
        pretty(ROWS),
        json.dumps(ROWS),
        pretty(ROWS[:1], ROWS[1:]),
        pretty(*ROWS),
        json.dumps({"records": ROWS}) + "\n",
        "".join(json.dumps({"records": [row]}) + "\n" for row in ROWS),
        pretty({"took": 3, "hits": {"total": {"value": 3}, "hits": ROWS}, "next": None}),
        pretty({"log": {"version": "1.2", "pages": [{"id": 1}], "entries": ROWS}, "size": [1]}),
        pretty({"events": ROWS[:2], "nextToken": "a"}, {"events": ROWS[2:]}),
        json.dumps({"log": {"comment": "x" * 64_000, "entries": ROWS, "size": "x" * 3000}}),
    ],
)
def test_lists_and_documents_are_read(text: str, tmp_path: Path) -> None:
    """As gcloud, aws, az, jq, Elasticsearch and browsers write them, over one line or many."""
    requests, making = requests_in(tmp_path, text)
    assert [one.at_s for one in requests] == [1.0, 2.0, 4.0]
    assert [one.row for one in requests] == [{"model": "bert"}] * 3
    assert making.lines == {}


def test_list_that_is_cut_off_is_noted_and_one_with_a_mistake_refused(tmp_path: Path) -> None:
    text = pretty(ROWS)
    requests, making = requests_in(tmp_path, text[: text.rindex('"path"') + 9])
    assert (len(requests), making.lines) == (2, {CUT_OFF: 1})
    with pytest.raises(SpecError, match=r"log:12:5: not JSON"):
        requests_in(tmp_path, text.replace('"t": 2', "t: 2") + " " * 50)
    with pytest.raises(SpecError, match=r"log:2:3: not a request with columns by name"):
        requests_in(tmp_path, '[\n  "a",\n  {"t": 1}\n]\n' + " " * 50)


def test_elements_are_the_same_wherever_the_text_is_divided() -> None:
    text = pretty(ROWS)
    expected = list(elements(iter([text]), 1000, decoded))
    assert [value for _, _, value in expected] == ROWS
    assert [(line, column) for line, column, _ in expected] == [(2, 3), (11, 3), (20, 3)]
    for at in range(1, len(text)):
        assert list(elements(iter([text[:at], text[at:]]), 1000, decoded)) == expected


def test_long_list_is_read_in_little_memory() -> None:
    row = json.dumps({"t": 1, "filler": "x" * 1000}) + ","
    chunks = chain(["["], repeat(row * 50, 400), ["{}]"])
    tracemalloc.start()
    try:
        count = sum(1 for _ in elements(chunks, 1 << 20, decoded))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_001
    assert peak < 5_000_000
