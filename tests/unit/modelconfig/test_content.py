"""Whether two copies of a model hold the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.serving import write_models

from tuner.modelconfig import content
from tuner.modelconfig.content import content_of, differences
from tuner.modelconfig.served import read_served

FILES = {"1/model.onnx": "weights", "1/env/bin/python": "x", "labels.txt": "cat"}


def held(repository: Path, files: dict[str, str]) -> dict[str, str]:
    if not repository.exists():
        write_models(repository, m='backend: "python"')
    for name, text in files.items():
        path = repository / "m" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return content_of(read_served(repository, ["m"]))


def test_what_differs_is_named(tmp_path: Path) -> None:
    here = {"1/model.onnx": "Weights", "1/env/bin/python": "y", "2/model.onnx": "weights"}
    assert differences(held(tmp_path / "there", FILES), held(tmp_path / "here", here)) == [
        "m/1/env differs",
        "m/1/model.onnx differs",
        "m/2/model.onnx is not part of the run's",
        "m/labels.txt is missing here",
    ]
    many = {str(number): "" for number in range(8)}
    assert differences(many, {})[4:] == ["4 is missing here", "and 3 more"]


def test_links_and_what_no_server_reads_make_no_difference(tmp_path: Path) -> None:
    unread = {".config.pbtxt.tune.journal", "configs/other.pbtxt", "1/__pycache__/model.pyc"}
    here = held(tmp_path / "here", {**FILES, **dict.fromkeys(unread, "")})
    assert here == held(tmp_path / "there", FILES)
    version = tmp_path / "here" / "m" / "1"
    version.rename(tmp_path / "elsewhere")
    version.symlink_to(tmp_path / "elsewhere")
    (version / "loop").symlink_to(version.parent)
    assert held(tmp_path / "here", {}) == here


def test_a_large_file_is_compared_by_size_and_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(content, "_BLOCKS", 10)
    texts = ("x" * 1000, "x" * 1001, *("x" * at + "y" + "x" * (999 - at) for at in (0, 500, 901)))
    assert len({held(tmp_path / "r", {"1/model.onnx": t})["m/1/model.onnx"] for t in texts}) == 5
