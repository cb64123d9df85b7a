"""What `tune init` drafts to be searched of one model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.modelconfig.base import ASSUMED_BATCH_SIZE, turns_on_batching
from tuner.modelconfig.ensembles import answers_many_times
from tuner.modelconfig.path import get
from tuner.modelconfig.queues import policy_of_queue
from tuner.modelconfig.schema import batches_sequences, takes_sequences
from tuner.modelconfig.traps import fixed_batch
from tuner.space.draft_instances import CudaUse, Machine, any_on_gpu, instances
from tuner.space.draft_queue import delays, queue_lines
from tuner.space.draft_sequences import sequence_space_lines
from tuner.space.draft_text import DraftEntry, Remark, flow, off, remarks
from tuner.space.experts import EXPERTS, UNKNOWN, Expert
from tuner.spec.paths import DELAY, DYNAMIC_BATCHING, INSTANCES, MAX_BATCH_SIZE, PREFERRED
from tuner.spec.slo import Slo

#: So many requests seldom wait at once: a larger batch forms of requests of many rows only.
_LARGE_BATCH = 1024


@dataclass(frozen=True)
class DraftedModel:
    """The drafted model, or one that is served with it: a step of it, or one that its code calls.

    Attributes:
        completes: The server may complete the config when it loads the model.
        calls: Models that its code names.
        unbatched_by_code: Its code sets a max_batch_size that makes no batches.
        unnamed: Where in its code it calls others, by names that are made at run time.
        least_batch: The smallest maximum batch that the model needs, for its warm-up samples and
            the ensembles it is a step of.
        why_least: A remark where that is for a warm-up sample.
        rows: Of a request.
        threads: A remark for each runtime whose threads its code leaves open; for CPUs.
        variables: What limits these in the server's environment.
        versions: Numbers of the version directories that there are.
        weights_bytes: Size of the files of its largest served version.
        cuda: Whether its code uses a GPU.
        bounds: The values to try of fields that are drafted, by path.
    """

    config: Any
    completes: bool = False
    calls: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    unbatched_by_code: bool = False
    least_batch: int = 0
    why_least: str = ""
    rows: int = 1
    threads: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    weights_bytes: int = 0
    cuda: CudaUse = CudaUse.NONE
    bounds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def fills(self, largest: int) -> bool:
        """Whether no two requests fit into a batch of the largest size."""
        return 1 < self.rows <= largest < 2 * self.rows


def are_for_sequences(models: Mapping[str, DraftedModel]) -> bool:
    return any(takes_sequences(part.config) for part in models.values())


def answer_many_times(models: Mapping[str, DraftedModel]) -> bool:
    """Whether a request to the first of the models may be answered many times."""
    return answers_many_times(next(iter(models)), {n: part.config for n, part in models.items()})


def space_of(
    part: DraftedModel,
    machine: Machine,
    slo: Slo,
    known: Mapping[str, Mapping[str, Any]],
    *,
    alone: bool,
) -> Iterator[DraftEntry | Remark]:
    """Beside what is ``known``; of several, not ``alone``, finer fields would make it too large."""
    config, expert = part.config, EXPERTS.get(part.config.backend, UNKNOWN)
    yield from map(Remark, expert.remarks)
    for library in config.model_operations.op_library_filename:
        yield from remarks(
            f"The server loads {library} with the model: its image, or server.mounts, must have it."
        )
    on_gpu = any_on_gpu(config, machine, part.cuda)
    yield from () if on_gpu else map(Remark, part.threads)
    most = math.inf if on_gpu else max(machine.cores, 2)
    for path, values in (expert.on_gpu if on_gpu else expert.on_cpu).items():
        yield _choice(config, path, values, most)
    bounds = part.bounds.get(INSTANCES)
    yield from instances(config, machine, part.weights_bytes, bounds, part.cuda)
    fixed = next(fixed_batch(config), None)
    if fixed is not None:
        yield from remarks(
            f"{fixed[1]}, so sizes are not searched.",
            f"To batch, {fixed[2]}.",
        )
    elif part.unbatched_by_code:
        yield Remark("model.py sets a max_batch_size of 1 or 0: Triton sends requests one by one.")
    elif why := why_unbatched(config, completes=part.completes):
        yield Remark(f"{why}.")
        yield Remark(
            "If the model can batch, say so in config.pbtxt and draft again: it gains most."
        )
    elif config.max_batch_size:
        yield from _batching(part, expert, slo, known, alone=alone)
    elif batches_sequences(config):
        yield from sequence_space_lines(config, ASSUMED_BATCH_SIZE, slo)
    else:
        known_sizes = part.bounds.get(MAX_BATCH_SIZE, {}).get("choice", ())
        yield from _completed_batching(expert.sizes if alone else (), known_sizes, slo)
    chosen = config.version_policy.specific.versions
    yield from _variants(tuple(n for n in part.versions if n in chosen or not chosen))
    if rare := (expert.rare_on_gpu if on_gpu else expert.rare_on_cpu) if alone else {}:
        yield Remark("Few models gain from these:")
        for path, given in rare.items():
            now = "on in config.pbtxt; " * (True in given.values and bool(get(config, path)))
            choice = _choice(config, path, given.values, most)
            yield replace(choice, remark=now + given.why, mark="#   ")


def _choice(config: Any, path: str, values: Sequence[Any], most: float) -> DraftEntry:
    """``values`` that fit, and today's of a parameter."""
    fit = [value for value in values if not str(value).isdecimal() or int(value) <= most]
    today = get(config, path) if path.startswith("parameters.") else None
    return DraftEntry(path, flow({"choice": [*dict.fromkeys([*fit, *([today] if today else [])])]}))


