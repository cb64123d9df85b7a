"""Workers beside a run, each with a server and a spec of its own."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from builders.e2e_workplace import MODEL, Workplace
from builders.waits import TOO_TIGHT, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long]

LARGER = """\
  instance_group.count: {int: [1, 8]}
  dynamic_batching.max_queue_delay_microseconds: {choice: [0, 100, 200]}
"""


def elsewhere(workplace: Workplace, name: str) -> Workplace:
    """Another place with a copy of the models and of the spec."""
    directory = workplace.directory / name
    shutil.copytree(workplace.directory / "repository", directory / "models")
    text = (workplace.directory / "spec.yaml").read_text()
    moved = text.replace("repository: repository", "# a copy\nrepository: models")
    (directory / "spec.yaml").write_text(moved)
    return replace(workplace, directory=directory)


def test_a_worker_joins_by_its_own_spec_and_not_with_another_spec_or_another_model(
    workplace: Workplace, tmp_path: Path
) -> None:
    spec = workplace.spec(p90=TOO_TIGHT, trials=40)
    spec.write_text(spec.read_text().replace("  instance_group.count: {int: [1, 2]}\n", LARGER))
    storage = f"--storage=sqlite:///{tmp_path / 'shared.db'}"
    run = workplace.start("run", str(spec), storage)
    workplace.wait_for_trials(1)
    worker = elsewhere(workplace, "worker")
    joined = worker.start("worker", "spec.yaml", storage)
    other = elsewhere(workplace, "other")
    refused = other.tune("worker", "spec.yaml", storage, "--set", "workload.window=2s")
    assert refused.returncode == 2
    assert "workload.window: 2s here, 1s in the run's spec" in refused.stderr
    with (other.directory / "models" / MODEL / "1" / "model.py").open("a") as file:
        file.write("# edited\n")
    refused = other.tune("worker", "spec.yaml", storage)
    assert refused.returncode == 2
    assert f"{MODEL}/1/model.py differs" in refused.stderr

    wait_until(lambda: any(trial["worker"] for trial in workplace.trials()), 120)
    run.send_signal(signal.SIGINT)
    ended = [workplace.finish(run), worker.finish(joined)]
    assert [done.returncode for done in ended] == [130, 0], [done.stderr for done in ended]
    wait_until(lambda: not workplace.children(), 30)
