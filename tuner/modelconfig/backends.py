"""Which backend a config names, and what must fit it.

From AutoCompleteBackendFields and ValidateModelConfig in core's model_config_utils.cc, and from the
sources of the backends.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from tuner.modelconfig.known_backends import BACKENDS
from tuner.modelconfig.schema import ModelConfig, enum_name
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
_NOT_COMPLETED = ("python", "pytorch", "fil")
#: Since release 25.09, in names of Python models and their instances (IsValidIdentifier, source).
_NOT_IN_NAMES = ";|&$`<>()[]{}\\\"'*?~#!"
_BACKEND = "leave it out, and write backend: ..."
#: Platforms that earlier releases had.
_INSTEAD = {
    "caffe2_netdef": "Caffe2 is gone since release 20.11: export the model to ONNX, and write "
    'platform: "onnxruntime_onnx"',
    "custom": "custom backends of early releases load no more: port the library to Triton's "
    'backend API, libtriton_NAME.so, and write backend: "NAME" in place of platform',
}
_VALUES = {
    ("tensorrt", "execution_context_allocation_strategy"): ("STATIC", "ON_PROFILE_CHANGE"),
    ("python", "FORCE_CPU_ONLY_INPUT_TENSORS"): ("yes", "no"),
}


def is_gpu_only(config: ModelConfig) -> bool:
    """Whether the backend takes instances on GPUs only."""
    row = BACKENDS.get(backend_of(config))
    return row is not None and row.gpu_only


def model_file_names(config: ModelConfig, backend: str) -> tuple[str, ...]:
    """Names of a model's file in a version, any one of them; empty where none is known."""
    row = BACKENDS.get(backend)
    if row is None or not row.files:
        return ()
    names = (config.default_model_filename,) if config.default_model_filename else row.files
    key, ending = row.parts
    return tuple(name + ending for name in names) if is_on(config, key) else names


def is_on(config: ModelConfig, key: str) -> bool:
    """Whether a parameter is true, as TensorRT's backend reads it."""
    return key in config.parameters and config.parameters[key].string_value.lower() in ("true", "1")


def last_release(config: ModelConfig) -> Iterator[Mistake]:
    """A backend that NVIDIA's images of today lack."""
    row = BACKENDS.get(backend_of(config))
    if row is not None and row.last_release:
        text = f"NVIDIA's images have this backend up to release {row.last_release} only"
        yield "backend", text, "export the model to ONNX, or serve it with that release"


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
    """The backend, known or unknown, may fill in what the config leaves out.

    ONNX Runtime's completes nothing of a config that has an input and an output (AutoCompleteConfig
    in onnxruntime_backend), max_batch_size no more than a batcher; TensorFlow's nothing of a
    GraphDef, which does not list its tensors (AutoCompleteConfig in tensorflow_backend).
    """
    backend = backend or backend_of(config)
    if is_ensemble(config) or backend in _NOT_COMPLETED or _is_graphdef(config):
        return False
    inputs = config.input or config.batch_input
    return backend != "onnxruntime" or not (inputs and config.output)


def _is_graphdef(config: ModelConfig) -> bool:
    named = config.default_model_filename == "model.graphdef"
    return bool(config.platform == "tensorflow_graphdef" or (named and not config.platform))


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
    """Why Triton refuses platform, runtime, instances or a parameter of the backend (source)."""
    platform, backend = config.platform, backend_of(config)
    strict = not backend or backend in PLATFORMS.values()  # others may call theirs what they like
    expected = PLATFORMS.get(platform)
    if strict and expected and expected != backend:
        text = f"{platform!r} is of backend {expected}, and backend says {backend}"
        yield "platform", text, f'leave platform out, or write backend: "{expected}"'
    elif strict and platform not in ("", PLATFORM) and not expected:
        text = f"Triton knows no platform {platform!r}" + f" of backend {backend}" * bool(backend)
        hint = did_you_mean(platform, PLATFORMS) or _INSTEAD.get(platform, _BACKEND)
        yield "platform", text, hint
    kinds = [enum_name(group, "kind") for group in config.instance_group]
    for index, kind in enumerate(kinds if is_gpu_only(config) else ()):
        if kind == "KIND_CPU":  # KIND_MODEL: on several GPUs at once, in newer releases
            text = f"{backend} takes instances on GPUs only, and these are {kind}"
            yield f"instance_group[{index}].kind", text, "use KIND_GPU, or leave kind out"
    if posixpath.normpath(config.runtime).startswith("../"):
        text = f"runtime {config.runtime!r} leads out of the backend's directory"
        yield "runtime", text, "name a library in it, such as libtriton_NAME.so"
    for (whose, name), values in _VALUES.items():
        if whose == backend and name in config.parameters:
            value = config.parameters[name].string_value
            if value not in values:
                text = f"{name} is {value!r}, and must be {' or '.join(values)}"
                yield f"parameters[{name}]", text, ""
