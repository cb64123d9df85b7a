"""Which backend a config names, and what must fit it.

From AutoCompleteBackendFields and ValidateModelConfig in core's model_config_utils.cc, and from the
sources of the backends.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from tuner.modelconfig.schema import ModelConfig
from tuner.spec.mistakes import did_you_mean

#: path, message, hint
Mistake = tuple[str, str, str]

PLATFORM = "ensemble"
PLATFORMS = {
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch",
}
#: Files by whose names core finds the backend, in the order in which it looks for them.
FILES = {
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.plan": "tensorrt",
    "model.onnx": "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.pt2": "pytorch",
    "model.py": "python",
}
#: Backends that complete no config by themselves (a Python model's own code may). Others read the
#: model's file, or may do so: DALI and FasterTransformer take tensors without types and dims.
_NOT_COMPLETED = ("python", "pytorch")
#: Since release 25.09, in names of Python models and their instances (IsValidIdentifier, source).
_NOT_IN_NAMES = ";|&$`<>()[]{}\\\"'*?~#!"
_VALUES = {
    ("tensorrt", "execution_context_allocation_strategy"): ("STATIC", "ON_PROFILE_CHANGE"),
    ("python", "FORCE_CPU_ONLY_INPUT_TENSORS"): ("yes", "no"),
}


def is_ensemble(config: ModelConfig) -> bool:
    return bool(config.HasField("ensemble_scheduling") or config.platform == PLATFORM)


def backend_of(config: ModelConfig) -> str:
    """By what the config says; empty where the model's files decide."""
    by_file = FILES.get(config.default_model_filename, "")
    return str(config.backend or PLATFORMS.get(config.platform, by_file))


def refused_in_names(name: str) -> list[str]:
    """The characters for which the Python backend of a newer release refuses a name."""
    return sorted({*name} & {*_NOT_IN_NAMES})


def is_completed(config: ModelConfig, backend: str = "") -> bool:
    """The backend, known or unknown, may fill in what the config leaves out."""
    return not is_ensemble(config) and (backend or backend_of(config)) not in _NOT_COMPLETED


def is_tensorrt(config: ModelConfig) -> bool:
    """Whether the platform or backend is TensorRT's, or neither is named."""
    return config.platform == "tensorrt_plan" or backend_of(config) in ("", "tensorrt")


def may_set_batch(config: ModelConfig) -> bool:
    """The backend may set max_batch_size, and so put a batch in front of the dims as written.

    ONNX Runtime's does where inputs or outputs are left out (AutoCompleteMaxBatch).
    """
    left_out = not config.input or not config.output
    return left_out and not config.max_batch_size and is_completed(config)


def mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Why Triton refuses the platform, the runtime or a parameter of the backend (source)."""
    platform, backend = config.platform, backend_of(config)
    strict = not backend or backend in PLATFORMS.values()  # others may call theirs what they like
    expected = PLATFORMS.get(platform)
    if strict and expected and expected != backend:
        text = f"{platform!r} is of backend {expected}, and backend says {backend}"
        yield "platform", text, f'leave platform out, or write backend: "{expected}"'
    elif strict and platform not in ("", PLATFORM) and not expected:
        text = f"Triton knows no platform {platform!r}" + f" of backend {backend}" * bool(backend)
        hint = did_you_mean(platform, PLATFORMS) or "leave it out, and write backend: ..."
        yield "platform", text, hint
    if posixpath.normpath(config.runtime).startswith("../"):
        text = f"runtime {config.runtime!r} leads out of the backend's directory"
        yield "runtime", text, "name a library in it, such as libtriton_NAME.so"
    for (whose, name), values in _VALUES.items():
        if whose == backend and name in config.parameters:
            value = config.parameters[name].string_value
            if value not in values:
                text = f"{name} is {value!r}, and must be {' or '.join(values)}"
                yield f"parameters[{name}]", text, ""
