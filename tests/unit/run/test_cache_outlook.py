from __future__ import annotations

from pathlib import Path

import pytest
from builders.messages_searching import cache_notes


@pytest.mark.parametrize(
    "inputs", ["{kind: random}", "{kind: random, repeat: {kind: duplicates, share: 30%}}"]
)
def test_nothing_is_said_where_popularity_is_not_known(tmp_path: Path, inputs: str) -> None:
    assert cache_notes(tmp_path, inputs) == []


def test_cache_hits_rise_under_a_power_law_of_repeats(tmp_path: Path) -> None:
    law = "{kind: random, unique: 400, repeat: {kind: zipf, exponent: 1.2}}"
    (small, large) = cache_notes(tmp_path, law)
    assert " 102 answers; " in small
    share = int(small.split("hit rate ")[1].split("%")[0])
    assert 50 < share < 100
    assert large.endswith(" 100%")


@pytest.mark.parametrize(
    ("output", "answers"),
    [
        ("data_type: TYPE_FP32 dims: [ 1 ]", 481),
        ("data_type: TYPE_FP32 dims: [ 1, 1 ]", 481),
        ("data_type: TYPE_FP64 dims: [ 1000 ]", 4),
        ("data_type: TYPE_FP32 dims: [ -1 ]", None),
        ("data_type: TYPE_FP32 dims: [ 4, -1 ]", None),
        ("data_type: TYPE_STRING dims: [ 1 ]", None),
    ],
)
def test_how_many_answers_fit_follows_their_size(
    output: str, answers: int | None, tmp_path: Path
) -> None:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'name: "m" backend: "python" max_batch_size: 8\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }\n'
        f'output {{ name: "y" {output} }}\n'
    )
    inputs = "{kind: random, unique: 400, repeat: {kind: uniform}}"
    said = cache_notes(tmp_path, inputs, "m", tmp_path / "repository")
    expected = [] if answers is None else [f"holds about {answers} answers"]
    assert [n for n in said[:1] if expected and expected[0] in n] == said[:1]
    assert bool(said) is (answers is not None)
