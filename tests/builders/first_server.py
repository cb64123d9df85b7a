"""The first server of a run, emulated: it makes of configs what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from builders.model_files import write_model

from tuner.modelconfig.served import Served
from tuner.prepare import serving as module
from tuner.prepare.job import Request, prepare
from tuner.prepare.serving import Serving, serving
from tuner.prepare.timebook import TimeBook
from tuner.server.memory import Memories
from tuner.space.candidate import Candidate
from tuner.spec.paths import DYNAMIC_BATCHING

SPEC = """\
model: m
repository: models
slo: [p99_latency <= 40ms]
server: {load_timeout: 33s, unload_first: true}
space:
  instance_group.count: {int: [1, 2]}
  max_batch_size: {choice: [1, 2, 4, 8, 16]}
  dynamic_batching: {choice: [off, on]}
"""
TENSORS = "".join(
    f'{w} [ {{ name: "{w}" data_type: TYPE_FP32 dims: [ 1 ] }} ]\n' for w in ("input", "output")
)
COMPLETES = "def auto_complete_config(config): ...\n"

Completes = Callable[[Any], None]


@dataclass
class Server:
    """What Triton makes of a config, by ``completes``; keeps what it was given."""

    completes: Completes
    trouble: dict[int, Exception] = field(default_factory=dict)
    given: list[tuple[int, bool, tuple[str, ...]]] = field(default_factory=list)
    memory: Memories = field(default_factory=dict)

    def deployer(self, _: object, served: Served, log: Path, **options: Any) -> Any:
        self.names = [model.name for model in served.models.values()]
        self.log, self.options = log, options
        return Deployer(self, served)


@dataclass
class Deployer:
    server: Server
    served: Served
    completes: bool = True

    def __enter__(self) -> Deployer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def memory(self) -> Memories:
        return self.server.memory

    def try_out(self, candidate: Candidate) -> Any:
        running = self.served.requests(candidate.models)
        (*_, config) = running.values()
        batcher = config.HasField(DYNAMIC_BATCHING)
        self.server.given.append((config.max_batch_size, batcher, candidate.cache_bytes))
        if error := self.server.trouble.get(len(self.server.given)):
            raise error
        for each in running.values():
            self.server.completes(each)
            if not each.instance_group and not each.ensemble_scheduling.step:
                each.instance_group.add(count=1)
        return SimpleNamespace(running=running)


def as_given(config: Any) -> None:
    del config


def at_most_eight(config: Any) -> None:
    config.max_batch_size = min(config.max_batch_size or 8, 8)


def always_eight(config: Any) -> None:
    config.max_batch_size = 8


def always_batching(config: Any) -> None:
    config.dynamic_batching.SetInParent()


@contextmanager
def first_server(
    here: Path,
    server: Server,
    config: str,
    code: str = COMPLETES,
    spec: str = SPEC,
    book: TimeBook | None = None,
) -> Iterator[Serving]:
    """It serves a model of this config and code, which a spec searches."""
    text = config if "backend" in config else f'backend: "python"\n{config}'
    write_model(here / "models" / "m", text, code)
    (here / "spec.yaml").write_text(spec)
    job = prepare(Request(spec=here / "spec.yaml"))
    programs = cast("Any", SimpleNamespace(launcher=None))
    with patch.object(module, "Deployer", server.deployer):
        with serving(job, programs, here / "logs", book or TimeBook()) as ready:
            yield ready
