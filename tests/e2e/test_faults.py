"""100 seeded faults, each in a whole run: `pytest -m faults -n 0`, about half an hour.

The number of a fault decides its kind, its victim and its moment. Where the fault is in `tune` or
on its disk, server and load generator are emulated, so that searching, proving, writing and
reporting take seconds; where it is in what `tune` starts, all of that is real, under an SLO that
nothing meets, so that the run ends with its search.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

import psutil
import pytest
from builders.e2e_workplace import MODEL, Workplace
from builders.emulated_tune import SPEC as EMULATED
from builders.failing_model import CONFIG
from builders.model_files import copy_examples
from builders.waits import TOO_TIGHT, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.e2e, pytest.mark.integration]

MODEL_DIRECTORY = f"repository/{MODEL}"
REAL = """\
model: %(model)s
repository: repository
server: {load_timeout: 4s}
workload:
  protocol: %(protocol)s
  arrivals: {kind: closed, concurrency: [8], restarts: 1}
  window: 500ms
  warmup: 100ms
slo: [p90_latency <= %(p90)s]
space: {dynamic_batching: {choice: [off, on]}}
budget: {trials: 2}
"""
#: Misbehaves while the file is there that a test makes.
CODE = """\
import os
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils

FAULT = Path(%(fault)r)


class TritonPythonModel:
    def initialize(self, args):
        while FAULT.exists() and FAULT.read_text() == "hang":
            time.sleep(0.1)

    def execute(self, requests):
        fault = FAULT.read_text() if FAULT.exists() else ""
        if fault == "die":
            os._exit(1)
        if fault == "fail":
            raise RuntimeError("the device is on fire")
        time.sleep(0.005)
        inputs = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in inputs]
"""
#: What a run says when it ends, by its exit code; None: without a word.
DONE, NOTHING_MEETS, STOPPED = {0: "Better: "}, {10: "No config"}, {130: "--resume|was complete"}
NO_ROOM = {4: "(?i)no space left|disk is full"}
READ_ONLY = {4: "(?i)read-?only"}
UNMEASURABLE = {5: "cannot be measured|does not load|failed"}
#: Before it listens, a signal ends it as any program; nothing has begun then.
UNHEARD = {-signal.SIGTERM: "", -signal.SIGINT: "", 130: ""}


@dataclass
class Scene:
    """A run, and the fault that comes over it."""

    place: Workplace
    random: random.Random
    lifting: ExitStack
    before: bytes
    victim: psutil.Process | None = None
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def tune(self) -> subprocess.Popen[str]:
        return self.processes[0]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self.processes.append(self.place.start(*arguments))
        return self.processes[-1]

    def run_is_there(self) -> bool:
        return any((self.place.directory / "results").glob("*/manifest.json"))

    def wait(self, least_s: float, most_s: float) -> None:
        """A moment of the fault's choice, at the latest the run's end."""
        with suppress(subprocess.TimeoutExpired):
            self.tune.wait(self.random.uniform(least_s, most_s))

    def find(self, name: str) -> psutil.Process:
        """A process of that name which the run has started, once there is one."""
        processes: list[psutil.Process] = []

        def there() -> bool:
            processes[:] = self.place.children(name)
            return bool(processes)

        wait_until(there)
        return processes[0]


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        count: How many of the hundred.
        inject: Makes it happen to a run that has begun; the run is started by it if ``begins``.
        ends: Exit codes that are right, with a pattern of what is said.
        resumed: The same for the run that goes on once the fault is lifted.
        real: With a real server and load generator.
    """

    name: str
    count: int
    inject: Callable[[Scene], None]
    ends: Mapping[int, str]
    resumed: Mapping[int, str]
    real: bool = False
    prepare: Callable[[Scene], None] = lambda _: None


def signalled(name: str, number: signal.Signals, most_s: float) -> Callable[[Scene], None]:
    """What is stopped goes on after a while; what belongs to `tune` may be ended before."""

    def inject(scene: Scene) -> None:
        if name:
            wait_until(scene.run_is_there)
            scene.victim = scene.find(name)
        else:
            scene.victim = psutil.Process(scene.tune.pid)
        scene.wait(0.0, most_s)
        with suppress(psutil.Error):
            scene.victim.send_signal(number)
            if number is signal.SIGSTOP:
                time.sleep(scene.random.uniform(0.5, 5))
                scene.victim.send_signal(signal.SIGCONT)

    return inject


