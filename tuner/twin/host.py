"""The host's cores, and the way of requests over them.

A task that finds an idle core runs there; one that finds none waits at one core for its turn, as
each core of Linux has a queue of its own. A core is left when the task is done, or when a
model's instance has used up its slice while others wait (Linux' fair scheduler: a slice is kept
until it is used up, "RUN_TO_PARITY", and its end is noticed at a tick). Threads of the front,
which slept until now, come before instances that were interrupted.

Tasks are numbered: request r coming in is 2r, going out 2r + 1, instance i is -1 - i. An instance
that goes on with something else keeps its core, which is ``held`` meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.twin.heap import heap_pop, heap_push
from tuner.twin.jit import compiled
from tuner.twin.state import NOBODY

#: How long an instance computes before others get its core: one tick at 250 to 1000 Hz.
SLICE_S = 3e-3
#: In place of a task that ended: an instance's slice is over, not its work.
INTERRUPTED = NOBODY
#: Others in the front at which half of what can be saved by them is saved.
_HALF = 1.5


@compiled
def compute(s: Any, m: Any, instance: int, work_s: float, now_s: float) -> None:
    """An instance has work for a core."""
    s.left_s[instance] = work_s
    if s.held == -1 - instance and s.slice_s[instance] > 0.0:
        s.held = NOBODY
        _run_instance(s, m, instance, s.held_core, now_s)
    elif s.idle_count > 0:
        s.slice_s[instance] = SLICE_S
        _run_instance(s, m, instance, _idle_core(s), now_s)
    else:
        core = s.core_of[instance]
        s.behind[instance] = -1
        if s.ready_first[core] < 0:
            s.ready_first[core] = instance
        else:
            s.behind[s.ready_last[core]] = instance
        s.ready_last[core] = instance


@compiled
def _start_front_task(s: Any, m: Any, task: int, work_s: float, now_s: float) -> None:
    if s.idle_count > 0:
        _run(s, m, task, _idle_core(s), work_s, now_s)
        return
    request = task // 2
    core = (7 * request + task % 2) // 3 % s.cores  # any
    m.requests[request].work_s = work_s
    m.requests[request].behind = -1
    if s.fronts_first[core] < 0:
        s.fronts_first[core] = task
    else:
        m.requests[s.fronts_last[core] // 2].behind = task
    s.fronts_last[core] = task


@compiled
def start_front(s: Any, m: Any, task: int, more_s: float, now_s: float) -> None:
    """A request comes in or an answer goes out; threads that are awake do more at less cost."""
    share = s.front_more + (1.0 - s.front_more) / (1.0 + s.fronts / _HALF)
    s.fronts += 1
    _start_front_task(s, m, task, s.front_s * share + more_s, now_s)


@compiled
def end_task(s: Any, m: Any, now_s: float) -> int:
    """The task that ends now, or ``INTERRUPTED``. Its core is held until ``leave_core``."""
    task = heap_pop(m.tasks, s.running)
    s.running -= 1
    s.held = task
    if task >= 0:
        s.held_core = m.requests[task // 2].core
        s.fronts -= 1
        return task
    instance = -1 - task
    core = s.held_core = s.core_of[instance]
    if s.left_s[instance] <= 0.0:
        return task
    if s.fronts_first[core] < 0 and s.ready_first[core] < 0:
        s.slice_s[instance] = SLICE_S
    compute(s, m, instance, s.left_s[instance], now_s)
    return INTERRUPTED


@compiled
def leave_core(s: Any, m: Any, now_s: float) -> None:
    """What followed from the task that ended is under way: the next one may run."""
    if s.held != NOBODY:
        s.held = NOBODY
        _run_next(s, m, s.held_core, now_s)
    s.core_s = m.tasks[0].at if s.running > 0 else np.inf


@compiled
def _run_next(s: Any, m: Any, core: int, now_s: float) -> None:
    task, instance = s.fronts_first[core], s.ready_first[core]
    if task >= 0:
        s.fronts_first[core] = m.requests[task // 2].behind
        _run(s, m, task, core, m.requests[task // 2].work_s, now_s)
    elif instance >= 0:
        s.ready_first[core] = s.behind[instance]
        s.slice_s[instance] = SLICE_S
        _run_instance(s, m, instance, core, now_s)
    else:
        s.idle[s.idle_count] = core
        s.idle_count += 1


@compiled
def _idle_core(s: Any) -> int:
    s.idle_count -= 1
    return s.idle[s.idle_count]  # type: ignore[no-any-return]


@compiled
def _run_instance(s: Any, m: Any, instance: int, core: int, now_s: float) -> None:
    """Until its work is done or its slice is over."""
    work_s = min(s.left_s[instance], s.slice_s[instance])
    s.left_s[instance] -= work_s
    s.slice_s[instance] -= work_s
    s.core_of[instance] = core
    _occupy(s, m, -1 - instance, work_s, now_s)


@compiled
def _run(s: Any, m: Any, task: int, core: int, work_s: float, now_s: float) -> None:
    """A task of the front."""
    m.requests[task // 2].core = core
    _occupy(s, m, task, work_s, now_s)


@compiled
def _occupy(s: Any, m: Any, task: int, work_s: float, now_s: float) -> None:
    heap_push(m.tasks, s.running, now_s + work_s, task)
    s.running += 1
    s.core_s = m.tasks[0].at
    inside_s = min(now_s + work_s, s.window_end_s) - max(now_s, s.window_start_s)
    s.worked_s += max(inside_s, 0.0)


@compiled
def send_back(s: Any, m: Any, request: int, now_s: float) -> None:
    """An answer, or a refusal, leaves the model."""
    if s.front_s > 0.0:
        start_front(s, m, 2 * request + 1, 0.0, now_s)
    else:
        reach_client(s, m, request, now_s)


@compiled
def reach_client(s: Any, m: Any, request: int, now_s: float) -> None:
    """An answer is on its last stretch; a client of a closed loop then sends the next request."""
    m.requests[request].answered_s = now_s + m.requests[request].way_out_s
    if s.closed:
        send_next(s, m, m.requests[request].answered_s)


@compiled
def send_next(s: Any, m: Any, at_s: float) -> None:
    """A client of a closed loop sends a request, unless the run is over."""
    if s.sent < s.requests and at_s < s.end_s:
        request = s.sent
        s.sent += 1
        m.requests[request].due_s = at_s
        heap_push(m.coming, s.coming, at_s + m.requests[request].way_in_s, request)
        s.coming += 1
