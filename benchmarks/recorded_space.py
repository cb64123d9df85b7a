"""The part of a table's space that is recorded in full, and the sample that is measured again."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import yaml
from recorded_table import Table, spec_path

from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.steps.job import Job, Request, prepare

#: Configs of the sample, and its seed.
SAMPLE, _SEED = 40, 4
DELAY = "dynamic_batching.max_queue_delay_microseconds"


def covered(name: str, table: Table) -> Job:
    """The job of a table's spec; delays of which a config is not recorded are left out.

    Raises:
        ValueError: Nothing is left.
    """
    path = spec_path(name)
    job = prepare(Request(spec=path))
    recorded = set(table.firsts())
    missing = [c for c in job.space.enumerate() if c.key not in recorded]
    if not missing:
        return job
    data = yaml.safe_load(path.read_text())
    without = {c.of("").get(DELAY) for c in missing}
    left = [d for d in data["space"][DELAY]["choice"] if d not in without]
    if not left or None in without:
        raise ValueError(f"the table {name} has no delay of which every config is recorded")
    data["space"][DELAY]["choice"] = left
    data["repository"] = str((path.parent / data["repository"]).resolve())
    with tempfile.TemporaryDirectory() as private:
        narrow = Path(private) / path.name
        narrow.write_text(yaml.safe_dump(data))
        return prepare(Request(spec=narrow))


def sampled(space: Space) -> list[Candidate]:
    """The configs whose repeats say how noisy the table is: chosen by chance, not by result."""
    every = sorted(space.enumerate(), key=lambda c: c.key)
    return random.Random(_SEED).sample(every, min(SAMPLE, len(every)))
