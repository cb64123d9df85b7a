"""The size of Triton's response cache: a server argument and a field of the model's config.

The size belongs to the server (`--cache-config=local,size=BYTES`, one buffer for all models),
the decision to use it to the model (`response_cache.enable`). `response_cache.size` is the one
name the space has for both; it is no field of ModelConfig.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.spec.fields import Choice
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_SIZE
from tuner.spec.units import parse_bytes

_FLAG = "--cache-config"
_OLD_FLAG = "--response-cache-byte-size"


def server_args(size: int | None) -> tuple[str, ...]:
    """What the server must be started with; nothing for no cache."""
    return () if size is None else (f"{_FLAG}=local,size={size}",)


def list_sizes(spec: Spec) -> tuple[int, ...]:
    """Sizes in bytes the spec lets choose from; none when it does not search the cache."""
    sizes = spec.server.space.get(CACHE_SIZE)
    if not isinstance(sizes, Choice):
        return ()
    return tuple(
        parse_bytes(s) for s in sizes.choice if isinstance(s, (str, int)) and s is not False
    )


def split_args(args: Sequence[str]) -> tuple[tuple[str, ...], int | None]:
    """Server arguments without those of the cache, and the size of the local cache.

    Raises:
        ValueError: The cache is not a local one of a stated size, so its size cannot be searched.
    """
    rest: list[str] = []
    size: int | None = None
    pending = list(args)
    while pending:
        arg = pending.pop(0)
        flag, joined, value = arg.partition("=")
        if flag not in (_FLAG, _OLD_FLAG):
            rest.append(arg)
            continue
        setting = value if joined or not pending else pending.pop(0)
        match = re.fullmatch(r"\d+" if flag == _OLD_FLAG else r"local,size=\d+", setting)
        if match is None:
            raise ValueError(f"{flag} {setting} is not a local cache of a stated size")
        size = int(setting.removeprefix("local,size="))
    return tuple(rest), size
