"""The host's cores, and the way of requests over them.

A task that finds an idle core runs there; one that finds none waits at one core for its turn, as
each core of Linux has a queue of its own. A core is left when the task is done, or when a
model's instance has used up its slice while others wait (Linux' fair scheduler: a slice is kept
until it is used up, "RUN_TO_PARITY", and its end is noticed at a tick). Threads of the front,
which slept until now, come before instances that were interrupted.

Tasks are numbered: request r coming in is 2r, going out 2r + 1, instance i (of all models') is
-1 - i. An instance that goes on with something else keeps its core, which is ``held`` meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.twin.jit import compiled
from tuner.twin.state import NOBODY


@compiled
def heap_push(heap: Any, length: int, at: float, number: int) -> None:
    """Adds to a heap of ``length`` entries; the caller counts."""
    place = length
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent].at <= at:
            break
        heap[place].at = heap[parent].at
        heap[place].number = heap[parent].number
        place = parent
    heap[place].at = at
    heap[place].number = number


@compiled
def heap_pop(heap: Any, length: int) -> int:
    """Takes the first of ``length`` entries; the caller counts."""
    first: int = heap[0].number
    last = length - 1
    at, number = heap[last].at, heap[last].number
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1].at < heap[child].at:
            child += 1
        if heap[child].at >= at:
            break
        heap[place].at = heap[child].at
        heap[place].number = heap[child].number
        place = child
    heap[place].at = at
    heap[place].number = number
    return first


#: How long an instance computes before others get its core: one tick at 250 to 1000 Hz.
SLICE_S = 3e-3
#: Returned instead of a task that ended: an instance's slice is over, but not its work.
INTERRUPTED = NOBODY
#: Number of other requests in the front at which half of the possible saving is reached.
_HALF = 1.5


@compiled
def compute(m: Any, instance: int, work_s: float, now_s: float) -> None:
    """An instance has work for a core."""
    h = m.host
    h.left_s[instance] = work_s
    if h.held == -1 - instance and h.slice_s[instance] > 0.0:
        h.held = NOBODY
        _run_instance(h, m, instance, h.held_core, now_s)
    elif h.idle_count > 0:
        h.slice_s[instance] = SLICE_S
        _run_instance(h, m, instance, _idle_core(h), now_s)
    else:
        core = h.core_of[instance]
        h.behind[instance] = -1
        if h.ready_first[core] < 0:
            h.ready_first[core] = instance
        else:
            h.behind[h.ready_last[core]] = instance
        h.ready_last[core] = instance


@compiled
def _start_front_task(h: Any, m: Any, task: int, work_s: float, now_s: float) -> None:
    if h.idle_count > 0:
        _run(h, m, task, _idle_core(h), work_s, now_s)
        return
    request = task // 2
    core = (7 * request + task % 2) // 3 % h.cores  # any
    m.requests[request].work_s = work_s
    m.requests[request].behind = -1
    if h.fronts_first[core] < 0:
        h.fronts_first[core] = task
    else:
        m.requests[h.fronts_last[core] // 2].behind = task
    h.fronts_last[core] = task


@compiled
def start_front(m: Any, task: int, more_s: float, now_s: float) -> None:
    """A request comes in or an answer goes out; threads that are awake do more at less cost."""
    h = m.host
    share = h.front_more + (1.0 - h.front_more) / (1.0 + h.fronts / _HALF)
    h.fronts += 1
    _start_front_task(h, m, task, h.front_s * share + more_s, now_s)


@compiled
def end_task(m: Any, now_s: float) -> int:
    """The task that ends now, or ``INTERRUPTED``. Its core is held until ``leave_core``."""
    h = m.host
    task = heap_pop(m.tasks, h.running)
    h.running -= 1
    h.held = task
    if task >= 0:
        h.held_core = m.requests[task // 2].core
        h.fronts -= 1
        return task
    instance = -1 - task
    core = h.held_core = h.core_of[instance]
    if h.left_s[instance] <= 0.0:
        return task
    if h.fronts_first[core] < 0 and h.ready_first[core] < 0:
        h.slice_s[instance] = SLICE_S
    compute(m, instance, h.left_s[instance], now_s)
    return INTERRUPTED


@compiled
def leave_core(m: Any, now_s: float) -> None:
    """Frees the core once the ended task's follow-up has begun: the next task may run."""
    h = m.host
    if h.held != NOBODY:
        h.held = NOBODY
        _run_next(h, m, h.held_core, now_s)
    h.core_s = m.tasks[0].at if h.running > 0 else np.inf


@compiled
def _run_next(h: Any, m: Any, core: int, now_s: float) -> None:
    task, instance = h.fronts_first[core], h.ready_first[core]
    if task >= 0:
        h.fronts_first[core] = m.requests[task // 2].behind
        _run(h, m, task, core, m.requests[task // 2].work_s, now_s)
    elif instance >= 0:
        h.ready_first[core] = h.behind[instance]
        h.slice_s[instance] = SLICE_S
        _run_instance(h, m, instance, core, now_s)
    else:
        h.idle[h.idle_count] = core
        h.idle_count += 1


@compiled
def _idle_core(h: Any) -> int:
    h.idle_count -= 1
    return h.idle[h.idle_count]  # type: ignore[no-any-return]


@compiled
def _run_instance(h: Any, m: Any, instance: int, core: int, now_s: float) -> None:
    """Until its work is done or its slice is over."""
    work_s = min(h.left_s[instance], h.slice_s[instance])
    h.left_s[instance] -= work_s
    h.slice_s[instance] -= work_s
    h.core_of[instance] = core
    _occupy(h, m, -1 - instance, work_s, now_s)


@compiled
def _run(h: Any, m: Any, task: int, core: int, work_s: float, now_s: float) -> None:
    """A task of the front."""
    m.requests[task // 2].core = core
    _occupy(h, m, task, work_s, now_s)


@compiled
def _occupy(h: Any, m: Any, task: int, work_s: float, now_s: float) -> None:
    heap_push(m.tasks, h.running, now_s + work_s, task)
    h.running += 1
    h.core_s = m.tasks[0].at
    inside_s = min(now_s + work_s, h.window_end_s) - max(now_s, h.window_start_s)
    h.worked_s += max(inside_s, 0.0)


@compiled
def send_back(m: Any, request: int, now_s: float) -> None:
    """An answer, or a refusal, leaves the model: for the client, or for the ensemble it is of."""
    h = m.host
    if request >= h.requests:
        m.requests[request].answered_s = now_s
        m.requests[request].after = -1
        if h.ended_first < 0:
            h.ended_first = request
        else:
            m.requests[h.ended_last].after = request
        h.ended_last = request
    elif h.front_s > 0.0:
        start_front(m, 2 * request + 1, 0.0, now_s)
    else:
        reach_client(m, request, now_s)


@compiled
def reach_client(m: Any, request: int, now_s: float) -> None:
    """An answer is on its last stretch; a client of a closed loop then sends the next request."""
    h = m.host
    m.requests[request].answered_s = now_s + m.requests[request].way_out_s
    if h.closed:
        send_next(m, m.requests[request].answered_s)


@compiled
def send_next(m: Any, at_s: float) -> None:
    """A client of a closed loop sends a request, unless the run is over."""
    h = m.host
    if h.sent < h.requests and at_s < h.end_s:
        request = h.sent
        h.sent += 1
        m.requests[request].due_s = at_s
        heap_push(m.coming, h.coming, at_s + m.requests[request].way_in_s, request)
        h.coming += 1
