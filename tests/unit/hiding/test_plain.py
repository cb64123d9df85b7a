from __future__ import annotations

import unicodedata

from tuner.plain import plain, plain_lines


def test_text_that_is_only_read_stays_as_it_is() -> None:
    text = "modèle_4 | p99 <= 40ms: größer, 模型, 🙂 \\n"
    assert plain(text) == plain_lines(text) == text


def test_escape_sequences_line_breaks_and_bidirectional_marks_are_made_visible() -> None:
    assert plain("a\x1b]0;t\x07\r\n\x9bm\u202eb\u2066\x00") == (
        r"a\x1b]0;t\x07\r\n\x9bm\u202eb\u2066\x00"
    )
    assert plain_lines("a\n\tb\r\nc\rd\x1b") == "a\n\tb\nc\\rd\\x1b"


def test_nothing_that_cannot_be_seen_is_left_and_all_can_be_written_to_a_file() -> None:
    everything = "".join(map(chr, range(0x110000)))
    left = plain(everything)
    left.encode("utf-8")
    kinds = {unicodedata.category(c) for c in left}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
    assert not {c for c in left if unicodedata.bidirectional(c) in {"RLO", "LRO", "RLE", "LRE"}}
