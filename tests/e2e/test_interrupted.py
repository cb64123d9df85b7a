"""Whatever kills a run: no process stays, the repository is whole, and the run goes on."""

from __future__ import annotations

import os
import signal

import pytest
from builders.waits import TOO_TIGHT, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT], 130), ([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGTERM], 130)],
    ids=["ctrl-c", "ctrl-c twice", "sigterm"],
)
def test_a_stopped_run_leaves_a_report_and_says_how_to_go_on(workplace, signals, code) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    process = workplace.start("run", str(workplace.spec()))
    workplace.wait_for_trials(1)
    for number in signals:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "--resume" in err
    assert workplace.children() == []
    assert workplace.config.read_bytes() == before
    result = workplace.result()
    assert result["status"] == "interrupted"
    assert result["trials"]["measured"] >= 1
    assert (workplace.run / "report.html").is_file()


def test_killed_run_leaves_no_process_and_resumes_from_its_stored_spec_without_loss(
    workplace,
) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    spec = str(workplace.spec(p90=TOO_TIGHT))
    process = workplace.start("run", spec)
    workplace.wait_for_trials(2)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    wait_until(lambda: not workplace.children(), 30)
    assert workplace.config.read_bytes() == before
    finished = workplace.trials()

    another = str(workplace.spec(p90=TOO_TIGHT, trials=7))
    refused = workplace.tune("run", another, "--resume", str(workplace.run))
    assert refused.returncode == 2
    assert "was edited" in refused.stderr
    assert workplace.trials() == finished
    workplace.spec(p90=TOO_TIGHT)

    done = workplace.tune("run", "--resume", str(workplace.run))
    assert done.returncode == 10, done.stderr
    trials = workplace.trials()
    assert trials[: len(finished)] == finished
    assert [t["number"] for t in trials] == list(range(len(trials)))
    candidates = [str(t["candidate"]) for t in trials]
    assert len(set(candidates)) == len(candidates)
    assert len(trials) == 4


def test_a_killed_server_costs_one_attempt_and_no_more(workplace) -> None:  # type: ignore[no-untyped-def]
    process = workplace.start("run", str(workplace.spec(p90=TOO_TIGHT, trials=3)))
    workplace.wait_for_trials(1)

    wait_until(lambda: workplace.children("perf_analyzer"))
    (server,) = workplace.children("tritonserver")
    os.kill(server.pid, signal.SIGKILL)
    done = workplace.finish(process)
    assert done.returncode == 10, done.stderr
    trials = workplace.trials()
    assert [t["state"] for t in trials].count("failed") == 0
    assert [t["attempts"] for t in trials].count(2) == 1
