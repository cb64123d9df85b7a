"""One run of perf_analyzer: until its results are complete, it fails, or the time is over."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.load.perf_analyzer.outputs import tells_of_error, useful_words
from tuner.machine.process import child
from tuner.server.binaries import Installation

_POLL_S = 0.01
#: perf_analyzer may take this long to end by itself once its results are there.
PATIENCE_S = 0.5
# After an error perf_analyzer may wait for ever for answers that do not come.
_GRACE_AFTER_ERROR_S = 1.0
_GAVE_UP = "it gave up"
#: Why there are no results when its time is over.
TOO_LATE = "no results by the deadline"
_MEANINGS = {
    2: "its windows were not stable",
    3: "a whole window passed without an answer",
    99: _GAVE_UP,
}


@dataclass(frozen=True)
class Ended:
    """How a run with results ended.

    Attributes:
        at_rest: The server is alive and nothing waits in it; False means that it is busy or gone,
            and is better restarted.
        killed: It was still waiting for answers; Triton may have dropped those requests.
        stopped_ns: When it was stopped early, on the wall clock; None when it was not.
        busiest_thread_s: CPU time of perf_analyzer's thread that used most, see
            `tuner.load.validity.client_busy`.
    """

    at_rest: bool
    killed: bool
    stopped_ns: int | None
    busiest_thread_s: float


def never() -> bool:
    """The answer of a run that is not to end early."""
    return False


def run(
    argv: Sequence[str],
    program: Installation,
    log: Path,
    *,
    alive: Callable[[], bool],
    complete: Callable[[], bool],
    at_rest: Callable[[], bool],
    deadline_s: float,
    patience_s: float = PATIENCE_S,
    hopeless: Callable[[], bool] = never,
) -> Ended:
    """Runs perf_analyzer until its results are there.

    Interrupted, it stops sending at once, waits for answers until the end of its current window
    (a third of the run) and writes its export, but no report.

    When its results are written, perf_analyzer waits for every answer that is still to come,
    which takes seconds after an overload. After ``patience_s`` it is killed: Triton then drops
    what it has not begun (gRPC, where there is a batcher) or works it off, and sometimes it
    crashes (tritonserver 2.51, an assertion in gRPC's handling of cancelled requests).

    Args:
        alive: Whether the server answers, asked when there are no results.
        at_rest: Whether the server lives and comes to rest, asked once perf_analyzer was killed.
        deadline_s: It is killed after this long.
        patience_s: Or this long after its results are there.
        hopeless: Whether what it measures is decided already; asked until it says so.

    Raises:
        LoadFailedError: No results; with its own words.
        ServerGoneError: No results, and the server does not answer.
    """
    deadline = time.monotonic() + deadline_s
    with (
        log.open("wb") as output,
        child(argv, env=program.environment, stdout=output, cpus=program.cpus) as process,
    ):
        reason, stopped_ns = _wait(process, log, complete, hopeless, deadline)
        if reason:
            words = useful_words(log.read_text(errors="replace"))
            if not alive():
                raise ServerGoneError(f"the server stopped answering; perf_analyzer: {words}")
            raise LoadFailedError(f"perf_analyzer failed ({reason}): {words}")
        busiest_s, killed = _busiest_thread_s(process.pid), False
        try:
            process.wait(min(patience_s, max(deadline - time.monotonic(), 0.0)))
        except subprocess.TimeoutExpired:
            killed = True
    return Ended(not killed or at_rest(), killed, stopped_ns, busiest_s)


def _wait(
    process: subprocess.Popen[bytes],
    log: Path,
    complete: Callable[[], bool],
    hopeless: Callable[[], bool],
    deadline: float,
) -> tuple[str, int | None]:
    """Why there will be no results, empty once they are there; and when it was stopped early."""
    give_up, reason, stopped_ns = deadline, TOO_LATE, None
    while not complete():
        code = process.poll()
        if code is not None:
            return "" if complete() else _MEANINGS.get(code, f"exit code {code}"), stopped_ns
        if time.monotonic() > give_up:
            return reason, stopped_ns
        if reason is TOO_LATE and tells_of_error(log.read_text(errors="replace")):
            give_up, reason = min(deadline, time.monotonic() + _GRACE_AFTER_ERROR_S), _GAVE_UP
        if stopped_ns is None and hopeless():
            stopped_ns = time.time_ns()
            process.send_signal(signal.SIGINT)
        time.sleep(_POLL_S)
    return "", stopped_ns


def _busiest_thread_s(pid: int) -> float:
    """CPU time of the busiest thread that sends; the main thread only writes the results."""
    import psutil

    with suppress(psutil.Error):
        threads = psutil.Process(pid).threads()
        return max((t.user_time + t.system_time for t in threads if t.id != pid), default=0.0)
    return 0.0
