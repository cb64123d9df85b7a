"""One run on several benches of Ray, with emulated measurements, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.emulated_tune import MODEL, SPEC
from builders.model_files import copy_examples
from builders.on_ray import PATHS, benches_of, left_over, start
from builders.waits import wait_until

TRIALS = 8
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each bench needs a CPU"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    copy_examples(tmp_path / "repository", MODEL)
    (tmp_path / "spec.yaml").write_text(SPEC % TRIALS)
    return tmp_path


def trials_in(place: Path) -> list[dict[str, Any]]:
    texts = [p.read_text() for p in (place / "results").glob("*/trials.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines() if line]


def cpus_of(place: Path) -> set[str]:
    """Those of the benches that have measured a trial."""
    return {t["bench"]["cpus"] for t in trials_in(place)}


def all_trials_are_there(place: Path) -> None:
    trials = trials_in(place)
    assert [t["number"] for t in trials] == [*range(TRIALS)]
    assert len({json.dumps(t["candidate"], sort_keys=True) for t in trials}) == TRIALS
    assert {t["state"] for t in trials} <= {"measured", "pruned"}


def test_no_trial_is_lost_with_a_bench_that_is_killed(place: Path) -> None:
    both = {"EMULATED_DEPLOYED": str(place / "deployed"), "EMULATED_BENCHES": "2"}
    process = start(place, "spec.yaml", "--benches", "2", "--format", "json", pause_s=0.2, **both)
    wait_until(lambda: len(cpus_of(place)) == 2, 120)
    os.kill(benches_of(place)[-1], signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert json.loads(out)["status"] in ("improved", "kept"), err
    all_trials_are_there(place)
    assert "bench-1 is on " in err
    assert "bench-2 is on " in err
    assert "ray::" not in err
    (database,) = (place / "results").glob("*/study.db")
    assert database.stat().st_size > 0
    wait_until(lambda: not left_over(place), 40)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_and_goes_on(place: Path, number: int) -> None:
    process = start(place, "spec.yaml", "--benches", "2", pause_s=0.3)
    wait_until(lambda: len(trials_in(place)) >= 2, 120)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), err
    wait_until(lambda: not left_over(place), 40)
    before = trials_in(place)
    (run,) = (place / "results").glob("*/manifest.json")
    resumed = start(place, "--resume", str(run.parent), "--format", "json")
    out, err = resumed.communicate(timeout=300)
    assert json.loads(out)["status"] in ("improved", "kept"), err
    assert trials_in(place)[: len(before)] == before
    all_trials_are_there(place)


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
print(cluster.address, *(n.all_processes["raylet"][0].process.pid for n in nodes), flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


def test_no_round_is_lost_with_its_node(place: Path) -> None:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32}
    emulated = {"PYTHONPATH": PATHS, "EMULATED_PAUSE_S": "0.2"}
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env={**os.environ, **token, **emulated},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as cluster:
        assert cluster.stdout is not None
        address, *raylets = cluster.stdout.readline().split()
        variables = {**token, "RAY_ADDRESS": address}
        command = "spec.yaml", "--benches", "2", "--format", "json"
        process = start(place, *command, pause_s=0.2, **variables)
        wait_until(lambda: any((place / "results").glob("*/confirmation.jsonl")), 200)
        os.kill(int(raylets[1]), signal.SIGKILL)
        out, err = process.communicate(timeout=300)
        assert json.loads(out)["status"] in ("improved", "kept"), err
        all_trials_are_there(place)
        cluster.communicate("\n", timeout=60)
