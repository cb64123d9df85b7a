"""A model's scheduler, as Triton has it: response cache, request queue, and batcher.

The cache (local_cache.cc) forgets the least recently used first. All responses are taken to be of
the same size. Two equal requests in flight at once are both executed, as in Triton: the cache
learns a response when it is sent.

The queue (scheduler_utils.cc) has one chain a priority level for requests in time, and one for
those that expired and were put behind them (``timeout_action: DELAY``). Chain 2k is level k's
first, 2k + 1 its second.

The dynamic batcher (dynamic_batch_scheduler.cc) holds one batch that is being formed. The batch is
handed over as soon as there is something to run, and keeps growing until an instance takes it or
it is saturated. A delay of 0 and one above are different paths: with 0, a preferred size closes
the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.twin.host import send_back
from tuner.twin.jit import compiled
from tuner.twin.state import BATCHES, IDLE, REJECTED, WAKING


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


#: The thread looks at an empty queue, or at a queue without a slot, at least this often.
POLL_S = 0.5
#: Moments computed in two ways differ by less.
_SAME_S = 1e-9


@compiled
def is_stale(s: Any) -> bool:
    """The current batch has been taken (EXECUTING or RELEASED), so it can grow no more."""
    return bool(s.current < s.front or s.batch_stale[s.current % BATCHES] == 1)


@compiled
def slot_available(s: Any) -> bool:
    """PayloadSlotAvailable of rate_limiter.cc: room for one more batch to wait for an instance."""
    waiting = s.back - s.front
    if s.prefetches:
        return bool(waiting < 2 * s.instances)
    idle = 0
    for i in range(s.instances):
        if s.doing[i] == IDLE or s.doing[i] == WAKING:
            idle += 1
    return bool(waiting < idle)


@compiled
def notices(s: Any) -> bool:
    """Whether a request that was just queued wakes the thread (Enqueue)."""
    wants = s.saturated or s.queued >= s.next_preferred or is_stale(s)
    return wants and slot_available(s)


@compiled
def run_batcher(s: Any, m: Any, now_s: float) -> bool:
    """BatcherThread until it waits again; true when a batch was handed over."""
    handed_over = False
    while True:
        if s.saturated or is_stale(s):
            _new_batch(s)
        if s.queued == 0:
            s.waiting = 0
            s.wake_s = now_s + POLL_S
            return handed_over
        if not slot_available(s):
            _wait_for_slot(s, m, now_s)
            return handed_over
        s.waiting = 0
        pending, wait_s = _look(s, m, now_s)
        if wait_s > 0.0:
            s.wake_s = now_s + wait_s
            return handed_over
        if pending > 0:
            _extend(s, m, pending)
            if s.current == s.back:
                s.back += 1
                handed_over = True


@compiled
def _wait_for_slot(s: Any, m: Any, now_s: float) -> None:
    """WaitForPayloadSlotAvailable: what expires meanwhile is seen at the next poll only."""
    if not s.waiting:
        s.waiting = 1
        s.wake_s = now_s + POLL_S
    elif now_s >= s.wake_s:
        drop_expired(s, m, now_s, True)
        s.wake_s = now_s + POLL_S


@compiled
def _new_batch(s: Any) -> None:
    s.current = s.back
    slot = s.current % BATCHES
    s.batch_first[slot] = -1
    s.batch_last[slot] = -1
    s.batch_size[slot] = 0
    s.batch_stale[slot] = 0
    s.saturated = 0
    s.next_preferred = 0


@compiled
def _look(s: Any, m: Any, now_s: float) -> tuple[int, float]:
    """GetDynamicBatch: how many inferences go at once, or how long to wait for more."""
    drop_expired(s, m, now_s, False)
    size = s.batch_size[s.current % BATCHES]
    pending, best, full = _gather(s, size)
    waited_s = now_s - oldest_s(s, m) if pending > 0 else 0.0
    exceeded = s.delay_s > 0.0 and waited_s >= s.delay_s - _SAME_S
    if best > 0 and not exceeded:
        if s.delay_s == 0.0:
            s.saturated = 1
        return best, 0.0
    if pending == 0:
        return 0, 0.0
    if full or size + pending >= s.largest_preferred:
        s.saturated = 1
        return pending, 0.0
    if exceeded or s.delay_s == 0.0:
        return pending, 0.0
    s.next_preferred = _next_preferred(s, size + pending) - size
    if size > 0 and not s.saturated and s.preferred[size] == 0:
        return pending, 0.0
    return 0, s.delay_s - waited_s


@compiled
def _gather(s: Any, size: int) -> tuple[int, int, bool]:
    """What fits beside ``size``: inferences in all, up to a preferred size, and whether more wait.

    Going past the largest preferred size saturates the batch.
    """
    best, pending = 0, 0
    while pending < s.queued:
        would_be = size + pending + s.request_size
        if size + pending > 0:
            if would_be > s.largest_preferred and best == 0:
                best = pending
                s.saturated = 1
            if would_be > s.max_batch:
                return pending, best, True
        pending += s.request_size
        if s.preferred[would_be] == 1:
            best = pending
    return pending, best, False


@compiled
def _next_preferred(s: Any, size: int) -> int:
    """The least preferred size above ``size``; the least of all when there is none."""
    for above in range(size + 1, s.max_batch + 1):
        if s.preferred[above] == 1:
            return above
    for any_size in range(s.max_batch + 1):
        if s.preferred[any_size] == 1:
            return any_size
    return 0


@compiled
def _extend(s: Any, m: Any, pending: int) -> None:
    """Moves requests from the queue to the current batch."""
    slot = s.current % BATCHES
    if s.batch_size[slot] == 0:
        s.batch_since_s[slot] = np.inf
    s.batch_size[slot] += pending
    while pending > 0:
        request = shift(s, m)
        pending -= s.request_size
        s.batch_since_s[slot] = min(s.batch_since_s[slot], m.requests[request].arrived_s)
        if s.batch_last[slot] < 0:
            s.batch_first[slot] = request
        else:
            m.requests[s.batch_last[slot]].after = request
        s.batch_last[slot] = request


@compiled
def take(s: Any, m: Any, now_s: float) -> tuple[int, int]:
    """Dequeue of instance_queue.cc: the first batch waiting, and what merges with it.

    With a delay set, batches behind it that have waited for longer than it are merged as long as
    all fit. One that was looked at and does not fit can grow no more: it is marked EXECUTING.
    """
    slots = BATCHES
    slot = s.front % slots
    first, last, size = s.batch_first[slot], s.batch_last[slot], s.batch_size[slot]
    s.front += 1
    while s.delay_s > 0.0 and s.max_batch > 1 and s.front < s.back:
        slot = s.front % slots
        if now_s - s.batch_since_s[slot] <= s.delay_s:
            break
        s.batch_stale[slot] = 1
        if size + s.batch_size[slot] > s.max_batch:
            break
        m.requests[last].after = s.batch_first[slot]
        last = s.batch_last[slot]
        size += s.batch_size[slot]
        s.front += 1
    return first, size
