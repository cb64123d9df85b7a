"""The response cache: least recently used goes first (Triton's local_cache.cc).

All responses are taken to be of the same size. Two equal requests in flight at once are both
executed, as in Triton: the cache learns a response when it is sent.
"""

from __future__ import annotations

from typing import Any

from tuner.twin.jit import compiled


@compiled
def look_up(s: Any, m: Any, key: int) -> bool:
    """Whether the response is there; makes it the newest."""
    if m.keys[key].cached == 0:
        return False
    _take_out(s, m, key)
    _put_in(s, m, key)
    return True


@compiled
def insert(s: Any, m: Any, key: int) -> None:
    if m.keys[key].cached == 1:
        return
    if s.cached == s.cache_entries:
        _take_out(s, m, s.oldest)
    _put_in(s, m, key)


@compiled
def _put_in(s: Any, m: Any, key: int) -> None:
    m.keys[key].cached = 1
    m.keys[key].newer = -1
    m.keys[key].older = s.newest
    if s.newest >= 0:
        m.keys[s.newest].newer = key
    else:
        s.oldest = key
    s.newest = key
    s.cached += 1


@compiled
def _take_out(s: Any, m: Any, key: int) -> None:
    newer, older = m.keys[key].newer, m.keys[key].older
    if newer >= 0:
        m.keys[newer].older = older
    else:
        s.newest = older
    if older >= 0:
        m.keys[older].newer = newer
    else:
        s.oldest = newer
    m.keys[key].cached = 0
    s.cached -= 1
