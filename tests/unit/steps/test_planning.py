"""A stranger's spec may be planned: nothing that it chooses is started (unit tests refuse that)."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.steps.test_opening import REPOSITORY, SPEC

from tuner.steps.planning import DrawnPlan, drawn_plan


def planned(tmp_path: Path, more: str) -> DrawnPlan:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(repository=REPOSITORY) + more)
    return drawn_plan(spec, {"PATH": ""}, candidates=0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("server: {binary: /tmp/evil}\n", "a tritonserver of its own"),
        ("server: {environment: {LD_PRELOAD: /tmp/evil.so}}\n", "variables of the server's"),
        ("server: {mode: docker, image: 'evil:1'}\n", "an image"),
        ("server: {mode: remote, http: 'evil:1', grpc: 'evil:2'}\n", "a remote server"),
        ("workload: {perf_analyzer: /tmp/evil}\n", "a perf_analyzer of its own"),
    ],
)
def test_what_the_spec_chooses_is_named_and_not_run(tmp_path: Path, more: str, said: str) -> None:
    plan = planned(tmp_path, more)
    assert any(said in note and "not tried" in note for note in plan.notes)
    assert plan.space_size > 1
    if more.endswith(" /tmp/evil}\n"):
        assert any(line[0] == "/tmp/evil" for line in plan.commands.values())


def test_no_key_to_a_server_is_shown(tmp_path: Path) -> None:
    plan = planned(tmp_path, "server: {binary: /bin/tritonserver}\n")
    keys = [a.rpartition("=")[2] for a in plan.commands["tritonserver"] if "restricted" in a]
    assert keys == ["KEY", "KEY"]
