"""Which entries of a config's parameters its backend reads, and which accelerators it knows.

The tables are from the backends' public sources of August 2026; what an older release lacks is in
them too. A backend that is not listed may read any key, as a Python model's own code does.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.modelconfig.backends import Mistake
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.mistakes import did_you_mean

READ = {
    "onnxruntime": (
        *("intra_op_thread_count", "inter_op_thread_count", "execution_mode"),
        *("enable_mem_arena", "enable_mem_pattern", "memory.enable_memory_arena_shrinkage"),
        *("session.use_device_allocator_for_initializers", "gpu_mem_limit"),
        *("arena_extend_strategy", "cudnn_conv_algo_search", "do_copy_in_default_stream"),
    ),
    "openvino": (
        *("NUM_STREAMS", "INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS", "PERFORMANCE_HINT"),
        *("HINT_BF16", "TARGET_DEVICE", "CPU_EXTENSION_PATH", "SKIP_OV_DYNAMIC_BATCHSIZE"),
        *("ENABLE_BATCH_PADDING", "RESHAPE_IO_LAYERS"),
    ),
    "tensorrt": (
        *("execution_context_allocation_strategy", "enable_multi_device", "multi_device_gpus"),
        "multi_device_per_rank_engines",
    ),
    "pytorch": (
        *("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT", "ENABLE_WEIGHT_SHARING"),
        *("DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE", "DISABLE_CUDNN"),
        *("ENABLE_CACHE_CLEANING", "CACHE_CLEANING_ENABLED", "ENABLE_TENSOR_FUSER"),
        *("ENABLE_JIT_PROFILING", "ENABLE_JIT_EXECUTOR", "NUM_THREADS", "NUM_INTEROP_THREADS"),
        *("TORCH_COMPILE_OPTIONAL_PARAMETERS", "EXECUTION_ENV_PATH"),
        "FORCE_CPU_ONLY_INPUT_TENSORS",
    ),
    "fil": (
        *("model_type", "is_classifier", "output_class", "predict_proba", "threshold"),
        *("xgboost_allow_unknown_field", "chunk_size", "layout", "transfer_threshold"),
        *("cpu_nthread", "use_experimental_optimizations"),
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
