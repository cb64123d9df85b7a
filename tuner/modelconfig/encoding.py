"""The bytes of a config.pbtxt as text, and back.

Triton does not look at the bytes of comments (tritonserver 2.51 loads a Latin-1 one). Anything
else is UTF-8: a config is sent to Triton as JSON, and shown by it as JSON.
"""

from __future__ import annotations

import re

from tuner.errors import SpecError
from tuner.modelconfig.dialect import without_comments

_BEYOND_ASCII = re.compile("[^\\x00-\\x7f]")
UTF_8, LATIN_1 = ENCODINGS = ("utf-8", "latin-1")


def decode(content: bytes) -> tuple[str, str]:
    """The text, and its encoding: UTF-8, or Latin-1 where comments alone are not ASCII.

    Raises:
        UnicodeDecodeError: It is neither; ``start`` is at the first non-ASCII outside comments.
    """
    try:
        return content.decode(UTF_8), UTF_8
    except UnicodeDecodeError as error:
        text = content.decode(LATIN_1)
        if beyond := _BEYOND_ASCII.search(without_comments(text)):
            start, end = beyond.span()
            raise UnicodeDecodeError(UTF_8, content, start, end, "no comment") from error
        return text, LATIN_1


def encode(text: str, encoding: str) -> bytes:
    """The bytes of a text; `decode` turns them back.

    Raises:
        SpecError: Something else than its comments is not ASCII, and it is not UTF-8.
    """
    if encoding != UTF_8 and not without_comments(text).isascii():
        raise SpecError(
            "the config has comments in Latin-1, and would have other text in UTF-8",
            "save config.pbtxt as UTF-8, then run tune again",
        )
    return text.encode(encoding)
