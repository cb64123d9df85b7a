from __future__ import annotations

import hashlib

import pytest

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.modelconfig.files import read_model


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
    assert files.exists
    assert files.sha256 == hashlib.sha256(b"max_batch_size: 8\r\n").hexdigest()
    assert files.versions == (1, 2, 12)
    assert files.config().max_batch_size == 8
    assert not files.decoupled


def test_a_model_without_a_config(repository):
    files = read_model(repository, "bare")
    assert (files.text, files.exists, files.versions) == ("", False, (1,))
    assert files.path == repository / "bare" / "config.pbtxt"
    assert files.sha256 == hashlib.sha256(b"").hexdigest()


def test_decoupled(repository):
    path = repository / "bare" / "config.pbtxt"
    path.write_text("model_transaction_policy { decoupled: true }")
    assert read_model(repository, "bare").decoupled


def test_an_unknown_model_is_named_with_the_nearest(repository):
    with pytest.raises(SpecError, match="no model 'brt'") as caught:
        read_model(repository, "brt")
    assert caught.value.hint == "did you mean bert?"
    with pytest.raises(SpecError) as caught:
        read_model(repository, "zzz")
    assert caught.value.hint == "it has bare, bert"


def test_a_repository_that_is_not_there(tmp_path):
    with pytest.raises(EnvironmentNotReadyError, match="No such file"):
        read_model(tmp_path / "nowhere", "bert")


def test_a_broken_config_is_a_spec_error_with_its_place(repository):
    (repository / "bare" / "config.pbtxt").write_text("\nnonsense: 1")
    with pytest.raises(SpecError, match=r"bare/config\.pbtxt:2:1"):
        read_model(repository, "bare").config()


def test_text_must_be_utf8(repository):
    (repository / "bare" / "config.pbtxt").write_bytes(b'# ok\nname: "\xff"')
    with pytest.raises(SpecError, match=r"config\.pbtxt:2:1: this is not UTF-8"):
        read_model(repository, "bare")
