"""Which entries of a config's parameters its backend reads, with which values; which accelerators.

What is known of each backend is a row of `tuner.modelconfig.known_backends`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.modelconfig.backends import Mistake
from tuner.modelconfig.known_backends import ANY, BACKENDS
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.mistakes import did_you_mean

#: Parameters that core reads, whatever the backend.
READ_BY_CORE = ("TRITON_BATCH_STRATEGY_PATH",)


def misread_values(config: ModelConfig, backend: str) -> Iterator[Mistake]:
    """Values that a backend does not take as they are written, or refuses the model for."""
    return (mistake for _, mistake in values_amiss(config, backend))


def values_amiss(config: ModelConfig, backend: str) -> Iterator[tuple[bool, Mistake]]:
    """The same, each with whether the backend refuses the model for it.

    A library of one's own in ``runtime`` may read what it likes; an empty text is no value.
    """
    row = None if config.runtime else BACKENDS.get(backend)
    for key, values in ((row and row.keys) or {}).items():
        if values is ANY or key not in config.parameters:
            continue
        amiss, refused = values.amiss(config.parameters[key].string_value)
        if amiss:
            yield refused, (f"parameters[{key}]", f"{key} is {amiss}", "")


def unread_keys(config: ModelConfig, backend: str) -> Iterator[Mistake]:
    """Parameters that do nothing, and accelerators, or parameters of one, that are unknown.

    A library of one's own in ``runtime`` may read what it likes.
    """
    row = BACKENDS.get(backend)
    if row is None or row.keys is None or config.runtime:
        return
    for key in sorted(config.parameters):
        if gone := row.gone.get(key):
            text = f"{backend} reads no parameter {key!r} since {gone.since}"
            instead = f"{gone.instead} took its place" if gone.instead else ""
            yield f"parameters[{key}]", text, instead
        elif key not in (*row.keys, *READ_BY_CORE):
            text = f"{backend} reads no parameter {key!r}"
            yield f"parameters[{key}]", text, did_you_mean(key, row.keys, most=1)
    yield from _accelerators(config, backend)


def _accelerators(config: ModelConfig, backend: str) -> Iterator[Mistake]:
    row = BACKENDS[backend]
    kinds = {
        "cpu_execution_accelerator": row.cpu_accelerators,
        "gpu_execution_accelerator": row.gpu_accelerators,
    }
    reads_none = not any(kinds.values())
    for kind, names in kinds.items():
        for index, accelerator in enumerate(
            getattr(config.optimization.execution_accelerators, kind)
        ):
            path = f"optimization.execution_accelerators.{kind}[{index}]"
            if reads_none:
                yield f"{path}.name", f"{backend} reads no accelerators", _WITHOUT.get(backend, "")
                continue
            if accelerator.name not in names:
                text = f"{backend} knows no {kind} {accelerator.name!r}"
                yield f"{path}.name", text, did_you_mean(accelerator.name, names, most=1)
                continue
            keys = names[accelerator.name]
            for key in sorted(accelerator.parameters):
                if keys is not None and key not in keys:
                    text = f"the accelerator {accelerator.name} reads no parameter {key!r}"
                    yield f"{path}.parameters[{key}]", text, did_you_mean(key, keys, most=1)


#: What to do without accelerators.
_WITHOUT = {"tensorrt": "leave it out: the engine is built already"}


def ignored_threads(config: ModelConfig, backend: str) -> Iterator[Mistake]:
    """Threads of ONNX Runtime's own, which an accelerator that takes the graph does not use.

    onnxruntime_backend#260.
    """
    accelerators = config.optimization.execution_accelerators.cpu_execution_accelerator
    if backend == "onnxruntime" and any(a.name == "openvino" for a in accelerators):
        for key in ("intra_op_thread_count", "inter_op_thread_count"):
            if key in config.parameters:
                text = f"the accelerator openvino ignores {key}"
                yield f"parameters[{key}]", text, "leave one of the two out"