def killed_at_the_write(scene: Scene) -> None:
    """From the first file of the write to some tenths of a second after it."""
    directory = scene.place.config.parent
    while len(list(directory.iterdir())) == 2 and scene.tune.poll() is None:
        time.sleep(0.001)
    scene.wait(0.0, 0.3)
    scene.tune.kill()


def small_disk(where: str) -> Callable[[Scene], None]:
    """Before the run: a file system of its own, whose room is for `full` to take."""

    def prepare(scene: Scene) -> None:
        directory = scene.place.directory / where
        directory.mkdir(exist_ok=True)
        files = directory.with_name(f"{directory.name}.copy")
        shutil.copytree(directory, files)
        mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        shutil.copytree(files, directory, dirs_exist_ok=True)
        shutil.rmtree(files)

    return prepare


def unmount(directory: Path) -> None:
    """At last: what is on a small disk is looked at before."""
    for small in filter(Path.is_mount, (directory / "results", directory / MODEL_DIRECTORY)):
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def full(where: str) -> Callable[[Scene], None]:
    """Leaves some pages, as a disk does that fills up."""

    def inject(scene: Scene) -> None:
        scene.wait(0.0, 5.0)
        ballast = scene.place.directory / where / "ballast"
        scene.lifting.callback(ballast.unlink, missing_ok=True)
        room = shutil.disk_usage(ballast.parent).free - 4096 * scene.random.randrange(12)
        with suppress(OSError), ballast.open("wb") as file:
            file.write(b"0" * max(room, 0))

    return inject


def read_only(where: str) -> Callable[[Scene], None]:
    def inject(scene: Scene) -> None:
        directory = str(scene.place.directory / where)
        again = ["mount", "-o", "remount,rw", directory]
        scene.lifting.callback(subprocess.run, again, check=True)
        for wait in chain([scene.random.uniform(0.0, 5.0)], repeat(0.01, 300)):
            time.sleep(wait)  # refused while a file is being written
            remount = ["mount", "-o", "remount,ro", directory]
            if subprocess.run(remount, capture_output=True, check=False).returncode == 0:
                return
        pytest.skip("the file system was never without an open file")

    return inject


def half_written(scene: Scene) -> None:
    """Killed, and one of its files torn as after a power cut."""
    scene.place.wait_for_trials(1)
    scene.wait(0.0, 3.0)
    scene.tune.kill()
    scene.tune.wait()
    kinds = ["trials.jsonl", "confirmation.jsonl", "rejected.jsonl", "study.db", "result.json"]
    there = [path for name in kinds if (path := scene.place.run / name).exists()]
    torn = scene.random.choice(there)
    content = torn.read_bytes()
    if torn.suffix == ".jsonl":  # synced line by line: only a line that was never synced is torn
        line = content.split(b"\n")[0]
        torn.write_bytes(content + line[: scene.random.randrange(len(line) + 1)])
    else:
        torn.write_bytes(content[: scene.random.randrange(len(content))])
    (scene.place.run / ".tune-0123456789abcdef.tmp").write_text("{")
    scene.place.config.with_name(".config.pbtxt.tune.tmp").write_text("name:")


def port_taken(starts: int) -> Callable[[Scene], None]:
    """Somebody takes a port of each of the first servers before it does."""

    def inject(scene: Scene) -> None:
        taken: dict[int, socket.socket] = {}
        deadline = time.monotonic() + 20

        def take() -> None:
            while len(taken) < starts and scene.tune.poll() is None and time.monotonic() < deadline:
                for process in psutil.Process(scene.tune.pid).children():
                    with suppress(psutil.Error, OSError):
                        ports = re.findall(r"--grpc-port=(\d+)", " ".join(process.cmdline()))
                        if ports and process.pid not in taken:
                            thief = socket.socket()
                            scene.lifting.callback(thief.close)
                            thief.bind(("127.0.0.1", int(ports[0])))
                            thief.listen()
                            taken[process.pid] = thief

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        assert taken

    return inject


