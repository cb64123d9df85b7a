"""The simulation's loop: the next event, whatever it is, until the run is over."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.twin.host import (
    INTERRUPTED,
    compute,
    end_task,
    heap_pop,
    leave_core,
    reach_client,
    send_back,
    send_next,
    start_front,
)
from tuner.twin.jit import compiled, entry
from tuner.twin.scheduler import accepts, insert, look_up, notices, push, run_batcher, shift, take
from tuner.twin.state import (
    ANSWERING,
    DEVICE,
    HIT,
    HOST,
    IDLE,
    NOISES,
    QUEUED,
    REJECTED,
    RELEASING,
    SERVED,
    WAKING,
)


@entry
def run(m: Any, warm_keys: Any) -> None:
    """Simulates until ``end_s``; what is not answered by then stays pending.

    ``warm_keys`` have been asked of the first model beforehand.
    """
    h = m.host
    _begin(h, m, warm_keys)
    while True:
        arrival_s = _next_arrival_s(h, m)
        node = _next_node(m)
        now_s = min(arrival_s, h.core_s, m.nodes[node].instance_s, m.nodes[node].wake_s)
        if now_s > h.end_s:
            return
        if now_s == arrival_s:
            _receive(h, m, _pop_arrival(h, m), now_s)
        elif now_s == h.core_s:
            _follow_up(m, end_task(m, now_s), now_s)
            leave_core(m, now_s)
        elif now_s == m.nodes[node].instance_s:
            _step_instances(m.nodes[node], m, now_s)
        else:
            _batch(m.nodes[node], m, now_s)
        while h.ended_first >= 0:
            _go_on(h, m, now_s)


@compiled
def _begin(h: Any, m: Any, warm_keys: Any) -> None:
    for key in warm_keys:
        if not look_up(m.nodes[0], m, key):
            insert(m.nodes[0], m, key)
    if h.closed:
        for client in range(m.coming.size - 1):
            # Clients do not start at one instant, or they would stay in step.
            send_next(m, client * 1e-4)


@compiled
def _next_node(m: Any) -> int:
    """The model whose instances or batcher are due first."""
    chosen, chosen_s = 0, np.inf
    for k in range(m.nodes.size):
        due_s = min(m.nodes[k].instance_s, m.nodes[k].wake_s)
        if due_s < chosen_s:
            chosen, chosen_s = k, due_s
    return chosen


@compiled
def _next_arrival_s(h: Any, m: Any) -> float:
    if h.closed:
        return m.coming[0].at if h.coming > 0 else np.inf
    return m.requests[h.arrived].arrived_s if h.arrived < h.requests else np.inf


@compiled
def _pop_arrival(h: Any, m: Any) -> int:
    if h.closed:
        request = heap_pop(m.coming, h.coming)
        h.coming -= 1
        return request
    h.arrived += 1
    return h.arrived - 1  # type: ignore[no-any-return]


@compiled
def _receive(h: Any, m: Any, request: int, now_s: float) -> None:
    """A request reaches the server."""
    if h.front_s > 0.0:
        start_front(m, 2 * request, 0.0, now_s)
    else:
        _enter(m, request, now_s)


@compiled
def _enter(m: Any, request: int, now_s: float) -> None:
    """A request reaches its model, or the first steps of its ensemble."""
    first = m.requests[request].link
    if first < 0:
        _enqueue(m.nodes[m.requests[request].node], m, request, now_s)
        return
    m.requests[request].arrived_s = m.requests[request].started_s = now_s
    for step in range(first, first + m.requests[request].steps):
        if m.requests[step].bits == 0:
            _enqueue(m.nodes[m.requests[step].node], m, step, now_s)


@compiled
def _go_on(h: Any, m: Any, now_s: float) -> None:
    """A step has ended: steps that waited only for it begin, or the request is answered.

    A refused step fails the whole request, whatever else is in flight.
    """
    ended = h.ended_first
    h.ended_first = m.requests[ended].after
    request = m.requests[ended].link
    whole = m.requests[request]
    if whole.left < 0:
        return
    if m.requests[ended].fate == REJECTED:
        whole.left = -1
        whole.fate = REJECTED
        send_back(m, request, now_s)
        return
    own = 1 << (ended - whole.link)
    whole.left -= 1
    whole.bits |= own
    for step in range(whole.link, whole.link + whole.steps):
        needs = m.requests[step].bits
        if needs & own and needs & whole.bits == needs:
            _enqueue(m.nodes[m.requests[step].node], m, step, now_s)
    if whole.left == 0:
        whole.fate = SERVED
        send_back(m, request, now_s)


@compiled
def _enqueue(s: Any, m: Any, request: int, now_s: float) -> None:
    """DynamicBatchScheduler::Enqueue: cache, queue policy, queue; wakes the batcher."""
    m.requests[request].arrived_s = now_s
    if s.cache_entries > 0 and look_up(s, m, m.requests[request].key):
        m.requests[request].fate = HIT
        m.requests[request].started_s = now_s
        _send_hit(s, m, request, now_s)
    elif s.batching and not accepts(s, m.requests[request].level):
        m.requests[request].fate = REJECTED
        send_back(m, request, now_s)
    else:
        push(s, m, request)
        if not s.batching:
            _wake_idle(s, now_s)
        elif notices(s):
            _batch(s, m, now_s)


@compiled
def _send_hit(s: Any, m: Any, request: int, now_s: float) -> None:
    if m.host.front_s > 0.0:
        start_front(m, 2 * request + 1, s.hit_s, now_s)
    else:
        reach_client(m, request, now_s + s.hit_s)


@compiled
def _batch(s: Any, m: Any, now_s: float) -> None:
    if run_batcher(s, m, now_s):
        _wake_idle(s, now_s)


@compiled
def _wake_idle(s: Any, now_s: float) -> None:
    """Notifies the instance that has been idle for longest that there is work."""
    work = s.back - s.front if s.batching else s.queued
    chosen, waking = -1, 0
    for i in range(s.instances):
        if s.doing[i] == WAKING:
            waking += 1
        elif s.doing[i] == IDLE and (chosen < 0 or s.since_s[i] < s.since_s[chosen]):
            chosen = i
    if chosen >= 0 and work > waking:
        s.doing[chosen] = WAKING
        s.until_s[chosen] = now_s + s.handoff_s
        _foresee(s)


@compiled
def _foresee(s: Any) -> None:
    earliest = np.inf
    for i in range(s.instances):
        earliest = min(earliest, s.until_s[i])
    s.instance_s = earliest


@compiled
def _step_instances(s: Any, m: Any, now_s: float) -> None:
    """What is due now: instances that wake up, devices that are done."""
    for i in range(s.instances):
        if s.until_s[i] <= now_s:
            s.until_s[i] = np.inf
            if s.doing[i] == WAKING:
                _take_work(s, m, i, now_s)
            else:
                m.host.device_busy[s.device_of[i]] = 0
                _use_device(m, s.device_of[i], now_s)
                _answer(s, m, i, now_s)
    _foresee(s)


@compiled
def _take_work(s: Any, m: Any, i: int, now_s: float) -> None:
    """An instance starts on the next batch, or has nothing to do."""
    if s.batching and s.front < s.back:
        first, size = take(s, m, now_s)
        _start(s, m, i, first, size, now_s)
        _batch(s, m, now_s)  # the payload's callback notifies the batcher
    elif not s.batching and s.queued > 0:
        _start(s, m, i, shift(s, m), s.request_size, now_s)
    else:
        s.doing[i] = IDLE
        s.since_s[i] = now_s


@compiled
def _start(s: Any, m: Any, i: int, first: int, size: int, now_s: float) -> None:
    more_s = s.slept_s if s.doing[i] == WAKING else 0.0
    s.doing[i] = HOST
    s.since_s[i] = now_s
    s.running_first[i] = first
    s.running_size[i] = size
    s.noise[i] = s.noises[s.executed % NOISES]
    s.executed += 1
    request = first
    while request >= 0:
        m.requests[request].started_s = now_s
        request = m.requests[request].after
    work_s = (s.overlap_base_s + s.overlap_item_s * _padded(s, size)) * s.noise[i]
    compute(m, s.first + i, work_s + more_s, now_s)


@compiled
def _padded(s: Any, size: int) -> int:
    return (size + s.pad_to - 1) // s.pad_to * s.pad_to  # type: ignore[no-any-return]


@compiled
def _follow_up(m: Any, task: int, now_s: float) -> None:
    """What a task was done for."""
    if task == INTERRUPTED:
        return
    if task >= 0 and task % 2 == 0:
        _enter(m, task // 2, now_s)
    elif task >= 0:
        reach_client(m, task // 2, now_s)
    else:
        s = m.nodes[m.host.node_of[-1 - task]]
        _go_on_with_batch(s, m, -1 - task - s.first, now_s)


@compiled
def _go_on_with_batch(s: Any, m: Any, i: int, now_s: float) -> None:
    if s.doing[i] == HOST:
        _reach_device(s, m, i, now_s)
    elif s.doing[i] == RELEASING:
        _finish(s, m, i, now_s)
    else:
        _send_response(s, m, i, now_s)


@compiled
def _reach_device(s: Any, m: Any, i: int, now_s: float) -> None:
    s.doing[i] = QUEUED
    s.reached_s[i] = now_s
    if s.exclusive_base_s + s.exclusive_item_s == 0.0:
        _answer(s, m, i, now_s)
    elif m.host.device_busy[s.device_of[i]] == 0:
        _run_on_device(s, m, i, now_s)


@compiled
def _use_device(m: Any, device: int, now_s: float) -> None:
    """First come, first served, whichever model's."""
    chosen, node, reached_s = -1, 0, np.inf
    for k in range(m.nodes.size):
        s = m.nodes[k]
        for i in range(s.instances):
            here = s.device_of[i] == device and s.doing[i] == QUEUED
            if here and s.reached_s[i] < reached_s:
                chosen, node, reached_s = i, k, s.reached_s[i]
    if chosen >= 0:
        _run_on_device(m.nodes[node], m, chosen, now_s)


