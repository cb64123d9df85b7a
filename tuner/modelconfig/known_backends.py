"""What is known of Triton's backends: one row for each, with its source.

Rows are of the backends' public sources and documents of 2026; where a release changed something,
the row names the release. A backend without a row may read any key and any file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


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
_INTEGER = Values(r"[+-]?\d+", "a whole number", _BY_DIGITS)
_NUMBER = Values(r"\d+", "a whole number", _REFUSED)
_SWITCH = Values(r"[01]", "0 or 1", _BY_DIGITS)
_YES = Values(r"(?i:yes|no)", "yes or no", "the backend takes it for no")
_FRACTION = Values(r"0|1|0?\.\d+|[01]\.0*|0\.\d+", "a number from 0 to 1", _REFUSED)
_TRUE = Values(r"(?i:true|false)|[01]", "true or false", "the backend ignores it or refuses it")
_ARENAS = Values(
    r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*",
    "devices such as cpu:0;gpu:0",
    "the model loads, and then every request fails",
)


@dataclass(frozen=True)
class Gone:
    """A parameter that is not read any more.

    Attributes:
        since: Triton's release, or the runtime's version.
        instead: The parameter that took its place; empty: none did.
    """

    since: str
    instead: str = ""


#: Keys of an accelerator's parameters; None: any.
Accelerators = Mapping[str, tuple[str, ...] | None]


@dataclass(frozen=True)
class Backend:
    """What is known of one backend.

    Attributes:
        source: Where the row is from.
        keys: Its parameters, with their values; None: any key, as a model's own code may read.
        gone: Parameters that it read once.
        cpu_accelerators, gpu_accelerators: Those that it knows, with their parameters.
        files: The names of a model's file, any one of them, where the config names none.
        beside: By ending of a model's file, that of another file which must be beside it.
        unreadable: An ending of files that it is often given, with what to do.
        images: Ends of the names of NVIDIA's images that have it, after the release.
    """

    source: str
    keys: Mapping[str, Values | None] | None = None
    gone: Mapping[str, Gone] = field(default_factory=dict)
    cpu_accelerators: Accelerators = field(default_factory=dict)
    gpu_accelerators: Accelerators = field(default_factory=dict)
    files: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, str] = ("", "")
    images: tuple[str, ...] = ("-py3",)


BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {
        "onnxruntime": Backend(
            source="onnxruntime_backend: README, src/onnxruntime.cc and #260",
            keys={
                **dict.fromkeys(("intra_op_thread_count", "inter_op_thread_count"), _INTEGER),
                "execution_mode": _SWITCH,
                **dict.fromkeys(("enable_mem_arena", "enable_mem_pattern"), _INTEGER),
                "memory.enable_memory_arena_shrinkage": _ARENAS,
                "session.use_device_allocator_for_initializers": ANY,
                **dict.fromkeys(("gpu_mem_limit", "arena_extend_strategy"), ANY),
                **dict.fromkeys(("cudnn_conv_algo_search", "do_copy_in_default_stream"), ANY),
            },
            cpu_accelerators={"openvino": ()},
            gpu_accelerators={
                "cuda": None,
                "tensorrt": (
                    *("precision_mode", "max_workspace_size_bytes", "trt_max_partition_iterations"),
                    *("trt_min_subgraph_size", "int8_calibration_table_name"),
                    *("int8_use_native_calibration_table", "trt_dla_enable", "trt_dla_core"),
                    *(
                        "trt_engine_cache_enable",
                        "trt_engine_cache_path",
                        "trt_engine_cache_prefix",
                    ),
                    *("trt_dump_subgraphs", "trt_force_sequential_engine_build"),
                    *("trt_context_memory_sharing_enable", "trt_layer_norm_fp32_fallback"),
                    *("trt_timing_cache_enable", "trt_timing_cache_path", "trt_force_timing_cache"),
                    *(
                        "trt_detailed_build_log",
                        "trt_build_heuristics_enable",
                        "trt_sparsity_enable",
                    ),
                    *(
                        "trt_builder_optimization_level",
                        "trt_auxiliary_streams",
                        "trt_tactic_sources",
                    ),
                    *("trt_extra_plugin_lib_paths", "trt_profile_min_shapes"),
                    *("trt_profile_max_shapes", "trt_profile_opt_shapes", "trt_cuda_graph_enable"),
                    *("trt_dump_ep_context_model", "trt_ep_context_file_path"),
                    "trt_ep_context_embed_mode",
                ),
            },
            files=("model.onnx",),
        ),
        "openvino": Backend(
            source="openvino_backend: README, src/openvino.cc; OpenVINO's guide to 2022.1",
            keys={
                "NUM_STREAMS": Values(
                    r"(?i:auto|numa)|\d+", "AUTO, NUMA or a whole number", _REFUSED
                ),
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
            gone={
                "CPU_THREADS_NUM": Gone("OpenVINO 2022.1", "INFERENCE_NUM_THREADS"),
                "CPU_THROUGHPUT_STREAMS": Gone("OpenVINO 2022.1", "NUM_STREAMS"),
            },
            files=("model.xml",),
            beside={".xml": ".bin"},
        ),
        "tensorrt": Backend(
            source="tensorrt_backend: README and src/model_state.cc",
            keys=dict.fromkeys(
                (
                    *(
                        "execution_context_allocation_strategy",
                        "enable_multi_device",
                        "multi_device_gpus",
                    ),
                    "multi_device_per_rank_engines",
                ),
                ANY,
            ),
            files=("model.plan",),
            unreadable=(".engine", "rename it to model.plan, or name it in default_model_filename"),
        ),
        "pytorch": Backend(
            source="pytorch_backend: README and src/libtorch.cc",
            keys={
                **dict.fromkeys(("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"), _INTEGER),
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
            files=("model.pt", "model.pt2", "model.py"),
        ),
        "fil": Backend(
            source="fil_backend: README and docs/model_config.md; release notes of 25.09",
            keys=dict.fromkeys(
                (
                    *("model_type", "is_classifier", "output_class", "predict_proba", "threshold"),
                    *("xgboost_allow_unknown_field", "chunk_size", "layout", "transfer_threshold"),
                    *("cpu_nthread", "use_experimental_optimizations"),
                ),
                ANY,
            ),
            gone={
                "threads_per_tree": Gone("release 25.09", "chunk_size"),
                "algo": Gone("release 25.09", "layout"),
                "storage_type": Gone("release 25.09"),
                "blocks_per_sm": Gone("release 25.09"),
            },
            files=("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
            unreadable=(
                ".pkl",
                "FIL reads no pickles: convert the model to Treelite's checkpoint.tl",
            ),
        ),
        "dali": Backend(
            source="dali_backend: README; dali.py in place of model.dali since release 22.07",
            keys={"num_threads": _INTEGER},
            files=("model.dali", "dali.py"),
        ),
        "python": Backend(
            source="python_backend: README (parameters are the model's own code's)",
            keys=None,
            files=("model.py",),
            images=("-py3", "-vllm-python-py3", "-trtllm-python-py3"),
        ),
        "vllm": Backend(
            source="vllm_backend: src/model.py",
            keys={
                **dict.fromkeys(("REPORT_CUSTOM_METRICS", "ENABLE_VLLM_HEALTH_CHECK"), _TRUE),
                "GPU_DEVICE_IDS": Values(r"\s*\d+\s*(,\s*\d+\s*)*", "GPUs such as 0,1", _REFUSED),
                **dict.fromkeys(("FORCE_CPU_ONLY_INPUT_TENSORS", "EXECUTION_ENV_PATH"), ANY),
            },
            files=("model.json",),
            images=("-vllm-python-py3",),
        ),
        "tensorrtllm": Backend(
            source="tensorrtllm_backend: docs/model_config.md; the engine lies elsewhere",
            keys=None,
            images=("-trtllm-python-py3",),
        ),
        **{
            name: Backend(source="core's example backends")
            for name in ("identity", "repeat", "square")
        },
    }
)
