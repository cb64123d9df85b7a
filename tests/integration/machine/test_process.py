"""Child processes that end with their context and with their parent, whatever ends those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from contract.server_contract import eventually

from tuner.errors import EnvironmentNotReadyError
from tuner.machine.cpus import may_be_first
from tuner.machine.process import Priority, child, group_members, tail

pytestmark = pytest.mark.integration

SHELL = "/bin/sh"
#: Starts a grandchild and waits for ever.
FAMILY = [SHELL, "-c", "sleep 600 & wait"]


def test_output_and_exit_status_are_those_of_the_program(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        argv = [SHELL, "-c", "echo $WORD; echo oops >&2; exit 7"]
        with child(argv, env={"WORD": "hello"}, stdout=output) as process:
            assert process.wait(10) == 7
    assert log.read_text() == "hello\noops\n"


def test_a_child_and_what_it_starts_stay_on_their_cpus(tmp_path: Path) -> None:
    last, log = max(os.sched_getaffinity(0)), tmp_path / "log"
    command = [SHELL, "-c", "grep Cpus_allowed_list /proc/self/status"]
    with (
        log.open("wb") as output,
        child(command, env=dict(os.environ), stdout=output, cpus=[last]) as process,
    ):
        process.wait(10)
    assert log.read_text().split() == ["Cpus_allowed_list:", str(last)]


def test_child_that_goes_first_has_the_priority_that_is_permitted(tmp_path: Path) -> None:
    with child(
        FAMILY, env=dict(os.environ), stdout=subprocess.DEVNULL, priority=Priority.REAL_TIME
    ) as process:
        eventually(lambda: len(group_members(process.pid)) == 3)
        policy = os.sched_getscheduler(process.pid)
        assert policy == (os.SCHED_RR if may_be_first() else os.SCHED_OTHER)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_nicer_child_takes_turns_with_others(tmp_path: Path) -> None:
    with child(
        FAMILY, env=dict(os.environ), stdout=subprocess.DEVNULL, priority=Priority.NICE
    ) as process:
        eventually(lambda: len(group_members(process.pid)) == 3)
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
        permitted = os.geteuid() == 0 and may_be_first()
        assert (os.getpriority(os.PRIO_PROCESS, process.pid) < 0) or not permitted


def test_leaving_the_context_ends_the_process_group() -> None:
    with child(FAMILY, env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: len(group_members(process.pid)) == 3)  # shell, sleep, guard
        assert os.getpgid(process.pid) == process.pid
        assert os.getsid(process.pid) == os.getsid(0)
    assert group_members(process.pid) == []
    assert process.returncode == -signal.SIGKILL


def test_a_killed_program_takes_its_children_and_its_leftovers_along(tmp_path: Path) -> None:
    (tmp_path / "left-1").touch()
    (tmp_path / "left-2").mkdir()
    (tmp_path / "kept").touch()
    leftovers = [str(tmp_path / "left-*")]
    with child(
        FAMILY, env=dict(os.environ), stdout=subprocess.DEVNULL, leftovers=leftovers
    ) as process:
        eventually(lambda: len(group_members(process.pid)) == 3)
        os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: group_members(process.pid) == [])
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    program = f"""
import os, subprocess, time
from tuner.machine.process import child
with child({FAMILY!r}, env=dict(os.environ), stdout=subprocess.DEVNULL) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        eventually(lambda: len(group_members(group)) == 3)
        parent.kill()
        eventually(lambda: group_members(group) == [])


@pytest.mark.parametrize("ended_by", ["its context", "its own death", "our death"])
def test_worker_in_a_separate_session_does_not_outlive_the_command(
    tmp_path: Path, ended_by: str
) -> None:
    note = tmp_path / "escaped"
    family = [SHELL, "-c", f"setsid sleep 600 & echo $! > {note}.new; mv {note}.new {note}; wait"]
    program = f"""
import os, subprocess, sys
from tuner.machine.process import child
with child({family!r}, env=dict(os.environ), stdout=subprocess.DEVNULL) as process:
    print(process.pid, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as tune:
        assert tune.stdin is not None
        assert tune.stdout is not None
        command = int(tune.stdout.readline())
        eventually(note.exists)
        worker = int(note.read_text())
        eventually(lambda: os.getsid(worker) == worker)
        if ended_by == "its context":
            tune.stdin.close()
        else:
            os.kill(command if ended_by == "its own death" else tune.pid, signal.SIGKILL)
        eventually(lambda: not _lives(worker))


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_colon_in_the_temporary_directory_deletes_nothing_of_others(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "job-01:48", tmp_path / "job-01"
    for directory in (ours, theirs):
        directory.mkdir()
        (directory / "file").touch()
    with child(
        FAMILY, env=dict(os.environ), stdout=subprocess.DEVNULL, leftovers=[str(ours)]
    ) as process:
        eventually(lambda: len(group_members(process.pid)) == 3)
        os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: group_members(process.pid) == [])
        assert not ours.exists()
        assert (theirs / "file").exists()


def test_child_handles_signals_that_python_or_a_background_job_ignores(
    tmp_path: Path,
) -> None:
    argv = [SHELL, "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status"]
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGQUIT)}
    try:
        with (tmp_path / "log").open("wb") as output:
            with child(argv, env=dict(os.environ), stdout=output) as process:
                assert process.wait(10) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    blocked, ignored = (
        int(line.split()[1], 16) for line in (tmp_path / "log").read_text().splitlines()
    )
    assert blocked == 0
    assert ignored & ~(1 << signal.SIGHUP - 1) == 0  # under nohup that one stays ignored


def test_a_program_that_cannot_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReadyError, match="cannot execute /no/such/program"):
        with child(["/no/such/program"], env={}, stdout=subprocess.DEVNULL):
            pass
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with (tmp_path / "log").open("wb") as output:
        with child([str(broken)], env={}, stdout=output) as process:
            assert process.wait(10) == 127
    assert f"cannot execute {broken}" in tail(tmp_path / "log", 1)


def test_a_child_hears_an_interrupt_that_its_parent_blocks() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as Ray does
    try:
        with child(["/bin/sleep", "600"], env={}, stdout=subprocess.DEVNULL) as process:
            eventually(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes()[:12])
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == -signal.SIGINT
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
