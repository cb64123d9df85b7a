"""From a bare GPU machine to finished runs, in one command and without a package registry.

    python3 benchmarks/gpu/run.py --bundle gpu-bundle.tar.xz --output DIR
    python3 benchmarks/gpu/run.py --bundle gpu-bundle.tar.xz --output DIR --stages bert-100ms table

Needs only Python's standard library to start. Unpacks the bundle (see `bundle.py`) beside a virtual
environment that also sees the packages of the Python it was started with, writes the models, and
runs the stages one after the other until the time is up. The results of each stage are packed into
``DIR/STAGE.tar.gz`` at once, and ``DIR/ends.json`` says how it ended, so a lost machine costs only
one stage. When called again with the same ``--output``, here or on another machine, it continues
with the stages that have no answer yet, and resumes an interrupted run. Several calls with the same
``--work`` unpack the bundle once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The most valuable first.
SPECS = (
    "bert-100ms",
    "bert-25ms",
    "bert-default",
    "bert-model-analyzer",
    "small-cnn",
    "bert-cache",
    "bert-heavy",
)
SWEEPS = ("memory", "loads", "transports")
STAGES = ("doctor", *SWEEPS, *SPECS, "table")
#: Name of the directory to unpack into. `tune` up to 0.1 removes old ``triton-tune-*``.
WORK = "tune-gpu-bundle"
#: How our own archives are unpacked; Python 3.11.4 has it first.
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
#: Exit codes that are an answer; after any other the stage is tried again.
ANSWERS = (0, 3, 10, 11)
INTERRUPTED = "interrupted"
#: A stage is not begun with less time than this.
LEAST_S = 30.0
#: An interrupted run stores its results and stops its server within this.
STOPPING_S = 40.0
#: What must be there already; the second may also come with the bundle.
THE_MACHINES = ("torch", "transformers")
PACKABLE = ("numpy", "scipy", "pandas")


class NotReadyError(Exception):
    """The machine or the bundle does not meet the requirements."""


@dataclass(frozen=True)
class Place:
    """What was unpacked, and what runs in it."""

    work: Path
    device: str

    @property
    def python(self) -> Path:
        return self.work / "venv" / "bin" / "python"

    @property
    def tune(self) -> Path:
        return self.work / "venv" / "bin" / "tune"

    @property
    def gpu(self) -> Path:
        return self.work / "project" / "benchmarks" / "gpu"

    @property
    def results(self) -> Path:
        return self.work / f"results-{self.device}"

    def environment(self) -> dict[str, str]:
        """The bundled libpython comes last: only a Python without its own uses it."""
        variables = dict(os.environ)
        libraries = [variables.get("LD_LIBRARY_PATH", ""), str(self.work / "lib")]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
        variables["HF_HUB_OFFLINE"] = "1"
        return variables


def prepared(bundle: Path, work: Path, device: str) -> Place:
    """Unpacks, makes the environment, writes models and specs; a bundle is unpacked only once.

    Raises:
        NotReadyError: No bundle, one for another Python, or packages are missing.
    """
    if not bundle.is_file():
        raise NotReadyError(f"no bundle {bundle}: bundle.py makes it, on a connected machine")
    stat = bundle.stat()
    place = Place(work / f"{stat.st_size:x}-{stat.st_mtime_ns:x}", device)
    ready = place.work / "ready"
    if not ready.exists():
        place.work.mkdir(parents=True, exist_ok=True)
        with tarfile.open(bundle) as archive:
            archive.extractall(place.work, **SAFELY)
        _check_python(place.work)
        _make_environment(place)
        ready.touch()
    _check_packages(place)
    models = place.work / device / "models"
    _call([str(place.python), "-c", _WRITE_MODELS, str(models), device], place, cwd=place.gpu)
    _write_specs(place)
    return place


_WRITE_MODELS = (
    "import sys, pathlib, models; "
    "models.write_repository(pathlib.Path(sys.argv[1]), models.Device(sys.argv[2]))"
)


def _check_python(work: Path) -> None:
    wanted = json.loads((work / "bundle.json").read_text())["python"]
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != wanted:
        raise NotReadyError(
            f"this is Python {here} and the bundle is for {wanted}: start run.py with "
            f"python{wanted}, or make the bundle with --python {here}"
        )


def _make_environment(place: Place) -> None:
    """A virtual environment of links: the bundle's packages first, then those of this Python.

    This Python may itself be a virtual environment, which --system-site-packages would pass over.
    """
    command = [sys.executable, "-m", "venv", "--without-pip", "--clear", str(place.work / "venv")]
    subprocess.run(command, check=True)
    here = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    paths = [str(place.work / "site"), str(place.work / "project"), *here]
    packages = next((place.work / "venv" / "lib").glob("python3*")) / "site-packages"
    (packages / "bundle.pth").write_text("\n".join(paths) + "\n")
    shutil.copy(place.work / "bin" / "perf_analyzer", place.python.parent)
    place.tune.write_text(f"#!{place.python}\nfrom tuner.cli import main\n\nmain()\n")
    place.tune.chmod(0o755)


def _check_packages(place: Place) -> None:
    code = (
        "import importlib.util, sys; "
        "print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"
    )
    missing = _call([str(place.python), "-c", code, *THE_MACHINES, *PACKABLE], place).split()
    if missing:
        packable = " ".join(name for name in missing if name in PACKABLE)
        raise NotReadyError(
            f"this machine's Python lacks {', '.join(missing)}: start run.py with a Python that "
            "has them" + (f", or make the bundle with --also {packable}" if packable else "")
        )


def _call(command: Sequence[str], place: Place, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, env=place.environment(), cwd=cwd, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise NotReadyError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _write_specs(place: Place) -> None:
    """Beside the models, since a spec refers to them by a relative path."""
    specs = place.work / place.device / "specs"
    specs.mkdir(parents=True, exist_ok=True)
    for name in SPECS:
        shutil.copy(place.gpu / "specs" / f"{name}.yaml", specs)


def command_of(stage: str, place: Place, given: argparse.Namespace) -> list[str]:
    """The command line of a stage; its results are in ``results/STAGE``."""
    directory = place.results / stage
    if stage == "doctor":
        return [
            str(place.tune),
            "doctor",
            str(place.work / place.device / "specs" / f"{SPECS[0]}.yaml"),
        ]
    if stage == "table":
        return [str(place.python), str(place.gpu / "table.py"), str(place.results)]
    if stage in SWEEPS:
        repository = place.work / place.device / "models"
        command = [str(place.python), str(place.gpu / "sweep.py"), stage]
        command += ["--repository", str(repository), "--output", str(directory / f"{stage}.jsonl")]
        command += ["--device", place.device]
        return command + (["--levels", "1", "2"] if place.device == "cpu" else [])
    progress = ["--progress", "plain"]
    if unfinished := unfinished_run(directory):
        return [str(place.tune), "run", "--resume", str(unfinished), *progress]
    spec = place.work / place.device / "specs" / f"{stage}.yaml"
    command = [
        str(place.tune),
        "run",
        str(spec),
        "--no-write",
        "--output",
        str(directory),
        *progress,
    ]
    if given.search_seconds is not None:
        command += ["--time-budget", f"{given.search_seconds}s"]
    return command + (["--trials", str(given.trials)] if given.trials is not None else [])


def unfinished_run(directory: Path) -> Path | None:
    """The newest run of a stage, if it was interrupted or its machine was lost."""
    runs = sorted(path.parent for path in directory.glob("*/manifest.json"))
    if not runs:
        return None
    result = runs[-1] / "result.json"
    ended = result.exists() and json.loads(result.read_text())["status"] != INTERRUPTED
    return None if ended else runs[-1]


def run_stage(stage: str, place: Place, given: argparse.Namespace, seconds: float) -> str:
    """Runs a stage for as long as it may take; then it is interrupted, as by Ctrl-C.

    Returns:
        How it ended.
    """
    directory = place.results / stage
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            command_of(stage, place, given),
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            return f"exit {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOPPING_S)
            return INTERRUPTED
        finally:
            with suppress(ProcessLookupError):  # what it left running must not disturb the next
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def gpu_log(path: Path) -> Iterator[None]:
    """Records memory, use, power and clocks of the GPUs twice a second, independently of runs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        yield
        return
    fields = "timestamp,index,memory.used,utilization.gpu,power.draw,clocks.sm,temperature.gpu"
    command = [program, f"--query-gpu={fields}", "--format=csv,nounits", "-lms", "500"]
    with path.open("ab") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def pack(stage: str, place: Place, output: Path) -> None:
    """All results of a stage in one file that is easy to carry; replaces the previous one whole."""
    unfinished = output / f"{stage}.tar.gz.unfinished"
    with tarfile.open(unfinished, "w:gz") as archive:
        archive.add(place.results / stage, stage)
    unfinished.replace(output / f"{stage}.tar.gz")


