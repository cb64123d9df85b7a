"""Names of Model Analyzer's options (1.58.0), and why some of them have no place in a spec."""

from __future__ import annotations

from collections.abc import Mapping

_OF_A_MODEL = """
    constraints cpu_only genai_perf_flags model_config_parameters objectives parameters
    perf_analyzer_flags triton_docker_args triton_server_environment triton_server_flags weighting
"""
#: Of a model, besides the `parameters`.
MODEL_OPTIONS = frozenset(_OF_A_MODEL.split())
PARAMETERS = ("batch_sizes", "concurrency", "request_rate")

_OWN_FILES = """
    config_file export_path filename_model_gpu filename_model_inference filename_server_only
    gpu_output_fields inference_output_fields num_configs_per_model num_top_model_configs
    output_formats perf_output perf_output_path plots report_model_configs server_output_fields
    skip_detailed_reports skip_summary_reports
"""
_OWN_METERS = """
    always_report_gpu_metrics client_max_retries collect_cpu_metrics dcgm_disable duration_seconds
    monitoring_interval perf_analyzer_cpu_util
"""
_OWN_SEARCH = """
    early_exit_enable max_percentage_of_search_space min_percentage_of_search_space
    optuna_min_trials run_config_search_max_binary_search_steps
"""
_COMPOSING = "bls_composing_models cpu_only_composing_models ensemble_composing_models"
_WINDOWS = "tune measures fixed windows, as long as the percentile of the SLO needs"
_METERS = "Model Analyzer's own measuring; tune watches the machine by itself"
_SEVERAL = "name the other models under models, and the requests to them under streams"
_LOADS = "tune searches the highest load of every config"
_START = "the search of the highest load finds its start"

#: Options without a place in a spec, and why.
REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        _OWN_FILES.split(), "Model Analyzer's own files and reports; those of tune are in results/"
    ),
    **dict.fromkeys(_OWN_METERS.split(), _METERS),
    **dict.fromkeys(_OWN_SEARCH.split(), "belongs to Model Analyzer's own search"),
    **dict.fromkeys(
        _COMPOSING.split(), "the draft has the models of the steps, and those that the code names"
    ),
    "checkpoint_directory": "a run of tune can be resumed as it is: tune run --resume",
    "concurrency_sweep_disable": _LOADS,
    "cpu_only": "instances stay on the kind of device that config.pbtxt says",
    "genai_perf_flags": "language models batch inside their engine; tune is not for them",
    "optuna_early_exit_threshold": "write search.patience: trials without a better one",
    "output_model_repository_path": "only a proven winner is written, into the repository itself",
    "override_output_model_repository": "only a proven winner is written, with a backup",
    "perf_analyzer_max_auto_adjusts": _WINDOWS,
    "perf_analyzer_timeout": _WINDOWS,
    "reload_model_disable": "every config is loaded into the server and read back",
    "run_config_profile_models_concurrently_enable": _SEVERAL,
    "run_config_search_disable": "a spec always searches; take fields out of its space",
    "run_config_search_min_concurrency": _START,
    "run_config_search_min_request_rate": _START,
    "triton_docker_args": "write what you need of it as server.mounts, args or environment",
    "triton_docker_labels": "tune labels its containers itself",
    "triton_install_path": "the in-process server of c_api is not measured, a real one is",
    "triton_output_path": "the server's log is in the run's logs/",
    "use_concurrency_formula": _LOADS,
    "weighting": _SEVERAL,
}

#: Flags of perf_analyzer without a place in a spec, and why; others get a general reason.
FLAG_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("async", "max-threads", "sync", "verbose-csv"), "tune chooses it"),
    "collect-metrics": _METERS,
    "latency-threshold": "write it as an SLO",
    "max-trials": _WINDOWS,
    "measurement-mode": _WINDOWS,
    "measurement-request-count": _WINDOWS,
    "percentile": "an SLO names its percentile",
    "shared-memory": "inputs are sent with the requests, as your users send them",
    "stability-percentage": _WINDOWS,
    "streaming": "a request of tune has one answer",
    "string-data": "random strings are drawn; inputs: {kind: file} brings your own",
}

_CARRIED = """
    batch_sizes client_protocol concurrency constraints gpus latency_budget min_throughput
    model_repository model_type objectives optuna_max_trials perf_analyzer_flags perf_analyzer_path
    profile_models request_rate request_rate_search_enable run_config_search_max_concurrency
    run_config_search_max_instance_count run_config_search_max_model_batch_size
    run_config_search_max_request_rate run_config_search_min_instance_count
    run_config_search_min_model_batch_size run_config_search_mode triton_docker_image
    triton_docker_mounts triton_docker_shm_size triton_grpc_endpoint triton_http_endpoint
    triton_launch_mode triton_metrics_url triton_server_environment triton_server_flags
    triton_server_path
"""

#: Every option of a file.
OPTIONS = frozenset({*_CARRIED.split(), *REASONS} - {"cpu_only"})
