"""How much sooner two benches of one core each end than one of them, with a real tritonserver.

    python benchmarks/beside.py series     four specs, each of a model of its own
    python benchmarks/beside.py search     one search of 16 random configs
    python benchmarks/beside.py idle       what Ray costs that is started for one bench

The model sleeps, as a GPU does for its host, so a core has room for the load generator. Prints a
row for one bench and one for two; the quotient of their wall times is the speed-up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tuner.record.store import RunStore
from tuner.search.estimate import spent_s

TOP = Path(__file__).parents[1]
MODEL = "emulated-accelerator"
SPEC = """\
model: {model}
repository: repository
slo: [p90_latency <= 200ms]
space:
  instance_group.count: {{int: [1, 4]}}
  max_batch_size: {{choice: [8, 16, 32]}}
  dynamic_batching: {{choice: [on]}}
  dynamic_batching.max_queue_delay_microseconds: {{choice: [0, 1000, 4000]}}
search: {{strategy: random}}
workload:
  arrivals: {{kind: closed, concurrency: [8], restarts: 1}}
  window: 2s
  warmup: 200ms{load}
confirm: {{rounds: 3, finalists: 1, soak: 0}}
budget: {{trials: {trials}}}
{server}
"""


def cores() -> list[int]:
    """Two of them."""
    return sorted(os.sched_getaffinity(0))[:2]


def place(directory: Path, names: Sequence[str], trials: int, cpus: Sequence[int]) -> None:
    """A copy of the model and a spec for each name; ``cpus``: theirs in turns, none: left open."""
    (directory / "specs").mkdir()
    for number, name in enumerate(names):
        model = directory / "specs" / "repository" / name
        shutil.copytree(TOP / "model_repository" / MODEL, model)
        config = model / "config.pbtxt"
        config.write_text(config.read_text().replace(MODEL, name))
        cpu = cpus[number % len(cpus)] if cpus else None
        load = f"\n  cpus: [{cpu}]" if cpus else ""
        server = f"server: {{cpus: [{cpu}]}}" if cpus else ""
        text = SPEC.format(model=name, load=load, server=server, trials=trials)
        (directory / "specs" / f"{name}.yaml").write_text(text)


def timed(directory: Path, *arguments: str) -> float:
    """Wall seconds of `tune run`."""
    command = [sys.executable, "-m", "tuner", "run", *arguments, "--no-write", "--progress", "none"]
    begin_s = time.monotonic()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 10, 11):
        raise SystemExit(done.stderr)
    return time.monotonic() - begin_s


def runs_in(directory: Path) -> list[RunStore]:
    return [RunStore(path.parent) for path in (directory / "results").glob("*/trials.jsonl")]


def series(directory: Path, benches: int) -> list[str]:
    names = [f"model-{number}" for number in range(4)]
    place(directory, names, 4, cores() if benches > 1 else cores()[:1])
    on = ["--on", "ray"] if benches > 1 else []
    wall_s = timed(directory, "specs/*.yaml", *on)
    trials = sum(len(store.trials()) for store in runs_in(directory))
    return [f"{wall_s:.0f} s", f"{trials} trials"]


def search(directory: Path, benches: int) -> list[str]:
    place(directory, ["model"], 16, cores()[:1] if benches == 1 else ())
    on = ["--on", "ray", "--benches", str(benches)] if benches > 1 else []
    wall_s = timed(directory, "specs/model.yaml", *on)
    (store,) = runs_in(directory)
    time_s = json.loads((store.directory / "result.json").read_text())["time"]
    return [
        f"{wall_s:.0f} s",
        f"search {spent_s(store.trials()):.0f} s of {len(store.trials())} trials",
        f"starting {time_s['starting_s']:.0f} s",
    ]


def idle(directory: Path, benches: int) -> list[str]:
    """Memory and CPU of Ray's processes beside a bench that does nothing, over 20 s."""
    del directory
    from tuner.fleet import Need
    from tuner.fleet_on_ray import ray_fleet
    from tuner.machine.stop import Stop

    if benches == 1:
        return ["without --on: no process of Ray"]
    begin_s = time.monotonic()
    with ray_fleet(None, lambda *_: None, Stop()) as fleet:
        fleet.open("bench", nothing, None, Need())
        fleet.submit("bench", None)
        assert fleet.next_done().error is None
        started_s = time.monotonic() - begin_s
        processes = psutil.Process().children(recursive=True)
        before_s = sum(sum(p.cpu_times()[:2]) for p in processes)
        time.sleep(20.0)
        spent = sum(sum(p.cpu_times()[:2]) for p in processes) - before_s
        pss = sum(p.memory_full_info().pss for p in processes) >> 20
    return [
        f"{len(processes)} processes, {pss} MiB (PSS), {100.0 * spent / 20.0:.1f} % of a core",
        f"ready after {started_s:.1f} s",
    ]


def nothing(*_: object) -> object:
    """Opens a bench that does nothing."""
    from contextlib import nullcontext

    return nullcontext(lambda _: None)


MEASURED: dict[str, Callable[[Path, int], list[str]]] = {
    "series": series,
    "search": search,
    "idle": idle,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=MEASURED, nargs="+")
    for what in parser.parse_args().what:
        for benches in (1, 2):
            with tempfile.TemporaryDirectory() as directory:
                row = MEASURED[what](Path(directory), benches)
            count = f"{benches} bench{'es' * (benches > 1):2}"
            print(f"{what:7} {count}  {'  '.join(row)}", flush=True)


if __name__ == "__main__":
    main()
