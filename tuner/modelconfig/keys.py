"""Which entries of a config's parameters its backend reads, with which values; which accelerators.

The tables are from the backends' public sources of August 2026; what an older release lacks is in
them too. A backend that is not listed may read any key, as a Python model's own code does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.modelconfig.backends import Mistake
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.mistakes import did_you_mean


@dataclass(frozen=True)
class Values:
    """What a backend reads as the value of a parameter.

    Attributes:
        form: All of the text matches it.
        expected: The form in words.
        otherwise: What the backend does with other texts.
    """

    form: str
    expected: str
    otherwise: str


ANY = None
_REFUSED = "the backend refuses to load the model"
_BY_DIGITS = "the backend reads the digits it begins with, and refuses the model without any"
_WHOLE = Values(r"[+-]?\d+", "a whole number", _BY_DIGITS)
_NUMBER = Values(r"\d+", "a whole number", _REFUSED)
_SWITCH = Values(r"[01]", "0 or 1", _BY_DIGITS)
_YES = Values(r"(?i:yes|no)", "yes or no", "the backend takes it for no")
_TRUE = Values(r"(?i:true|false)|[01]", "true or false", "the backend ignores it or refuses it")
_ARENAS = Values(
    r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*",
    "devices such as cpu:0;gpu:0",
    "the model loads, and then every request fails",
)

#: By backend, the parameters that it reads, and the values that they may have.
READ: Mapping[str, Mapping[str, Values | None]] = {
    "onnxruntime": {
        **dict.fromkeys(("intra_op_thread_count", "inter_op_thread_count"), _WHOLE),
        "execution_mode": _SWITCH,
        **dict.fromkeys(("enable_mem_arena", "enable_mem_pattern"), _WHOLE),
        "memory.enable_memory_arena_shrinkage": _ARENAS,
        "session.use_device_allocator_for_initializers": ANY,
        **dict.fromkeys(("gpu_mem_limit", "arena_extend_strategy"), ANY),
        **dict.fromkeys(("cudnn_conv_algo_search", "do_copy_in_default_stream"), ANY),
    },
    "openvino": {
        "NUM_STREAMS": Values(r"(?i:auto|numa)|\d+", "AUTO, NUMA or a whole number", _REFUSED),
        **dict.fromkeys(("INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS"), _NUMBER),
        "PERFORMANCE_HINT": Values(
            r"(?i:latency|throughput|cumulative_throughput)",
            "LATENCY, THROUGHPUT or CUMULATIVE_THROUGHPUT",
            _REFUSED,
        ),
        "HINT_BF16": Values(r"(?i:yes)", "YES", _REFUSED),
        **dict.fromkeys(("TARGET_DEVICE", "CPU_EXTENSION_PATH"), ANY),
        **dict.fromkeys(("SKIP_OV_DYNAMIC_BATCHSIZE", "ENABLE_BATCH_PADDING"), _YES),
        "RESHAPE_IO_LAYERS": _YES,
    },
    "tensorrt": dict.fromkeys(
        (
            *("execution_context_allocation_strategy", "enable_multi_device", "multi_device_gpus"),
            "multi_device_per_rank_engines",
        ),
        ANY,
    ),
    "pytorch": {
        **dict.fromkeys(("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"), _WHOLE),
        **dict.fromkeys(
            (
                *("ENABLE_WEIGHT_SHARING", "DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE"),
                *("DISABLE_CUDNN", "ENABLE_CACHE_CLEANING", "CACHE_CLEANING_ENABLED"),
                *("ENABLE_TENSOR_FUSER", "ENABLE_JIT_PROFILING", "ENABLE_JIT_EXECUTOR"),
            ),
            _TRUE,
        ),
        **dict.fromkeys(("NUM_THREADS", "NUM_INTEROP_THREADS"), ANY),
        **dict.fromkeys(("TORCH_COMPILE_OPTIONAL_PARAMETERS", "EXECUTION_ENV_PATH"), ANY),
        "FORCE_CPU_ONLY_INPUT_TENSORS": ANY,
    },
    "fil": dict.fromkeys(
        (
            *("model_type", "is_classifier", "output_class", "predict_proba", "threshold"),
            *("xgboost_allow_unknown_field", "chunk_size", "layout", "transfer_threshold"),
            *("cpu_nthread", "use_experimental_optimizations"),
        ),
        ANY,
    ),
}
READ_BY_CORE = ("TRITON_BATCH_STRATEGY_PATH",)
DROPPED = {
    ("fil", "threads_per_tree"): ("25.09", "chunk_size"),
    ("fil", "algo"): ("25.09", "layout"),
    ("fil", "storage_type"): ("25.09", ""),
    ("fil", "blocks_per_sm"): ("25.09", ""),
}
ANY_KEY = None
ACCELERATORS: dict[str, dict[str, dict[str, tuple[str, ...] | None]]] = {
    "onnxruntime": {
        "cpu_execution_accelerator": {"openvino": ()},
        "gpu_execution_accelerator": {
            "cuda": ANY_KEY,
            "tensorrt": (
                *("precision_mode", "max_workspace_size_bytes", "trt_max_partition_iterations"),
                *("trt_min_subgraph_size", "int8_calibration_table_name"),
                *("int8_use_native_calibration_table", "trt_dla_enable", "trt_dla_core"),
                *("trt_engine_cache_enable", "trt_engine_cache_path", "trt_engine_cache_prefix"),
                *("trt_dump_subgraphs", "trt_force_sequential_engine_build"),
                *("trt_context_memory_sharing_enable", "trt_layer_norm_fp32_fallback"),
                *("trt_timing_cache_enable", "trt_timing_cache_path", "trt_force_timing_cache"),
                *("trt_detailed_build_log", "trt_build_heuristics_enable", "trt_sparsity_enable"),
                *("trt_builder_optimization_level", "trt_auxiliary_streams", "trt_tactic_sources"),
                *("trt_extra_plugin_lib_paths", "trt_profile_min_shapes"),
                *("trt_profile_max_shapes", "trt_profile_opt_shapes", "trt_cuda_graph_enable"),
                *("trt_dump_ep_context_model", "trt_ep_context_file_path"),
                "trt_ep_context_embed_mode",
            ),
        },
    },
}


def misread_values(config: ModelConfig, backend: str) -> Iterator[Mistake]:
    """Values that a backend does not take as they are written.

    Triton loads some of these configs. A library of one's own in ``runtime`` may read what it
    likes; an empty text is no value.
    """
    known = {} if config.runtime else READ.get(backend, {})
    for key, values in known.items():
        text = config.parameters[key].string_value if key in config.parameters else ""
        if values is not ANY and text and not re.fullmatch(values.form, text):
            expected = f"{key} is {text!r}, and {values.expected} is expected: {values.otherwise}"
            yield f"parameters[{key}]", expected, ""


def unread_keys(config: ModelConfig, backend: str) -> Iterator[Mistake]:
    """Parameters that do nothing, and accelerators, or parameters of one, that are unknown.

    A library of one's own in ``runtime`` may read what it likes.
    """
    known = READ.get(backend)
    if known is None or config.runtime:
        return
    for key in sorted(config.parameters):
        release, instead = DROPPED.get((backend, key), ("", ""))
        if release:
            text = f"{backend} reads no parameter {key!r} since release {release}"
            yield f"parameters[{key}]", text, f"{instead} took its place" if instead else ""
        elif key not in (*known, *READ_BY_CORE):
            text = f"{backend} reads no parameter {key!r}"
            yield f"parameters[{key}]", text, did_you_mean(key, known, most=1)
    for kind, names in ACCELERATORS.get(backend, {}).items():
        listed = getattr(config.optimization.execution_accelerators, kind)
        for index, accelerator in enumerate(listed):
            path = f"optimization.execution_accelerators.{kind}[{index}]"
            if accelerator.name not in names:
                text = f"{backend} knows no {kind} {accelerator.name!r}"
                yield f"{path}.name", text, did_you_mean(accelerator.name, names, most=1)
                continue
            keys = names[accelerator.name]
            for key in sorted(accelerator.parameters):
                if keys is not ANY_KEY and key not in keys:
                    text = f"the accelerator {accelerator.name} reads no parameter {key!r}"
                    yield f"{path}.parameters[{key}]", text, did_you_mean(key, keys, most=1)
