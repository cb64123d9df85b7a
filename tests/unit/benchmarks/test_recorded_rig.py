"""A recording of hours keeps its temporary directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import recorded_rig
from unit.programs.test_joining import job  # noqa: F401  a fixture
from unit.steps.test_live_directories import an_hour_later, temporary  # noqa: F401  a fixture

from tuner.steps.job import Job
from tuner.steps.tools import Programs


def test_the_rig_of_a_recording_is_never_swept(job: Job, temporary: Path) -> None:  # noqa: F811
    programs = Programs(cast("Any", None), cast("Any", None), cast("Any", None), "2.51.0")
    with recorded_rig.rig(job, programs) as rig:
        assert an_hour_later(temporary) == [rig.directory]
    assert not rig.directory.exists()
