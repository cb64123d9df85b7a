"""A model of which this machine has no memory for four instances, on a real server."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from builders.candidates import the_one
from builders.failing_model import place

from tuner.score.trial import TrialState

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long]

#: Python runs it when it starts.
LITTLE_FREE = """\
try:
    import psutil
except ImportError:
    pass  # a model's
else:
    real = psutil.virtual_memory
    psutil.virtual_memory = lambda: real()._replace(available=600 << 20)
"""


def test_config_that_cannot_fit_is_never_loaded(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = place(workplace, initialize='self.weights = b"x" * (200 << 20)')
    spec.write_text(spec.read_text().replace("{int: [1, 2]}", "{choice: [1, 4]}"))
    (workplace.directory / "sitecustomize.py").write_text(LITTLE_FREE)
    path = os.pathsep.join([str(workplace.directory), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    run = workplace.start("run", str(spec))
    workplace.wait_for_trials(3)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=90)
    assert "not loaded: it needs about" in said
    trials = workplace.trials()
    counts = {
        t["number"]: the_one(t["candidate"]["models"])["instance_group.count"] for t in trials
    }
    refused = [t for t in trials if counts[t["number"]] == 4]
    assert [t["state"] for t in refused] == [TrialState.FAILED.value]
    reason = refused[0]["reason"]
    assert (reason["kind"], reason["facts"]["limit_bytes"]) == ("no_room", 480 << 20)
    assert "of 480 MiB free memory (20% headroom)" in said
    taken = [t["memory"]["memory"]["taken_bytes"] for t in trials if counts[t["number"]] == 1]
    assert 200 << 20 < min(taken) < 300 << 20  # a reload may still have the copy before it
    assert len(taken) == 2
    loads = (workplace.run / "logs" / "server.log").read_text()
    assert "m_0_0" in loads
    assert "m_0_3" not in loads
