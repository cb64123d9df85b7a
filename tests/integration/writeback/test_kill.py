"""A process killed while it writes leaves the old config or the new one, never part of either."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.writeback.plan import FilePlan, WritePlan, apply, sha256_of
from tuner.writeback.rollback import rollback

pytestmark = [pytest.mark.integration, pytest.mark.long]

BEFORE = "# before\n" * 20_000
AFTER = "# the winner\n" * 20_000

#: Applies and takes back for ever, as fast as it can; says first how long both take.
WRITER = """
import pickle, sys, time
from pathlib import Path
from tuner.writeback.plan import apply
from tuner.writeback.rollback import rollback
plan = pickle.loads(Path(sys.argv[1]).read_bytes())
for cycle in range(sys.maxsize):
    began = time.monotonic()
    apply(plan)
    rollback(plan.repository, "m")
    if cycle == 1:
        print(time.monotonic() - began, flush=True)
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    path = plan.files[0].path
    stored = tmp_path / "plan"
    stored.write_bytes(pickle.dumps(plan))
    moments = random.Random(0)
    seen = set()
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(stored)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            cycle_s = float(writer.stdout.readline())
            time.sleep(moments.uniform(0.0, 2 * cycle_s))
            writer.kill()
        content = path.read_text()
        assert content in (BEFORE, AFTER)
        seen.add(content)
        apply(plan)
        assert path.read_text() == AFTER
        rollback(tmp_path, "m")
        assert path.read_text() == BEFORE
        assert not list(path.parent.glob("*.tmp"))
        assert not list(path.parent.glob(".*.tmp"))
    assert seen == {BEFORE, AFTER}, "the moments were not spread over the writes"


def make_plan(repository: Path) -> WritePlan:
    path = repository / "m" / "config.pbtxt"
    path.parent.mkdir()
    path.write_text(BEFORE)
    return WritePlan((FilePlan("m", path, sha256_of(BEFORE), BEFORE, AFTER),), "r1")
