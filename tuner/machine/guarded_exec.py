"""Becomes a command that dies with its parent and takes its process group along.

Run as a script by `tuner.machine.process` (``python -I -S guarded_exec.py PARENT CPUS PRIORITY
COUNT LEFTOVER... COMMAND...``), between the fork and the command: a ``preexec_fn`` could deadlock
in a process with threads. PARENT is the process id that must still be ours, CPUS are those that the
command may run on (empty: any), PRIORITY is the value of a `tuner.machine.process.Priority`, and
LEFTOVER... are COUNT glob patterns of what to remove. It imports nothing of this package and must
stay quick to start.

The command keeps this process id. A small guard is left beside it in the same process group: the
kernel wakes it when the command ends, however that happened, and it kills what is left of the
group. Without it the children of a killed tritonserver linger (a Python stub that is busy in
``initialize`` looks for its parent only now and then). Workers that a model starts in sessions of
their own (Ray, vLLM) have left the group; they are known by a variable of their environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

#: Variable that everything a command starts inherits; its value is the command's own.
MARK = "TUNE_CHILD"
_FAMILY_END_S = 2.0  # killed processes are gone within milliseconds
_NICE = -15
_PR_SET_PDEATHSIG = 1  # prctl(2)
_PARENT_DIED = signal.SIGUSR1
#: Python ignores the first two, a script's background job inherits ignoring the others, and Ray
#: blocks SIGINT in all that it starts; a SIGINT is what ends a load early. What nohup ignores stays
#: so.
_UNBLOCKED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT)


def main() -> None:
    parent, cpus, priority, count, *rest = sys.argv[1:]
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    _take_priority(int(priority))
    leftovers, command = rest[: int(count)], rest[int(count) :]
    _signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the line above
        os._exit(1)
    itself = os.getpid()
    # Blocked before the fork, so that the guard misses nothing.
    signal.pthread_sigmask(signal.SIG_BLOCK, {_PARENT_DIED})
    if os.fork() == 0:
        _guard(itself, leftovers)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_PARENT_DIED, *_UNBLOCKED})
    for number in _UNBLOCKED:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - the command is what we are for
    except OSError as error:
        sys.stderr.write(f"error: cannot execute {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def _take_priority(value: int) -> None:
    """2: in real time; 1, or where that is not permitted: by a lower nice value, if permitted."""
    if value > 1:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            return
    if value:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def _signal_on_parent_death(number: signal.Signals) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _guard(command_pid: int, leftovers: list[str]) -> None:
    """Waits for the command's end; kills all that it started, removes its leftovers, and ends."""
    for polite in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(polite, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.chdir("/")
    _signal_on_parent_death(_PARENT_DIED)
    if os.getppid() == command_pid:
        signal.sigwait({_PARENT_DIED})
    kill_marked(os.environ.get(MARK, ""))
    remove(leftovers)
    os.killpg(0, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kills every other process that inherited ``MARK=mark``, and returns when none is left."""
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + _FAMILY_END_S
    while _kill_all_with(wanted) and time.monotonic() < deadline:
        time.sleep(0.005)


def _kill_all_with(variable: bytes) -> bool:
    """Whether there was one; a process that is dead already has no environment."""
    killed = False
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                if variable in file.read().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)
                    killed = True
        except OSError:  # ended, or of another user
            continue
    return killed


def remove(leftovers: list[str]) -> None:
    """Deletes the files and directories that match; what is gone already is fine."""
    import shutil  # only needed at the end: the start must be quick
    from contextlib import suppress
    from pathlib import Path

    for pattern in leftovers:
        for path in Path(pattern).parent.glob(Path(pattern).name):
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()


if __name__ == "__main__":
    main()