def misbehaving(how: str, *, lasting: bool) -> Callable[[Scene], None]:
    def inject(scene: Scene) -> None:
        file = scene.place.directory / "fault"
        scene.lifting.callback(file.unlink, missing_ok=True)
        wait_until(scene.run_is_there)
        scene.wait(0.0, 3.0)
        file.write_text(how)
        if not lasting:
            scene.wait(0.1, 1.0)
            file.unlink()

    return inject


KILL, TERM, INT, STOP = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP
KILLED = {-KILL: ""}
SURVIVES = {"real": True, "ends": NOTHING_MEETS, "resumed": NOTHING_MEETS}
#: The first load of all, of the current config, is not tried again.
LOSES = {**SURVIVES, "ends": {**NOTHING_MEETS, 5: "does not load .*(is gone|no answer within)"}}
FAILS = {**SURVIVES, "ends": {**NOTHING_MEETS, **UNMEASURABLE}}
FAILED = {**FAILS, "resumed": {**NOTHING_MEETS, **UNMEASURABLE}}
FAULTS = (
    Fault("tune killed at the write", 4, killed_at_the_write, {**KILLED, **DONE}, DONE),
    Fault("tune killed", 8, signalled("", KILL, 6.0), {**KILLED, **DONE}, DONE),
    Fault("tune terminated", 7, signalled("", TERM, 6.0), {**UNHEARD, **STOPPED, **DONE}, DONE),
    Fault("tune interrupted", 4, signalled("", INT, 6.0), {**UNHEARD, **STOPPED, **DONE}, DONE),
    Fault("tune stopped", 3, signalled("", STOP, 5.0), DONE, DONE),
    Fault("no room for results", 8, full("results"), {**NO_ROOM, **DONE}, DONE,
          prepare=small_disk("results")),
    Fault("no room for the config", 5, full(MODEL_DIRECTORY), {**NO_ROOM, **DONE}, DONE,
          prepare=small_disk(MODEL_DIRECTORY)),
    Fault("read-only results", 3, read_only("results"), {**READ_ONLY, **DONE}, DONE,
          prepare=small_disk("results")),
    Fault("read-only model", 4, read_only(MODEL_DIRECTORY), {**READ_ONLY, **DONE}, DONE,
          prepare=small_disk(MODEL_DIRECTORY)),
    Fault("half-written", 8, half_written, {**KILLED, **DONE}, DONE),
    Fault("server killed", 4, signalled("tritonserver", KILL, 3.0), **LOSES),
    Fault("server stopped", 3, signalled("tritonserver", STOP, 3.0), **LOSES),
    Fault("server terminated", 2, signalled("tritonserver", TERM, 3.0), **LOSES),
    Fault("stub killed", 3, signalled("triton_python", KILL, 3.0), **LOSES),
    Fault("stub stopped", 3, signalled("triton_python", STOP, 3.0), **LOSES),
    Fault("load killed", 3, signalled("perf_analyzer", KILL, 0.6), **SURVIVES),
    Fault("load stopped", 3, signalled("perf_analyzer", STOP, 0.6), **SURVIVES),
    Fault("load terminated", 1, signalled("perf_analyzer", TERM, 0.6), **SURVIVES),
    Fault("tune killed over a server", 3, signalled("", KILL, 9.0),
          {**KILLED, **NOTHING_MEETS}, NOTHING_MEETS, real=True),
    Fault("tune terminated over a server", 2, signalled("", TERM, 9.0),
          {**UNHEARD, **STOPPED, **NOTHING_MEETS}, NOTHING_MEETS, real=True),
    Fault("ports taken", 2, port_taken(2), **SURVIVES),
    Fault("all ports taken", 1, port_taken(4), real=True, resumed=NOTHING_MEETS,
          ends={4: "already in use"}),
    Fault("model fails for a while", 1, misbehaving("fail", lasting=False), **FAILED),
    Fault("model answers 500", 2, misbehaving("fail", lasting=True), **FAILED),
    Fault("model hangs in load", 2, misbehaving("hang", lasting=True), **FAILED),
    Fault("model dies under load", 2, misbehaving("die", lasting=True), **FAILED),
    Fault("model dies once", 1, misbehaving("die", lasting=False), **FAILED),
)  # fmt: skip
HUNDRED = [fault for fault in FAULTS for _ in range(fault.count)]
random.Random("order").shuffle(HUNDRED)


