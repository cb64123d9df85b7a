"""Texts near to good ones: pieces taken out, doubled, moved, and replaced by words that hurt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

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


#: What becomes of a text: (text, beginning and end of a piece, word, how many times).
CHANGES: Mapping[str, Callable[[bytes, int, int, bytes, int], bytes]] = {
    "insert a word": lambda t, start, _end, word, _times: t[:start] + word + t[start:],
    "replace a piece": lambda t, start, end, word, _times: t[:start] + word + t[end:],
    "replace a number": lambda t, start, _end, word, _times: (
        t[:start] + NUMBERS.sub(lambda _: word, t[start:], count=1)
    ),
    "cut": lambda t, start, end, _word, _times: t[:start] + t[end:],
    "double": lambda t, start, end, _word, _times: t[:end] + t[start:end] + t[end:],
    "grow": lambda t, start, end, _word, times: t[:end] + times * t[start:end] + t[end:],
    "move to the front": lambda t, start, end, _word, _times: t[start:end] + t[:start] + t[end:],
}


def texts(seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """One of the seeds after one or two changes, or up to eight; at most `LARGEST` bytes."""
    changes = st.tuples(
        st.sampled_from(sorted(CHANGES)),
        st.floats(0, 1, exclude_max=True),  # where, as a share of the text
        st.sampled_from((1, 2, 5, 10, 40, 200)) | st.integers(1, 100),  # bytes of the piece
        st.sampled_from((*WORDS, *words)) | st.binary(max_size=8),
        st.sampled_from((2, 30, 1000, 20_000)),
    )
    few, many = st.lists(changes, min_size=1, max_size=2), st.lists(changes, max_size=8)
    return st.builds(_changed, st.sampled_from(tuple(seeds)), few | many)


def _changed(text: bytes, changes: Sequence[tuple[str, float, int, bytes, int]]) -> bytes:
    for name, at, length, word, times in changes:
        start = int(at * len(text))
        text = CHANGES[name](text, start, start + length, word, times)[:LARGEST]
    return text
