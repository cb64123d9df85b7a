"""The host's cores, shared evenly by all tasks, and the way of requests over them.

With c cores and n tasks each runs at speed min(1, c / n). ``work_s`` is what a task that was
there from the start would have got done; a task ends when that reaches its own mark, so a heap
of marks is all it takes (processor sharing in virtual time).

Tasks are numbered: request r coming in is 2r, going out 2r + 1, instance i is -1 - i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.twin.heap import heap_pop, heap_push
from tuner.twin.jit import compiled


@compiled
def start_task(s: Any, m: Any, task: int, work_s: float, now_s: float) -> None:
    _catch_up(s, now_s)
    heap_push(m.tasks, s.tasks, s.work_s + work_s, task)
    s.tasks += 1
    _foresee(s, m)


@compiled
def start_front(s: Any, m: Any, task: int, more_s: float, now_s: float) -> None:
    """A request comes in or an answer goes out; threads that are awake do more at less cost."""
    share = s.front_more if s.fronts > 0 else 1.0
    s.fronts += 1
    start_task(s, m, task, s.front_s * share + more_s, now_s)


@compiled
def end_task(s: Any, m: Any, now_s: float) -> int:
    """The task that ends now, taken away."""
    _catch_up(s, now_s)
    s.work_s = max(s.work_s, m.tasks[0].at)
    task = heap_pop(m.tasks, s.tasks)
    s.tasks -= 1
    if task >= 0:
        s.fronts -= 1
    _foresee(s, m)
    return task


@compiled
def _catch_up(s: Any, now_s: float) -> None:
    if s.tasks > 0:
        s.work_s += (now_s - s.worked_at_s) * min(1.0, s.cores / s.tasks)
    s.worked_at_s = now_s


@compiled
def _foresee(s: Any, m: Any) -> None:
    if s.tasks == 0:
        s.core_s = np.inf
    else:
        left_s = max(m.tasks[0].at - s.work_s, 0.0)
        s.core_s = s.worked_at_s + left_s * max(1.0, s.tasks / s.cores)


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
