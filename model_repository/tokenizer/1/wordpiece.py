"""BERT's uncased tokenisation: words by white space and punctuation, then longest known pieces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

PAD, UNKNOWN, CLASSIFY, SEPARATE = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
LONGEST_WORD = 100  # a longer one is unknown, as in BERT


def words(text: str) -> Iterator[str]:
    """Lower-cased words without accents; each punctuation mark is a word of its own."""
    word = ""
    for character in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(character)
        if category == "Mn" or character == "\ufffd":
            continue  # the accent of the letter before; a byte that was no UTF-8
        if category[0] == "C" and not character.isspace():
            continue  # invisible control characters
        apart = is_punctuation(character, category)
        if not apart and not character.isspace():
            word += character
            continue
        if word:
            yield word
        if apart:
            yield character
        word = ""
    if word:
        yield word


def is_punctuation(character: str, category: str) -> bool:
    """Unicode's punctuation, and ASCII's signs such as $ and +."""
    return category[0] == "P" or (category[0] == "S" and character.isascii())


class WordPiece:
    """Encodes texts with the vocabulary of a file: one piece a line, its id the line number."""

    def __init__(self, vocabulary: Path) -> None:
        pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        self.ids = {piece: number for number, piece in enumerate(pieces)}

    def encode(self, text: str, length: int) -> list[int]:
        """[CLS] pieces [SEP], cut to ``length`` ids; not padded."""
        ids = [self.ids[CLASSIFY]]
        for word in words(text):
            if len(ids) >= length - 1:
                break
            ids += self.pieces(word)
        return [*ids[: length - 1], self.ids[SEPARATE]]

    def pieces(self, word: str) -> list[int]:
        """Ids of the longest known pieces from left to right; [UNK] when some part has none."""
        if len(word) > LONGEST_WORD:
            return [self.ids[UNKNOWN]]
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self.ids.get(prefix + word[start:end])
                if number is not None:
                    found.append(number)
                    start = end
                    break
            else:
                return [self.ids[UNKNOWN]]
        return found
