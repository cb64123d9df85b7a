"""Whether two copies of a model hold the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.serving import write_models

from tuner.modelconfig import content
from tuner.modelconfig.content import content_of, differences
from tuner.modelconfig.served import read_served

FILES = {"1/model.onnx": "weights", "1/env/bin/python": "x", "labels.txt": "cat"}


def content_with(repository: Path, files: dict[str, str]) -> dict[str, str]:
    if not repository.exists():
        write_models(repository, m='backend: "python"')
    for name, text in files.items():
        path = repository / "m" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return content_of(read_served(repository, ["m"]), {})


def test_differing_files_are_named(tmp_path: Path) -> None:
    here = {"1/model.onnx": "Weights", "1/env/bin/python": "y", "2/model.onnx": "weights"}
    differing = differences(
        content_with(tmp_path / "there", FILES), content_with(tmp_path / "here", here)
    )
    names = ["m/1/env", "m/1/model.onnx", "m/2/model.onnx", "m/labels.txt"]
    assert [line.split()[0] for line in differing] == names


def test_a_linked_file_and_what_no_server_reads_make_no_difference(tmp_path: Path) -> None:
    unread = {".config.pbtxt.tune.0123.bak", "configs/other.pbtxt", "1/__pycache__/model.pyc"}
    here = content_with(tmp_path / "here", {**FILES, **dict.fromkeys(unread, "")})
    assert here == content_with(tmp_path / "there", FILES)
    weights = tmp_path / "here" / "m" / "1" / "model.onnx"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    assert content_with(tmp_path / "here", {}) == here


def test_a_link_to_a_directory_counts_by_where_it_leads_and_is_never_followed(
    tmp_path: Path,
) -> None:
    contents = {}
    for name in ("one", "same", "other"):
        content_with(tmp_path / name, FILES)
        link = tmp_path / name / "m" / "1" / "data"
        link.symlink_to("/usr" if name == "other" else "/proc")
        (link.parent / "loop").symlink_to("..")
        contents[name] = content_with(tmp_path / name, {})
    assert contents["one"] == contents["same"]
    assert differences(contents["one"], contents["other"]) == ["m/1/data differs"]


def test_twenty_levels_that_each_lead_twice_into_the_next_are_read_at_once(tmp_path: Path) -> None:
    repository = tmp_path / "r"
    content_with(repository, {f"1/{n}/weights": "x" for n in range(22)})
    for number in range(21):
        for link in "ab":
            (repository / "m" / "1" / str(number) / link).symlink_to(f"../{number + 1}")
    assert len(content_with(repository, {})) == 22


def test_a_tree_of_1500_levels_is_read(tmp_path: Path) -> None:
    shallow = content_with(tmp_path / "r", FILES)
    below = [tmp_path / "r" / "m" / "1" / ("d/" * depth + "d") for depth in range(1500)]
    for directory in below:
        directory.mkdir()
    (weights := below[-1] / "weights").touch()
    assert set(content_with(tmp_path / "r", {})) - set(shallow) == {"m/1/d"}
    weights.unlink()
    for directory in reversed(below):  # `shutil.rmtree` of pytest cannot
        directory.rmdir()


def test_only_some_of_very_many_model_files_are_compared_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_MOST_FILES", 3)
    content_with(tmp_path / "r", FILES)
    notes: list[str] = []
    entries = content_of(read_served(tmp_path / "r", ["m"]), {}, notes.append)
    assert len(entries) == 2  # and config.pbtxt
    assert len(notes) == 1


def test_a_large_file_is_compared_by_size_and_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(content, "_BLOCKS", 10)
    texts = ("x" * 1000, "x" * 1001, *("x" * at + "y" + "x" * (999 - at) for at in (0, 500, 901)))
    assert (
        len({content_with(tmp_path / "r", {"1/model.onnx": t})["m/1/model.onnx"] for t in texts})
        == 5
    )
