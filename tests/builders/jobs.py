"""Jobs made from a spec of the emulated accelerator, and runs opened for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from builders.model_files import REPOSITORY

from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.serving import Serving
from tuner.prepare.timebook import TimeBook
from tuner.record.store import RunStore
from tuner.run.open_run import OpenRun, open_run, open_store

SPEC = """\
model: emulated-accelerator
repository: {repository}
slo: [p99_latency <= 40ms]
space: {{instance_group.count: {{int: [1, 4]}}}}
"""


class Facts:
    """Stands in for the programs of a machine."""

    host = property(lambda self: self)

    def to_json(self) -> dict[str, Any]:
        return {"cpu": "a cpu", "gpus": []}

    def versions(self) -> dict[str, str]:
        return {"tritonserver": "1"}

    def fingerprint(self, *_: str) -> str:
        return "0" * 16


@contextmanager
def serving(job: Job, *_: object) -> Iterator[Serving]:
    """Stands in for a server of which only its memory is asked, and that is not known."""
    yield Serving(job, cast("Any", None), cast("Any", SimpleNamespace(memory=dict)))


@dataclass(frozen=True)
class StoredRun(OpenRun):
    """A run in progress with its directory."""

    store: RunStore


@contextmanager
def opened(job: Job, request: Request, book: TimeBook | None = None) -> Iterator[StoredRun]:
    facts: Any = Facts()
    with (
        open_store(job, facts, request, "a-run") as (store, manifest),
        open_run(job, store, manifest, request, book or TimeBook()) as run,
    ):
        yield StoredRun(run.manifest, run.searcher, store)


def a_job(directory: Path, text: str = SPEC) -> Job:
    spec = directory / "spec.yaml"
    spec.write_text(text.format(repository=REPOSITORY))
    return prepare(Request(spec=spec))
