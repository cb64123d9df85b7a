"""The request queue with its policies, as scheduler_utils.cc has it.

One chain a priority level for requests in time, and one for those that expired and were put
behind them (``timeout_action: DELAY``). Chain 2k is level k's first, 2k + 1 its second.
"""

from __future__ import annotations

from typing import Any

from tuner.twin.host import send_back
from tuner.twin.jit import compiled
from tuner.twin.state import REJECTED


@compiled
def accepts(s: Any, level: int) -> bool:
    """Whether ``max_queue_size`` leaves room."""
    most = s.max_queue_size[level]
    waiting = s.queue_length[2 * level] + s.queue_length[2 * level + 1]
    return bool(most == 0 or waiting < most)


@compiled
def push(s: Any, m: Any, request: int) -> None:
    _append(s, m, 2 * m.requests[request].level, request)
    s.queued += s.request_size


@compiled
def shift(s: Any, m: Any) -> int:
    """The request to be served next, taken out; the queue must not be empty."""
    chain = 0
    while s.queue_length[chain] == 0:
        chain += 1
    s.queued -= s.request_size
    return _pop(s, m, chain)


@compiled
def oldest_s(s: Any, m: Any) -> float:
    """When the oldest request came that is first in some chain; the queue must not be empty."""
    oldest = 1e300
    for chain in range(2 * s.levels):
        if s.queue_length[chain] > 0:
            oldest = min(oldest, m.requests[s.queue_first[chain]].arrived_s)
    return oldest


@compiled
def drop_expired(s: Any, m: Any, now_s: float, only_refuse: bool) -> None:
    """Refuses, or puts behind the others, what waited for longer than its level allows."""
    for level in range(s.levels):
        timeout_s = s.timeout_s[level]
        if timeout_s == 0.0 or (only_refuse and s.delays_expired[level]):
            continue
        chain = 2 * level
        while s.queue_length[chain] > 0:
            request = s.queue_first[chain]
            if now_s - m.requests[request].arrived_s <= timeout_s:
                break
            _pop(s, m, chain)
            if s.delays_expired[level]:
                _append(s, m, chain + 1, request)
            else:
                s.queued -= s.request_size
                m.requests[request].fate = REJECTED
                send_back(m, request, now_s)


@compiled
def _append(s: Any, m: Any, chain: int, request: int) -> None:
    m.requests[request].after = -1
    if s.queue_length[chain] == 0:
        s.queue_first[chain] = request
    else:
        m.requests[s.queue_last[chain]].after = request
    s.queue_last[chain] = request
    s.queue_length[chain] += 1


@compiled
def _pop(s: Any, m: Any, chain: int) -> int:
    request: int = s.queue_first[chain]
    s.queue_first[chain] = m.requests[request].after
    s.queue_length[chain] -= 1
    m.requests[request].after = -1
    return request
