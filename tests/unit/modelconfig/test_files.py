from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest
from builders.messages_models import NO_FILES, no_file

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.lint.repository import Severity, lint_repository
from tuner.modelconfig.edit import edit
from tuner.modelconfig.encoding import LATIN_1, encode
from tuner.modelconfig.files import (
    belongs_to_model,
    is_model_name,
    model_directory,
    read_model,
    served_versions,
)
from tuner.modelconfig.message import parse


@pytest.fixture
def repository(tmp_path):
    for version in ("1", "2", "010", "0", "old", "12"):
        (tmp_path / "bert" / version).mkdir(parents=True)
    (tmp_path / "bert" / "3").write_text("no directory")
    (tmp_path / "bert" / "config.pbtxt").write_bytes(b"max_batch_size: 8\r\n")
    (tmp_path / "bare" / "1").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("")
    return tmp_path


def test_a_model_with_a_config(repository):
    files = read_model(repository, "bert")
    assert files.path == repository / "bert" / "config.pbtxt"
    assert files.text == "max_batch_size: 8\r\n"
    assert files.sha256 == hashlib.sha256(b"max_batch_size: 8\r\n").hexdigest()
    assert files.versions == (1, 2, 12)
    assert files.config().max_batch_size == 8


def test_a_model_without_a_config(repository):
    files = read_model(repository, "bare")
    assert (files.text, files.sha256, files.versions) == ("", None, (1,))
    assert files.path == repository / "bare" / "config.pbtxt"


def test_a_config_by_another_name_is_read_where_it_is_there(repository):
    name = "configs/a100.pbtxt"
    files = read_model(repository, "bert", name)
    assert (files.path.name, files.config().max_batch_size) == ("config.pbtxt", 8)
    (repository / "bert" / "configs").mkdir()
    (repository / "bert" / name).write_text("max_batch_size: 4")
    files = read_model(repository, "bert", name)
    assert (files.path, files.write_to) == (repository / "bert" / name, name)
    assert files.config().max_batch_size == 4
    assert read_model(repository, "bert").config().max_batch_size == 8
    assert read_model(repository, "bare", name).sha256 is None


@pytest.mark.parametrize(
    ("model", "config", "expected"),
    [
        ("", "", True),
        ("", "repo/shared/m.pbtxt", True),
        ("", "elsewhere/config.pbtxt", False),
        ("", "repo/.git/annex/SHA256E-s9--abc", False),
        ("", "repo/m/..2026_09_01/config.pbtxt", False),
        ("real/m", "", True),
        ("real/m", "real/m/other.pbtxt", True),
        ("real/m", "real/other/config.pbtxt", False),
        ("real/m", "real/m/.dvc/cache/abc", False),
        ("repo/..2026_09_01/m", "", False),
        (".dvc/cache/m", "", False),
    ],
)
def test_files_of_a_model_lie_in_its_repository_or_where_its_directory_leads(
    tmp_path, model, config, expected
):
    top = tmp_path / ".hidden"  # what lies above both is not asked
    there = top / (model or "repo/m")
    there.mkdir(parents=True)
    (top / "repo").mkdir(exist_ok=True)
    if model:
        (top / "repo" / "m").symlink_to(there)
    if config:
        (there / "config.pbtxt").symlink_to(top / config)
    assert belongs_to_model(top / "repo" / "m" / "config.pbtxt", top / "repo" / "m") is expected


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_config_that_is_no_file_is_said_and_never_waited_for(repository, kind):
    no_file(repository / "bare" / "config.pbtxt", kind)
    with pytest.raises(SpecError) as caught:
        read_model(repository, "bare")
    assert "bare/config.pbtxt" in caught.value.message
    (finding,) = lint_repository(repository, "bare")
    assert (finding.rule, finding.severity) == ("config-file", Severity.ERROR)


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", [".#model.py", "x.py", "model.py"])
def test_model_py_that_is_no_plain_file_is_neither_read_nor_waited_for(repository, kind, name):
    (repository / "bare" / "config.pbtxt").write_text('backend: "python"')
    no_file(repository / "bare" / "1" / name, kind)
    files = read_model(repository, "bare")
    assert not files.completes(files.config())
    hints = [finding.hint for finding in lint_repository(repository, "bare")]
    assert all(name in hint for hint in hints)
    assert len(hints) == ((name, kind) != ("model.py", "directory"))


def test_unreadable_code_is_reported(repository, monkeypatch):
    def refused(path, *_at_most):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (repository / "bert" / "2" / "model.py").write_text("")
    files = read_model(repository, "bert")
    monkeypatch.setattr("tuner.modelconfig.files.read_regular", refused)
    with pytest.raises(EnvironmentNotReadyError, match=r"2/model\.py: Permission denied"):
        files.mentions("load_model")


def test_a_link_to_a_config_is_followed(repository):
    (repository / "bare" / "config.pbtxt").symlink_to("../bert/config.pbtxt")
    assert read_model(repository, "bare").text == "max_batch_size: 8\r\n"


def test_versions_are_written_in_ascii_digits(repository):
    (repository / "bare" / "\u0661").mkdir()
    assert read_model(repository, "bare").versions == (1,)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".git", "../x", "bert/", "bert/1", "a\0b", "x" * 256]
)
def test_a_path_is_no_name_of_a_model(repository, name):
    assert not is_model_name(name)
    with pytest.raises(SpecError):
        model_directory(repository, name)


def test_model_is_read_without_listing_the_repository(repository, monkeypatch):
    def refuse(self):
        assert self != repository
        return iter(())

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert read_model(repository, "bert").text == "max_batch_size: 8\r\n"


@pytest.mark.parametrize(
    ("text", "column"), [(b'name: "\xff"', 8), (b"\xa0", 1), (b'name: "a" "# \xe9"', 14)]
)
@pytest.mark.parametrize("comment", [b"# ok\n", b"# caf\xe9\n"])
def test_text_must_be_utf8(repository, text, column, comment):
    (repository / "bare" / "config.pbtxt").write_bytes(comment + text)
    with pytest.raises(SpecError, match=rf"config\.pbtxt:2:{column}: "):
        read_model(repository, "bare")
    (finding,) = lint_repository(repository, "bare")
    assert (finding.rule, finding.severity) == ("encoding", Severity.ERROR)


def test_a_comment_may_be_latin_1(repository):
    content = b'name: "# it is \\" #" # caf\xe9\nmax_batch_size: # \x85\n 04'
    (repository / "bare" / "config.pbtxt").write_bytes(content)
    files = read_model(repository, "bare")
    assert files.encoding == LATIN_1
    assert files.config().max_batch_size == 4
    assert files.sha256 == hashlib.sha256(content).hexdigest()
    changed = edit(files.text, {"max_batch_size": 8})
    assert encode(changed, LATIN_1) == content.replace(b"04", b"8")
    with pytest.raises(SpecError, match="comments in Latin-1"):
        encode(edit(files.text, {"parameters.x": "\u00e9"}), LATIN_1)


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", (3,)),
        ("version_policy { }", (3,)),
        ("version_policy { latest { } }", ()),
        ("version_policy { latest { num_versions: 2 } }", (2, 3)),
        ("version_policy { specific { versions: [ 1, 7 ] } }", (1,)),
        ("version_policy { all { } }", (1, 2, 3)),
    ],
)
def test_versions_that_a_policy_serves(policy, served):
    assert served_versions(parse(policy), [1, 2, 3]) == served
