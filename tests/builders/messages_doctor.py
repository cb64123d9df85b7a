"""What `tune doctor` finds wrong with machines that are made up, and how to fix it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.messages_commands import line
from builders.model_files import write_model
from builders.refusals import Case

from tuner.machine.quota import Quota
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.triton import doctor
from tuner.triton.doctor import MachineCheck, run_checks

Patch = pytest.MonkeyPatch
CONFIG = (
    'backend: "python" max_batch_size: 8 dynamic_batching { } '
    'input { name: "x" data_type: TYPE_FP32 dims: 1 } '
    'output { name: "y" data_type: TYPE_FP32 dims: 1 }'
)
CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
SPEC = (
    "model: fast\nrepository: models\nslo: [p99_latency <= 40ms]\n"
    "space: {instance_group.count: {int: [1, 4]}}\n"
)
WRITABLE = MachineCheck("repository", "model repository", True, "can be written")
NEEDS_MEMORY = SPEC.replace("40ms", "40ms, gpu_memory <= 42000MB")
RECORDED = f"{SPEC}workload: {{arrivals: {{kind: recording, file: requests.jsonl}}}}\n"


def put_server(patch: Patch, version: str) -> None:
    """A tritonserver and a perf_analyzer of a version, both made up."""

    @contextmanager
    def installed(*_: object) -> Iterator[Installation]:
        yield Installation(Path("/t"), version, Origin.PATH, {})

    for program in ("tritonserver", "perf_analyzer"):
        patch.setattr(binaries, program, installed)
    patch.setattr("tuner.triton.doctor.free_ports", lambda _: nullcontext((1, 2, 3)))


def server(version: str) -> Case:
    def case(_: Path) -> str:
        with Patch.context() as patch:
            put_server(patch, version)
            _, check, *_ = run_checks({})
        return f"{check.found}\n{check.fix}".strip()

    return case


def of_spec(make: Callable[[Path], object], spec: str = SPEC) -> Case:
    """What it says of a spec, on a machine that has all it needs."""

    def case(here: Path) -> str:
        (here / "spec.yaml").write_text(spec)
        write_model(here / "real" / "fast", CONFIG, CODE)
        write_model(here / "models" / "fast", CONFIG, CODE)
        make(here)
        with Patch.context() as patch:
            patch.setattr("tuner.run.doctor.run_checks", lambda *_, **__: [WRITABLE])
            patch.setattr("tuner.machine.host.has_gpu", lambda: False)
            return str(line("doctor spec.yaml")(here))

    return case


def machine(check: Callable[[], Iterable[MachineCheck]], **patched: object) -> Case:
    """What it says of one thing, where the machine is made up."""

    def case(here: Path) -> str:
        with Patch.context() as patch:
            for name, value in patched.items():
                patch.setattr(name.replace("__", "."), value)
            checks = [*check()]
            patch.setattr("tuner.run.doctor.run_checks", lambda *_, **__: checks)
            return str(line("doctor")(here))

    return case


def not_there(here: Path) -> str:
    """What to fix where a spec names a repository and programs that are missing."""
    programs = "workload: {perf_analyzer: bin/none}\nserver: {binary: bin/none}\n"
    (here / "spec.yaml").write_text(SPEC.replace("models", "modles") + programs)
    write_model(here / "models" / "fast", CONFIG, CODE)
    with Patch.context() as patch:
        patch.setattr("tuner.triton.doctor.free_ports", lambda _: nullcontext((1, 2, 3)))
        said = str(line("doctor spec.yaml")(here))
    return "\n".join(re.findall(r"^FIX .*\n.*", said, re.MULTILINE))


def link_model(here: Path) -> None:
    shutil.rmtree(here / "models" / "fast")
    (here / "models" / "fast").symlink_to(here / "real" / "fast")


def link_config(here: Path) -> None:
    link_model(here)
    config = here / "real" / "fast" / "config.pbtxt"
    config.rename(here / "away.pbtxt")
    config.symlink_to(here / "away.pbtxt")


def record(text: str) -> Case:
    return of_spec(lambda here: (here / "requests.jsonl").write_text(text), RECORDED)


def findings() -> dict[str, Case]:
    full = SimpleNamespace(free=1 << 20)
    return {
        "a server with public holes": server("2.51.0"),
        "a server without them": server("2.59.1"),
        "a busy machine": machine(
            lambda: [doctor._load(), doctor._governor()],
            os__getloadavg=lambda: (99.0, 0.0, 0.0),
            tuner__machine__host__read_governor=lambda: "powersave",
        ),
        "a CPU quota": machine(
            lambda: [*doctor._quota()],
            tuner__triton__doctor__read_quota=lambda: Quota(1.5, Path()),
            os__sched_getaffinity=lambda _: {0, 1},
        ),
        "a full disk": machine(
            lambda: doctor._directories(None, Path.cwd() / "results"),
            shutil__disk_usage=lambda _: full,
        ),
        "what a spec names is not there": not_there,
        "the model is a link": of_spec(link_model),
        "the config leads out of the repository": of_spec(link_config),
        "no GPU's memory can be read, and an SLO needs it": of_spec(lambda _: None, NEEDS_MEMORY),
        "a recording": record('{"due_s": 1}\n{"due_s": 2}\n'),
        "a recording that is cut off": record('{"due_s": 1}\n{"due_s": 2'),
    }