def unpack_earlier(place: Place, output: Path) -> None:
    """The results that earlier calls, on a lost machine, left of each stage."""
    for archive in sorted(output.glob("*.tar.gz")):
        if not (place.results / archive.name.removesuffix(".tar.gz")).exists():
            with tarfile.open(archive) as packed:
                packed.extractall(place.results, **SAFELY)


def read_ends(output: Path) -> dict[str, str]:
    """How each stage of earlier calls ended."""
    path = output / "ends.json"
    ends: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return ends


def has_answer(end: str) -> bool:
    """Whether a stage can be skipped."""
    return end.startswith(tuple(f"exit {code} " for code in ANSWERS))


def run_all(given: argparse.Namespace, begun: float) -> None:
    """Runs all requested stages; the outcome of each is written to ``ends.json`` at once."""
    given.output.mkdir(parents=True, exist_ok=True)
    place = prepared(given.bundle, given.work, given.device)
    unpack_earlier(place, given.output)
    say(f"ready after {time.monotonic() - begun:.0f} s in {place.work}")
    ends = read_ends(given.output)
    # The tables cover all results, so they are always rebuilt.
    owed = [s for s in STAGES if s == "table" or not has_answer(ends.get(s, ""))]
    for stage in given.stages or owed:
        left = given.minutes * 60 - (time.monotonic() - begun) - STOPPING_S
        if left < LEAST_S:
            say(f"{stage}: not begun: no time left")
            continue
        start = time.monotonic()
        (place.results / stage).mkdir(parents=True, exist_ok=True)
        with gpu_log(place.results / stage / "gpu.csv"):
            end = run_stage(stage, place, given, left)
        ends[stage] = f"{end} after {time.monotonic() - start:.0f} s"
        say(f"{stage}: {ends[stage]}")
        pack(stage, place, given.output)
        (given.output / "ends.json").write_text(json.dumps(ends, indent=1))


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="for STAGE.tar.gz and ends.json")
    parser.add_argument(
        "--stages", nargs="+", choices=STAGES, help="all that have no answer yet, by default"
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time for all of it")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--search-seconds", type=int, help="instead of each spec's own budget")
    parser.add_argument("--trials", type=int, help="instead of each spec's own budget")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / WORK)
    begun = time.monotonic()
    given = parser.parse_args()
    given.work = given.work.absolute()
    try:
        run_all(given, begun)
    except NotReadyError as error:
        say(f"cannot run: {error}")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
