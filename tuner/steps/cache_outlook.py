"""What hit rate to expect of each cache size of a spec, before anything is started."""

from __future__ import annotations

from typing import Any

from tuner.load.traffic.inputs import DEFAULT_UNIQUE
from tuner.load.traffic.lru_hit_rate import ENTRY_OVERHEAD_BYTES, lru_hit_rate
from tuner.load.traffic.repeats import popularity
from tuner.load.traffic.tensors import TensorShape, content_bytes
from tuner.space.cache import listed_sizes
from tuner.space.words import bytes_text
from tuner.spec.workload import RandomInputs, UniformRepeat, ZipfRepeat
from tuner.steps.job import Job


def cache_notes(job: Job) -> list[str]:
    """A sentence for each size; none where popularity or the size of an answer is not known."""
    inputs, answer = job.spec.workload.inputs, _answer_bytes(job.config)
    repeat = inputs.repeat
    known = isinstance(inputs, RandomInputs) and isinstance(repeat, (UniformRepeat, ZipfRepeat))
    if not known or answer is None:
        return []
    exponent = repeat.exponent if isinstance(repeat, ZipfRepeat) else 0.0
    unique = inputs.unique if isinstance(inputs, RandomInputs) else None
    probabilities = popularity(unique or DEFAULT_UNIQUE, exponent)
    return [
        f"a cache of {bytes_text(size)} has room for about {size // answer} answers and should "
        f"give {lru_hit_rate(probabilities, size / answer):.0%} of them"
        for size in sorted(listed_sizes(job.spec))
    ]


def _answer_bytes(config: Any) -> int | None:
    """What one takes in Triton's local cache; None for strings and variable dimensions."""
    total = 0
    for output in config.output:
        kinds = output.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        datatype = kinds[output.data_type].name.removeprefix("TYPE_")
        if datatype in ("STRING", "INVALID") or min(output.dims, default=1) < 1:
            return None
        shape = TensorShape(output.name, datatype, tuple(output.dims))
        total += content_bytes(shape, 0) + ENTRY_OVERHEAD_BYTES
    return total or None
