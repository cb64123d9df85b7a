"""What is known of Triton's backends: one row for each, with its source.

Rows are of the backends' public sources and documents of 2026; where a release changed something,
the row names the release. A backend without a row may read any key and any file.
"""

from __future__ import annotations

import re
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

    def amiss(self, text: str) -> tuple[str, bool]:
        """What becomes of a text, empty where it is right, and whether the model is refused."""
        if not text or re.fullmatch(self.form, text):
            return "", False
        unread = self.otherwise == _BY_DIGITS and not re.match(r"\s*[+-]?\d", text)
        does = _REFUSED if unread else self.otherwise
        return f"{text!r}, and {self.expected} is expected: {does}", does == _REFUSED


ANY = None
_REFUSED = "the backend refuses to load the model"
_ON_GPUS = "the backend refuses to load the model on a GPU"
_BY_DIGITS = "the backend reads the digits it begins with"
_INTEGER = Values(r"[+-]?\d+", "a whole number", _BY_DIGITS)
_NUMBER = Values(r"\d+", "a whole number", _REFUSED)
_SWITCH = Values(r"[01]", "0 or 1", _BY_DIGITS)
_YES = Values(r"(?i:yes|no)", "yes or no", "the backend takes it for no")
_COUNT = Values(r"0*[1-9]\d*", "a whole number above 0", _REFUSED)
#: As ParseBoolValue of backend/src/backend_common.cc reads it.
_BOOLEAN = Values(r"(?i:true|false|on|off)|[01]", "true or false", _REFUSED)
_TRUE_ONLY = Values(r"(?i:true|false)", "true or false", "the backend takes it for false")
_TRUE_OR_1 = Values(r"(?i:true|false)|[01]", "true or false", "the backend takes it for false")
_LOWER_CASE = Values(r"true|false", "true or false", _REFUSED)
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
        last_release: NVIDIA's last images with it; empty: today's have it.
        on_gpus: It has instances on GPUs.
        gpu_only: It refuses instances on the CPU.
        parts: A parameter that, where it is true, has a model's file lie in parts, and the ending
            of the first one.
        spans: A parameter that lists the GPUs which an instance takes together, and another one
            that must be true for that.
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
    last_release: str = ""
    on_gpus: bool = False
    gpu_only: bool = False
    parts: tuple[str, str] = ("", "")
    spans: tuple[str, str] = ("", "")


BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {
        "onnxruntime": Backend(
            source="onnxruntime_backend: README, ModelState in src/onnxruntime.cc, #260",
            keys={
                **dict.fromkeys(("intra_op_thread_count", "inter_op_thread_count"), _INTEGER),
                "execution_mode": _SWITCH,
                **dict.fromkeys(("enable_mem_arena", "enable_mem_pattern"), _BOOLEAN),
                "memory.enable_memory_arena_shrinkage": _ARENAS,
                "session.use_device_allocator_for_initializers": ANY,
                "cudnn_conv_algo_search": Values(r"[0-2]", "0, 1 or 2", _ON_GPUS),
                "arena_extend_strategy": Values(r"[01]", "0 or 1", _ON_GPUS),
                **dict.fromkeys(("gpu_mem_limit", "do_copy_in_default_stream"), ANY),
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
            on_gpus=True,
            files=("model.onnx",),
        ),
        "openvino": Backend(
            source="openvino_backend: README, ParseParameter in src/openvino.cc; OpenVINO's guide "
            "to 2022.1",
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
            source="tensorrt_backend: README, docs/multi_device.md, ParseParameters in "
            "src/model_state.cc",
            keys={
                "execution_context_allocation_strategy": ANY,  # `tuner.modelconfig.backends`
                "multi_device_gpus": ANY,
                **dict.fromkeys(
                    ("enable_multi_device", "multi_device_per_rank_engines"), _TRUE_OR_1
                ),
            },
            files=("model.plan",),
            unreadable=(".engine", "rename it to model.plan, or name it in default_model_filename"),
            on_gpus=True,
            gpu_only=True,
            parts=("multi_device_per_rank_engines", ".rank0"),
            spans=("multi_device_gpus", "enable_multi_device"),
        ),
        "pytorch": Backend(
            source="pytorch_backend: README, ParseParameters in src/pt/ and src/pt2/model_state.cc",
            keys={
                **dict.fromkeys(("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"), _INTEGER),
                **dict.fromkeys(
                    (
                        *("ENABLE_WEIGHT_SHARING", "DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE"),
                        *("DISABLE_CUDNN", "ENABLE_CACHE_CLEANING", "CACHE_CLEANING_ENABLED"),
                        *("ENABLE_TENSOR_FUSER", "ENABLE_JIT_PROFILING", "ENABLE_JIT_EXECUTOR"),
                    ),
                    _BOOLEAN,
                ),
                **dict.fromkeys(("NUM_THREADS", "NUM_INTEROP_THREADS"), ANY),
                **dict.fromkeys(("TORCH_COMPILE_OPTIONAL_PARAMETERS", "EXECUTION_ENV_PATH"), ANY),
                "FORCE_CPU_ONLY_INPUT_TENSORS": ANY,
            },
            on_gpus=True,
            files=("model.pt", "model.pt2", "model.py"),
            images=("-py3", "-pyt-python-py3"),
        ),
        "tensorflow": Backend(
            source="tensorflow_backend: README, ParseParameters in src/tensorflow.cc; server#8068",
            keys={
                **dict.fromkeys(("TF_NUM_INTRA_THREADS", "TF_NUM_INTER_THREADS"), _NUMBER),
                "TF_USE_PER_SESSION_THREADS": _BOOLEAN,
                **dict.fromkeys(("TF_GRAPH_TAG", "TF_SIGNATURE_DEF", "TF_INIT_OPS_FILE"), ANY),
                "MAX_SESSION_SHARE_COUNT": _COUNT,
            },
            gpu_accelerators={
                "tensorrt": (
                    *("precision_mode", "minimum_segment_size"),
                    *("max_workspace_size_bytes", "max_cached_engines"),
                ),
                **dict.fromkeys(("auto_mixed_precision", "gpu_io"), ()),
            },
            on_gpus=True,
            files=("model.savedmodel", "model.graphdef"),
            images=("-py3", "-tf2-python-py3"),
            last_release="25.02",
        ),
        "fil": Backend(
            source="fil_backend: docs/model_config.md, src/shared_state.h, nvforest_config.h and "
            "serialization.h; get_config_param of rapids-triton",
            keys={
                "model_type": Values(
                    "xgboost|xgboost_json|xgboost_ubj|lightgbm|treelite_checkpoint",
                    "xgboost, xgboost_json, xgboost_ubj, lightgbm or treelite_checkpoint",
                    _REFUSED,
                ),
                **dict.fromkeys(
                    (
                        *("is_classifier", "predict_proba", "xgboost_allow_unknown_field"),
                        "use_experimental_optimizations",
                    ),
                    _LOWER_CASE,
                ),
                "chunk_size": Values(
                    "1|2|4|8|16|32", "a power of two up to 32", "its documentation allows no other"
                ),
                "layout": Values(
                    "depth_first|breadth_first|layered|layered_children_together",
                    "depth_first, breadth_first or layered",
                    _ON_GPUS,
                ),
                **dict.fromkeys(("cpu_nthread", "transfer_threshold"), ANY),
                **dict.fromkeys(("output_class", "threshold"), ANY),
            },
            gone={
                "threads_per_tree": Gone("release 25.09", "chunk_size"),
                "algo": Gone("release 25.09", "layout"),
                "storage_type": Gone("release 25.09"),
                "blocks_per_sm": Gone("release 25.09"),
            },
            on_gpus=True,
            files=("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
            unreadable=(
                ".pkl",
                "FIL reads no pickles: convert the model to Treelite's checkpoint.tl",
            ),
        ),
        "dali": Backend(
            source="dali_backend: docs/config.md, src/parameters.h; dali.py for model.dali since "
            "22.07",
            keys={"num_threads": _INTEGER, "split_along_outer_axis": ANY},
            on_gpus=True,
            files=("model.dali", "dali.py"),
        ),
        "python": Backend(
            source="python_backend: README (parameters are the model's own code's)",
            keys=None,
            files=("model.py",),
            spans=("gpu_device_ids", ""),  # TensorRT-LLM's own Python runtime
            images=(
                *("-py3", "-vllm-python-py3", "-trtllm-python-py3"),
                *("-pyt-python-py3", "-tf2-python-py3"),
            ),
        ),
        "vllm": Backend(
            source="vllm_backend: src/model.py",
            keys={
                **dict.fromkeys(("REPORT_CUSTOM_METRICS", "ENABLE_VLLM_HEALTH_CHECK"), _TRUE_ONLY),
                "GPU_DEVICE_IDS": Values(r"\s*\d+\s*(,\s*\d+\s*)*", "GPUs such as 0,1", _REFUSED),
                **dict.fromkeys(("FORCE_CPU_ONLY_INPUT_TENSORS", "EXECUTION_ENV_PATH"), ANY),
            },
            files=("model.json",),
            on_gpus=True,
            spans=("GPU_DEVICE_IDS", ""),
            images=("-vllm-python-py3",),
        ),
        "tensorrtllm": Backend(
            source="tensorrtllm_backend: docs/model_config.md; the engine lies elsewhere",
            keys=None,
            on_gpus=True,
            spans=("gpu_device_ids", ""),
            images=("-trtllm-python-py3",),
        ),
        **{
            name: Backend(source="core's example backends")
            for name in ("identity", "repeat", "square")
        },
    }
)
