"""Texts near to good ones: pieces taken out, doubled, moved, and replaced by words that hurt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

#: A text grown beyond this says nothing that a smaller one does not.
LARGEST = 1 << 20
NUMBERS = re.compile(rb"-?\d[\d.]*")
WORDS = (
    *(b"", b"0", b"-1", b"1e999", b"nan", b"inf", b"true", b"null", b'"', b"'", b"\\", b"\x00"),
    *(b"\xff", b"\xef\xbb\xbf", "\u00a0".encode(), "\u202e".encode(), b"\r", b"\t", b"\n\n"),
    *(b"9" * 30, b"9" * 5000, b"18446744073709551616", b"0.1", b"1_0", b"+8", b"- 1", b"0x1p3"),
    *(b"[" * 900, b"{" * 900, b"}", b"]", b"[", b"{", b",", b":", b": ", b"#", b"//", b"<", b">"),
    *(b"x" * 300, b"/dev/zero", b"~nosuchuser/x", b"../../x", b"${X}", b"\x1b[2J", b"::error::"),
)


class Kind(Enum):
    INSERT = "insert"
    REPLACE = "replace"
    NUMBER = "number"  # a number becomes the word
    CUT = "cut"
    DOUBLE = "double"
    GROW = "grow"  # a piece many times
    MOVE = "move"


@dataclass(frozen=True)
class Change:
    """``at`` and ``to`` are shares of the text's length; ``length`` is in bytes."""

    kind: Kind
    at: float
    to: float
    length: int
    word: bytes
    times: int

    def apply(self, text: bytes) -> bytes:
        start = int(self.at * len(text))
        end = min(len(text), start + self.length)
        piece, rest = text[start:end], text[:start] + text[end:]
        match self.kind:
            case Kind.INSERT:
                return text[:start] + self.word + text[start:]
            case Kind.REPLACE:
                return text[:start] + self.word + text[end:]
            case Kind.NUMBER:
                return text[:start] + NUMBERS.sub(lambda _: self.word, text[start:], count=1)
            case Kind.CUT:
                return rest
            case Kind.DOUBLE:
                return text[:end] + piece + text[end:]
            case Kind.GROW:
                return text[:end] + piece * self.times + text[end:]
            case Kind.MOVE:
                place = int(self.to * len(rest))
                return rest[:place] + piece + rest[place:]


def texts(seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """One of the seeds after one or two changes, or up to eight; at most `LARGEST` bytes."""
    share = st.floats(0, 1, exclude_max=True)
    changes = st.builds(
        Change,
        kind=st.sampled_from(Kind),
        at=share,
        to=share,
        length=st.sampled_from((1, 2, 5, 10, 40, 200)) | st.integers(1, 100),
        word=st.sampled_from((*WORDS, *words)) | st.binary(max_size=8),
        times=st.sampled_from((2, 30, 1000, 20_000)),
    )
    few, many = st.lists(changes, min_size=1, max_size=2), st.lists(changes, max_size=8)
    return st.builds(_changed, st.sampled_from(tuple(seeds)), few | many)


def _changed(text: bytes, changes: Sequence[Change]) -> bytes:
    for change in changes:
        text = change.apply(text)[:LARGEST]
    return text
