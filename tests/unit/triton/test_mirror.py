"""The stand-in of a repository that a server may write into."""

from __future__ import annotations

import py_compile
from pathlib import Path

import pytest

from tuner.triton.local import mirror_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    version = tmp_path / "repository" / "model" / "1"
    (version / "helpers").mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text("backend: 'python'")
    (version / "model.py").write_text("x = 1")
    (version / "helpers" / "part.py").write_text("y = 2")
    (version / "__pycache__").mkdir()
    (version / "__pycache__" / "model.cpython-39.pyc").touch()
    (tmp_path / "elsewhere" / "1").mkdir(parents=True)
    (tmp_path / "repository" / "linked").symlink_to(tmp_path / "elsewhere")
    (version / "loop").symlink_to(version.parent)
    return tmp_path / "repository"


def test_directories_are_new_and_files_are_links(repository: Path) -> None:
    with mirror_of(repository) as mirror:
        version = mirror / "model" / "1"
        assert (version / "model.py").resolve() == repository / "model" / "1" / "model.py"
        assert (version / "helpers" / "part.py").is_symlink()
        assert not version.is_symlink()
        assert (mirror / "linked" / "1").is_dir()
        assert not (version / "loop").exists()
    assert not mirror.exists()
    assert (repository / "model" / "1" / "model.py").read_text() == "x = 1"


def test_a_directory_that_may_not_be_read_becomes_a_link(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = repository / "model" / "1" / "helpers"
    monkeypatch.setattr("os.access", lambda path, _mode: path != private)
    with mirror_of(repository) as mirror:
        assert (mirror / "model" / "1" / "helpers").readlink() == private


def test_a_link_to_a_data_set_stays_one_link(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    for name in ("a.jpg", "train/b.jpg"):
        (tmp_path / "data" / name).touch()
    version = repository / "model" / "1"
    for place in (version.parent / "data", version / "data"):
        place.symlink_to(tmp_path / "data")
    with mirror_of(repository) as mirror:
        for copy in (mirror / "model" / "data", mirror / "model" / "1" / "data"):
            assert copy.readlink() == tmp_path / "data"
            assert (copy / "train" / "b.jpg").exists()
    assert (tmp_path / "data" / "train" / "b.jpg").exists()


def test_linked_code_and_linked_versions_get_no_bytecode_either(
    repository: Path, tmp_path: Path
) -> None:
    for code in ("package/__init__.py", "sources/package/__init__.py", "version/model.py"):
        (tmp_path / code).parent.mkdir(parents=True)
        (tmp_path / code).write_text("x = 1")
    model = repository / "model"
    (model / "1" / "package").symlink_to(tmp_path / "package")
    (model / "sources").symlink_to(tmp_path / "sources")
    (model / "2").symlink_to(tmp_path / "version")
    with mirror_of(repository) as mirror:
        copies = mirror / "model"
        for code in ("1/package/__init__.py", "sources/package/__init__.py", "2/model.py"):
            with pytest.raises(OSError, match="__pycache__"):
                py_compile.compile(str(copies / code), doraise=True)
    assert not list(tmp_path.glob("*/__pycache__"))


def test_python_leaves_no_bytecode_anywhere(repository: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    with mirror_of(repository) as mirror:
        version = mirror / "model" / "1"
        for code in (version / "model.py", version / "helpers" / "part.py"):
            with pytest.raises(OSError, match="__pycache__"):
                py_compile.compile(str(code), doraise=True)
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before
