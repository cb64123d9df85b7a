"""Two models in one command, on a real server: stopped in the first, and resumed together."""

from __future__ import annotations

import json
import shutil
import signal

import pytest
from builders.e2e_workplace import MODEL, Workplace

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]


def test_two_models_are_tuned_one_after_the_other_though_the_first_was_interrupted(
    workplace: Workplace,
) -> None:
    repository = workplace.directory / "repository"
    shutil.copytree(repository / MODEL, repository / "second")
    config = repository / "second" / "config.pbtxt"
    config.write_text(config.read_text().replace(MODEL, "second"))
    first = workplace.spec(trials=2)
    second = workplace.directory / "second.yaml"
    second.write_text(first.read_text().replace(MODEL, "second"))

    process = workplace.start("run", "*.yaml")
    workplace.wait_for_trials(1)
    process.send_signal(signal.SIGINT)
    stopped = workplace.finish(process)
    assert stopped.returncode == 130, stopped.stderr
    assert workplace.children() == []
    (record,) = (workplace.directory / "results").glob("*/series.json")

    done = workplace.tune("run", "--resume", str(record.parent), "--format", "json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["name"] for run in runs] == ["second", MODEL]
    assert {run["status"] for run in runs} <= {"improved", "kept"}
    assert len(list((workplace.directory / "results").glob("*/manifest.json"))) == 2
    assert workplace.children() == []
