"""What the name, type and dims of an input say about how much of it a request carries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tuner.modelconfig.schema import ModelConfig, enum_name

#: Words of names of what code acts on: of these a request has one, whatever number dims allow.
_SETTING = re.compile(
    r"beam|count|guidance|height|len(gth)?s?|limit|max|min|num(?!er)\w*|scale|seed|size|steps?|"
    r"temperature|threshold|top|width"
)
#: Types that sound is seldom in, and, of such, words for a number of what is wanted.
_WIDE = ("TYPE_INT32", "TYPE_INT64", "TYPE_UINT32", "TYPE_UINT64")
_COUNT = re.compile(rf"{_SETTING.pattern}|samples")
#: Parts of names of what a model of texts takes: two dimensions, the batch and the tokens.
_TOKENS = ("input_id", "attention_mask", "token_type", "position_id", "segment_id", "input_mask")
INTEGERS = ("TYPE_INT32", "TYPE_INT64")
#: Words of names of a picture, whose open dimensions are its height and width.
_PICTURED = re.compile(r"image|img|picture|photo|frame")
#: Dimensions of a picture without its batch, and the numbers of its channels.
PICTURE, _CHANNELS, _COLORS = 3, (1, 3, 4), 3


def is_named(tensor: Any, words: re.Pattern[str], config: ModelConfig) -> bool:
    """Whether one of the words is in an input's name, or in those that an ensemble's steps use."""
    parts = (p for name in _names(tensor, config) for p in re.findall("[A-Z]?[a-z]+|[A-Z]+", name))
    return any(words.fullmatch(part.lower()) for part in parts)


def _names(tensor: Any, config: ModelConfig) -> Iterator[str]:
    yield tensor.name
    for step in config.ensemble_scheduling.step:
        yield from (inner for inner, outer in step.input_map.items() if outer == tensor.name)


def has_one(tensor: Any, config: ModelConfig) -> bool:
    """Whether most clients send one: a text, a switch, or a setting."""
    one = enum_name(tensor, "data_type") in ("TYPE_STRING", "TYPE_BOOL")
    return one or is_setting(tensor, config)


def is_setting(tensor: Any, config: ModelConfig) -> bool:
    """Whether an input of an open length probably is what code acts on."""
    words = _COUNT if enum_name(tensor, "data_type") in _WIDE else _SETTING
    return list(tensor.dims) == [-1] and is_named(tensor, words, config)


def has_tokens(tensor: Any) -> bool:
    """Whether an input has the tokens of a text, or what belongs to them."""
    kind = enum_name(tensor, "data_type")
    return kind in INTEGERS and any(word in tensor.name.lower() for word in _TOKENS)


def likely_dims(tensor: Any, config: ModelConfig) -> list[int]:
    """The dims, with one for what probably is a batch, and three for the channels of a picture.

    Bytes of a picture have their channels last, other numbers first.
    """
    dims = list(tensor.dims)
    if _begins_with_batch(tensor, config):
        dims[0] = 1
    if dims[-PICTURE:] == [-1] * PICTURE and _is_picture(tensor, config):
        dims[-1 if _has_bytes(tensor) else -PICTURE] = _COLORS
    return dims


def _begins_with_batch(tensor: Any, config: ModelConfig) -> bool:
    """Whether the first dimension of a model that Triton does not batch is probably its batch."""
    dims = list(tensor.dims)
    if config.max_batch_size or len(dims) < 2 or dims[0] != -1:
        return False
    if len(dims) > PICTURE or has_tokens(tensor):
        return True
    channels = len(dims) == PICTURE and dims[-1] in _CHANNELS
    return -1 in dims[1:] and not (channels or _is_picture(tensor, config))


def _is_picture(tensor: Any, config: ModelConfig) -> bool:
    return _has_bytes(tensor) or is_named(tensor, _PICTURED, config)


def _has_bytes(tensor: Any) -> bool:
    return enum_name(tensor, "data_type") == "TYPE_UINT8"
