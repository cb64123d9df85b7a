"""Executes a command that is killed with its parent, together with its process group.

`tuner.machine.process` runs this file as a script (``python -I -S guarded_exec.py PARENT CPUS
PRIORITY COUNT LEFTOVER... COMMAND...``) in place of a ``preexec_fn``, which could deadlock in a
process with threads. PARENT is the process id that the parent must have, CPUS are the CPUs that the
command may run on (empty: any), PRIORITY is the value of a `tuner.machine.process.Priority`, and
LEFTOVER... are COUNT glob patterns of files to remove. The script imports nothing of this package,
since it must start fast.

The command keeps this process id. A guard process stays in the same process group: the kernel
signals it when the command ends for any reason, and it kills the rest of the group. Without it, the
children of a killed tritonserver would linger (a Python stub in ``initialize`` rarely checks its
parent). Workers that a model starts in other sessions (Ray, vLLM) are not in the group; they are
identified by an environment variable.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

#: Environment variable that all descendants of a command inherit; unique for each command.
MARK = "TUNE_CHILD"
_FAMILY_END_S = 2.0  # killed processes are gone within milliseconds
_NICE = -15
_PR_SET_PDEATHSIG = 1  # prctl(2)
_PARENT_DIED = signal.SIGUSR1
#: Signals to reset: Python ignores the first two, background jobs of a shell script ignore the
#: others, and Ray blocks SIGINT in its processes; a SIGINT ends a load early. SIGHUP is not reset,
#: because of nohup.
_UNBLOCKED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT)


def main() -> None:
    parent, cpus, priority, count, *rest = sys.argv[1:]
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    _take_priority(int(priority))
    leftovers, command = rest[: int(count)], rest[int(count) :]
    _signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != int(parent):  # the parent died before the line above
        os._exit(1)
    itself = os.getpid()
    # Blocked before the fork, so that the guard does not miss the signal.
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
    """2: real-time priority; 1, or if that is not permitted: a lower nice value, if permitted."""
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
    """Waits for the end of the command; then kills its descendants and removes its leftovers."""
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
    """Kills every other process with ``MARK=mark`` in its environment, until none is left."""
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + _FAMILY_END_S
    while _kill_all_with(wanted) and time.monotonic() < deadline:
        time.sleep(0.005)


def _kill_all_with(variable: bytes) -> bool:
    """Whether a process was killed; a zombie has no environment."""
    killed = False
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                if variable in file.read().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)
                    killed = True
        except OSError:  # the process has ended, or belongs to another user
            continue
    return killed


def remove(leftovers: list[str]) -> None:
    """Deletes the files and directories that match the glob patterns."""
    import shutil  # imported late, since the start must be fast
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
