"""The tokenizer example's tokenisation, without a server."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from builders.model_files import REPOSITORY, import_file

DIRECTORY = REPOSITORY / "tokenizer" / "1"
VOCABULARY = (DIRECTORY / "vocab.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_file(DIRECTORY / "wordpiece.py", monkeypatch)


@pytest.fixture
def tokenizer(module: ModuleType) -> Any:
    return module.WordPiece(DIRECTORY / "vocab.txt")


def pieces(tokenizer: Any, text: str, length: int = 128) -> list[str]:
    return [VOCABULARY[number] for number in tokenizer.encode(text, length)]


def test_the_vocabulary_has_every_piece_once_and_fits_tiny_bert() -> None:
    assert VOCABULARY[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert len(set(VOCABULARY)) == len(VOCABULARY) <= 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("The quick brown fox", ["the", "quick", "brown", "fox"]),
        ("jumping jumps", ["jump", "##ing", "jump", "##s"]),
        ("don't (stop)!", ["do", "##n", "'", "t", "(", "stop", ")", "!"]),
        ("Café\tTÜRK", ["c", "##a", "##f", "##e", "t", "##ur", "##k"]),
        ("a\x00b\u200bc", ["a", "##b", "##c"]),
        ("5 € $5", ["5", "[UNK]", "$", "5"]),
        ("x" * 101, ["[UNK]"]),
    ],
)
def test_texts_are_cut_into_the_longest_known_pieces(
    tokenizer: Any, text: str, expected: list[str]
) -> None:
    assert pieces(tokenizer, text) == ["[CLS]", *expected, "[SEP]"]


def test_long_texts_are_cut_to_the_length(tokenizer: Any) -> None:
    ids = tokenizer.encode("word " * 300, 128)
    assert len(ids) == 128
    assert VOCABULARY[ids[-1]] == "[SEP]"


def test_all_of_printable_ascii_is_known(tokenizer: Any) -> None:
    printable = "".join(chr(number) for number in range(33, 127))
    assert "[UNK]" not in pieces(tokenizer, printable)
    assert "[UNK]" not in pieces(tokenizer, " ".join(printable))