@compiled
def _run_on_device(s: Any, m: Any, i: int, now_s: float) -> None:
    padded = _padded(s, s.running_size[i])
    s.doing[i] = DEVICE
    m.host.device_busy[s.device_of[i]] = 1
    busy_s = (s.exclusive_base_s + s.exclusive_item_s * padded) * s.noise[i]
    s.until_s[i] = now_s + busy_s
    s.instance_s = min(s.instance_s, s.until_s[i])


@compiled
def _answer(s: Any, m: Any, i: int, now_s: float) -> None:
    """A batch is computed: its responses go out one after the other."""
    s.doing[i] = ANSWERING
    if s.response_s > 0.0:
        compute(m, s.first + i, s.response_s, now_s)
        return
    while s.running_first[i] >= 0:
        _respond(s, m, i, now_s)
    _release(s, m, i, now_s)


@compiled
def _send_response(s: Any, m: Any, i: int, now_s: float) -> None:
    _respond(s, m, i, now_s)
    if s.running_first[i] >= 0:
        compute(m, s.first + i, s.response_s, now_s)
    else:
        _release(s, m, i, now_s)


@compiled
def _respond(s: Any, m: Any, i: int, now_s: float) -> None:
    request = s.running_first[i]
    s.running_first[i] = m.requests[request].after
    m.requests[request].fate = SERVED
    if s.cache_entries > 0:
        insert(s, m, m.requests[request].key)
    send_back(m, request, now_s)


@compiled
def _release(s: Any, m: Any, i: int, now_s: float) -> None:
    """An execution is over, as the statistics count it: its requests are given back."""
    size = s.running_size[i]
    if s.window_start_s <= now_s < s.window_end_s:
        s.executions[size] += 1
        s.busy_s[size] += now_s - s.since_s[i]
    if s.release_s > 0.0:
        s.doing[i] = RELEASING
        compute(m, s.first + i, s.release_s * size / s.request_size, now_s)
    else:
        _finish(s, m, i, now_s)


@compiled
def _finish(s: Any, m: Any, i: int, now_s: float) -> None:
    """The batcher is notified, and the instance takes what is waiting."""
    s.doing[i] = IDLE
    s.since_s[i] = now_s
    _take_work(s, m, i, now_s)
    if s.batching:
        _batch(s, m, now_s)