def why_unbatched(config: Any, *, completes: bool) -> str:
    """Why nothing about a model's batches is searched; empty where it is."""
    if config.max_batch_size > 1 or (completes and not config.max_batch_size):
        return ""
    return f"max_batch_size is {config.max_batch_size}: Triton sends requests one by one"


def _completed_batching(
    sizes: Sequence[int], known: Sequence[int], slo: Slo
) -> Iterator[DraftEntry | Remark]:
    """``sizes``: with the server's default first; ``known``: in place of them."""
    yield Remark(
        "config.pbtxt leaves max_batch_size to the server, which completes it when it loads the"
    )
    yield Remark("model. A run asks it first, and searches this only where the model batches:")
    yield delays(DELAY, slo)
    if known or sizes:
        default = f"the server's default is {sizes[0]}" if sizes else ""
        yield DraftEntry(MAX_BATCH_SIZE, flow({"choice": known or sizes}), default)
    else:
        yield Remark("Smaller batches than the model's largest, where that is known:")
        yield off(MAX_BATCH_SIZE, "{choice: [4, 8]}")


def _batching(
    part: DraftedModel,
    expert: Expert,
    slo: Slo,
    known: Mapping[str, Mapping[str, Any]],
    *,
    alone: bool,
) -> Iterator[DraftEntry | Remark]:
    config = part.config
    largest = config.max_batch_size
    larger = expert.larger and alone and not known and 2 * largest <= _LARGE_BATCH
    below = (largest // 4, largest // 2) if largest <= 4 * _LARGE_BATCH else (256, _LARGE_BATCH)
    drafted = (*below, largest, *[2 * largest] * larger)
    given = {**part.bounds, **known}.get(MAX_BATCH_SIZE, {})
    sizes = [size for size in given.get("choice", drafted) if size > 1]
    largest_preferred = max(config.sequence_batching.oldest.preferred_batch_size, default=0)
    taken = [size for size in sizes if size >= max(part.least_batch, largest_preferred)]
    rows = f"No smaller size: a request has {part.rows} rows (batch_size)." * (part.rows > 1)
    rows = rows or f"No smaller size: preferred_batch_size has {largest_preferred}." * (
        largest_preferred > 1
    )
    if taken != sizes and (why := part.why_least or rows):
        yield Remark(why)
    if taken:
        yield DraftEntry(MAX_BATCH_SIZE, flow({"choice": taken}), f"{largest} in config.pbtxt")
    if batches_sequences(config):
        yield from sequence_space_lines(config, largest, slo)
        return
    if part.fills(max(taken, default=largest)):
        yield Remark(
            f"A request has {part.rows} rows and fills a batch: no delay and no preferred size"
        )
        yield Remark("changes anything. Send fewer rows, or raise max_batch_size, to search these.")
        return
    yield from _forming(part, expert, sizes, slo, alone=alone)


def _forming(
    part: DraftedModel, expert: Expert, sizes: Sequence[int], slo: Slo, *, alone: bool
) -> Iterator[DraftEntry | Remark]:
    """What puts requests together."""
    config = part.config
    if config.HasField("dynamic_batching"):
        yield Remark("Naming a field of dynamic_batching keeps it on. To search that too, add")
        yield off(DYNAMIC_BATCHING, "{choice: [off, on]}")
    elif expert.batches:
        by_itself = part.completes and turns_on_batching(config.backend, config)
        now = "the server turns it on by itself" if by_itself else "off in config.pbtxt"
        yield DraftEntry(DYNAMIC_BATCHING, "{choice: [off, on]}", now)
    if alone:
        yield Remark(
            "The config as it is now is always measured too; a run ends where it cannot be."
        )
    yield delays(DELAY, slo)
    if config.dynamic_batching.preferred_batch_size or (alone and expert.preferred):
        preferred = {"subsets": sizes, "at_most": 1, "or": "unset"}
        yield DraftEntry(PREFERRED, flow(preferred))
    if alone and expert.batches:
        yield from queue_lines(slo, has_policy=bool(policy_of_queue(config)))


def _variants(versions: tuple[int, ...]) -> Iterator[DraftEntry | Remark]:
    """What makes several versions values of the search; nothing for a single one."""
    if len(versions) > 1:
        yield Remark(
            "Variants, such as half precision, may be a value: versions that are served, their"
        )
        yield Remark(
            "answers compared within confirm.tolerance, or of an output confirm.tolerances:"
        )
        yield off("version_policy.specific.versions", flow({"choice": [[n] for n in versions]}))
