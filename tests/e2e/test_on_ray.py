"""Two real tritonservers side by side on Ray, one of whose benches is killed in a trial."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from builders.e2e_workplace import MODEL, SPEC, Workplace
from builders.model_files import copy_examples
from builders.waits import TOO_TIGHT, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def place_two(directory: Path) -> Workplace:
    """A copy of the model for each of the first CPUs."""
    (directory / "specs").mkdir()
    for cpu in sorted(os.sched_getaffinity(0))[:2]:
        name = f"model-{cpu}"
        copy_examples(directory / "repository", MODEL)
        model = (directory / "repository" / MODEL).rename(directory / "repository" / name)
        config = model / "config.pbtxt"
        config.write_text(config.read_text().replace(MODEL, name))
        text = SPEC % {"p90": TOO_TIGHT, "trials": 2, "more": ""}
        text = text.replace(MODEL, name).replace("repository: ", "repository: ../")
        text = text.replace("workload:\n", f"workload:\n  cpus: [{cpu}]\n")
        (directory / "specs" / f"{name}.yaml").write_text(f"{text}server: {{cpus: [{cpu}]}}\n")
    return Workplace(directory)


@dataclass(frozen=True)
class Seen:
    """A server, with the bench that starts it; another one may take its place at any moment."""

    process: psutil.Process
    bench: psutil.Process
    cpus: frozenset[int]
    variables: dict[str, str]
    nice: int

    @classmethod
    def of(cls, server: psutil.Process) -> Seen:
        bench = server.parent()
        if bench is None:
            raise psutil.NoSuchProcess(server.pid)
        cpus = frozenset(server.cpu_affinity())
        return cls(server, bench, cpus, server.environ(), server.nice())


def two_servers(workplace: Workplace) -> list[Seen]:
    """Both servers, once they run at the same time."""
    servers = list[Seen]()

    def are_there() -> bool:
        with suppress(psutil.NoSuchProcess):
            servers[:] = map(Seen.of, workplace.children("tritonserver"))
            return len(servers) == 2
        return False

    wait_until(are_there, 180)
    return servers


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each server needs a CPU")
def test_two_servers_have_separate_cpus_and_a_killed_bench_is_started_again(
    tmp_path: Path,
) -> None:
    workplace = place_two(tmp_path)
    process = workplace.start("run", "specs/*.yaml", "--on", "ray", "--progress", "plain")
    servers = two_servers(workplace)
    assert not servers[0].cpus & servers[1].cpus
    for server in servers:
        variables = server.variables
        foreign = [name for name in variables if name.startswith(("RAY_", "SPT_", "PYTHONBREAK"))]
        assert foreign == []
        assert variables.get("OMP_NUM_THREADS") == os.environ.get("OMP_NUM_THREADS")
        assert server.nice == psutil.Process(process.pid).nice()
    servers[0].bench.send_signal(signal.SIGKILL)  # in its first trial
    wait_until(lambda: not servers[0].process.is_running())
    done = workplace.finish(process)
    assert done.returncode == 10, done.stderr  # no config meets the SLO
    results = tmp_path / "results"
    (series,) = results.glob("*/series.json")
    members = json.loads(series.read_text())["members"]
    assert [m["exit_code"] for m in members] == [10, 10]
    trials = {p.parent.name: p.read_text() for p in results.glob("*/trials.jsonl")}
    assert sorted(trials) == sorted(m["run"] for m in members)
    wait_until(lambda: not workplace.children(), 60)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each server needs a CPU")
def test_one_search_on_two_servers_loses_no_trial_with_a_bench_that_is_killed(
    tmp_path: Path,
) -> None:
    copy_examples(tmp_path / "repository", MODEL)
    more = "  instance_group.count: {int: [1, 2]}\nsearch: {strategy: random}\n"
    text = SPEC % {"p90": TOO_TIGHT, "trials": 4, "more": more}
    (tmp_path / "spec.yaml").write_text(text)
    workplace = Workplace(tmp_path)
    on = ("--on", "ray", "--benches", "2", "--progress", "plain")
    process = workplace.start("run", "spec.yaml", *on)
    servers = two_servers(workplace)
    assert not servers[0].cpus & servers[1].cpus
    bench = servers[-1].bench
    trials = next(iter((tmp_path / "results").iterdir())) / "trials.jsonl"
    wait_until(trials.exists, 120)
    mine = [child for child in bench.children() if child.name() == "tritonserver"]
    bench.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(server.is_running() for server in mine))
    done = workplace.finish(process)
    assert done.returncode == 10, done.stderr  # no config meets the SLO
    rows = [json.loads(line) for line in trials.read_text().splitlines()]
    assert [row["number"] for row in rows] == [*range(4)]
    assert "failed" not in {row["state"] for row in rows}
    wait_until(lambda: not workplace.children(), 60)