def scene_of(fault: Fault, number: int, directory: Path, lifting: ExitStack) -> Scene:
    """A repository and a spec for such a fault, in a directory that has its own for all that is
    temporary."""
    (directory / "temporary").mkdir()
    environment = {"TMPDIR": str(directory / "temporary")}
    code = "from tuner.cli import main; main()"
    spec = directory / "spec.yaml"
    if "model" in fault.name.split()[0]:
        model = directory / "repository" / "m"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG)
        (model / "1" / "model.py").write_text(CODE % {"fault": str(directory / "fault")})
        spec.write_text(REAL % {"model": "m", "protocol": "http", "p90": TOO_TIGHT})
    else:
        copy_examples(directory / "repository", MODEL)
        spec.write_text(REAL % {"model": MODEL, "protocol": "grpc", "p90": TOO_TIGHT})
    if not fault.real:
        code = "from builders.emulated_tune import main; main()"
        builders = Path(__file__).parents[1]
        environment["PYTHONPATH"] = f"{builders}:{os.environ.get('PYTHONPATH', '')}"
        environment["EMULATED_PAUSE_S"] = "0.05"
        spec.write_text(EMULATED % 4)
    place = Workplace(directory, code, environment)
    (config,) = (directory / "repository").glob("*/config.pbtxt")
    return Scene(place, random.Random(number), lifting, config.read_bytes())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("number", "fault"),
    list(enumerate(HUNDRED)),
    ids=[f"{n}-{f.name}" for n, f in enumerate(HUNDRED)],
)
def test_after_a_fault_nothing_is_left_and_the_run_goes_on(
    number: int, fault: Fault, tmp_path: Path
) -> None:
    with ExitStack() as at_last, ExitStack() as lifting:
        at_last.callback(unmount, tmp_path)
        scene = scene_of(fault, number, tmp_path, lifting)
        fault.prepare(scene)
        scene.start("run", "spec.yaml")
        fault.inject(scene)
        done = [scene.place.finish(process) for process in scene.processes]
        judge(scene, done[0], fault.ends)
        kept = scene.place.trials() if scene.run_is_there() else []
        lifting.close()
        if done[0].returncode in (0, 10):
            return
        again = ("--resume", str(scene.place.run)) if scene.run_is_there() else ("spec.yaml",)
        scene.processes[:] = [scene.place.start("run", *again)]
        judge(scene, scene.place.finish(scene.tune), fault.resumed)
        trials = scene.place.trials()
        assert trials[: len(kept)] == kept
        assert [t["number"] for t in trials] == list(range(len(trials)))
        candidates = [str(t["candidate"]) for t in trials]
        assert len(set(candidates)) == len(candidates)


def judge(scene: Scene, done: subprocess.CompletedProcess[str], ends: Mapping[int, str]) -> None:
    said = done.stdout + done.stderr
    assert done.returncode in ends, said
    # Interrupted while it imports, or looks at the machine, before there is a run.
    begun = scene.run_is_there() or done.returncode != 130
    nothing = r"\A\s*(stopped before anything started)?\s*\Z"
    assert re.search(ends[done.returncode] if begun else nothing, said), said
    if done.returncode == -INT:  # while Python itself was importing
        assert not scene.run_is_there()
    else:
        assert "Traceback" not in said
    assert "defect" not in said
    wait_until(lambda: not scene.place.children(), 10)
    started = [f"tune-{process.pid}-" for process in scene.processes]
    assert not [f.name for f in Path("/dev/shm").iterdir() if f.name.startswith(tuple(started))]
    temporary = [f for f in (scene.place.directory / "temporary").iterdir() if not _is_free(f)]
    if {-KILL, -TERM, -INT} & {p.returncode for p in scene.processes}:  # the next one removes it
        for path in temporary:
            os.utime(path, (0, 0))
    else:
        assert temporary == []
    (config,) = (scene.place.directory / "repository").glob("*/config.pbtxt")
    best = list((scene.place.directory / "results").glob("*/best/**/config.pbtxt"))
    assert config.read_bytes() in [scene.before, *(path.read_bytes() for path in best)]
    if done.returncode == 0:
        assert config.read_bytes() != scene.before


def _is_free(path: Path) -> bool:
    """The directory where those who measure register, and the example model's own lock."""
    return path.name == "tune-measuring" or path.suffix == ".lock"
