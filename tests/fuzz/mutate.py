"""Texts near to good ones: pieces taken out, doubled, moved, and replaced by words that hurt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial, reduce

from hypothesis import strategies as st

#: A text grown beyond this says nothing that a smaller one does not.
LARGEST = 1 << 20
#: How often a piece comes in its own place.
TIMES = (2, 30, 1000, 20_000)
NUMBERS = re.compile(rb"-?\d[\d.]*")
WORDS = (
    *(b"", b"0", b"-1", b"1e999", b"nan", b"inf", b"true", b"null", b'"', b"'", b"\\", b"\x00"),
    *(b"\xff", b"\xef\xbb\xbf", "\u00a0".encode(), "\u202e".encode(), b"\r", b"\t", b"\n\n"),
    *(b"9" * 30, b"9" * 5000, b"18446744073709551616", b"0.1", b"1_0", b"+8", b"- 1", b"0x1p3"),
    *(b"[" * 900, b"{" * 900, b"}", b"]", b"[", b"{", b",", b":", b": ", b"#", b"//", b"<", b">"),
    *(b"x" * 300, b"/dev/zero", b"~nosuchuser/x", b"../../x", b"${X}", b"\x1b[2J", b"::error::"),
)


def texts(seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """One of the seeds after one or two changes, or up to eight; at most `LARGEST` bytes."""
    where = st.floats(0, 1, exclude_max=True)  # as a share of the text
    change = st.tuples(
        where,
        st.sampled_from((0, 1, 2, 5, 10, 40, 200)) | st.integers(0, 100) | st.none(),
        st.sampled_from((*WORDS, *words)) | st.binary(max_size=8) | st.sampled_from(TIMES) | where,
    )
    few, many = st.lists(change, min_size=1, max_size=2), st.lists(change, max_size=8)
    return st.builds(partial(reduce, _changed), few | many, st.sampled_from(tuple(seeds)))


def _changed(text: bytes, change: tuple[float, int | None, bytes | int | float]) -> bytes:
    """A piece, or a number where no length is given, gives way to one of three.

    That is a word, itself many times over, or a piece from elsewhere.
    """
    at, length, put = change
    start = int(at * len(text))
    number = NUMBERS.search(text, start) if length is None else None
    start, end = number.span() if number is not None else (start, start + (length or 0))
    if isinstance(put, float):
        put = text[int(put * len(text)) :][: end - start]
    put = put if isinstance(put, bytes) else put * text[start:end]
    return (text[:start] + put + text[end:])[:LARGEST]
