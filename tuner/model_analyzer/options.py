"""Names of Model Analyzer's options (1.58.0), and why some of them have no place in a spec."""

from __future__ import annotations

from collections.abc import Mapping

#: Of a model, besides the `parameters`.
MODEL_OPTIONS = frozenset(
    {
        "constraints",
        "cpu_only",
        "genai_perf_flags",
        "model_config_parameters",
        "objectives",
        "parameters",
        "perf_analyzer_flags",
        "triton_docker_args",
        "triton_server_environment",
        "triton_server_flags",
        "weighting",
    }
)
PARAMETERS = ("batch_sizes", "concurrency", "request_rate")

_OWN_FILES = "Model Analyzer's own files and reports; those of tune are in results/"
_OWN_METERS = "Model Analyzer's own measuring; tune watches the machine by itself"
_OWN_SEARCH = "belongs to Model Analyzer's own search"
_WINDOWS = "tune measures fixed windows, as long as the percentile of the SLO needs"
_SEVERAL = (
    "tune optimises one model at a time; those that are to run beside it are named in server.args: "
    "--load-model=NAME"
)

#: Options without a place in a spec, and why.
REASONS: Mapping[str, str] = {
    "always_report_gpu_metrics": _OWN_METERS,
    "bls_composing_models": "tune one composing model at a time, slowest first",
    "checkpoint_directory": "a run of tune can be resumed as it is: tune run --resume",
    "client_max_retries": _OWN_METERS,
    "collect_cpu_metrics": _OWN_METERS,
    "concurrency_sweep_disable": "tune searches the highest load of every config",
    "config_file": _OWN_FILES,
    "cpu_only": "instances stay on the kind of device that config.pbtxt says",
    "cpu_only_composing_models": "tune one composing model at a time, slowest first",
    "dcgm_disable": _OWN_METERS,
    "duration_seconds": _OWN_METERS,
    "early_exit_enable": _OWN_SEARCH,
    "ensemble_composing_models": "tune one composing model at a time, slowest first",
    "export_path": _OWN_FILES,
    "filename_model_gpu": _OWN_FILES,
    "filename_model_inference": _OWN_FILES,
    "filename_server_only": _OWN_FILES,
    "genai_perf_flags": "language models batch inside their engine; tune is not for them",
    "gpu_output_fields": _OWN_FILES,
    "inference_output_fields": _OWN_FILES,
    "max_percentage_of_search_space": _OWN_SEARCH,
    "min_percentage_of_search_space": _OWN_SEARCH,
    "monitoring_interval": _OWN_METERS,
    "num_configs_per_model": _OWN_FILES,
    "num_top_model_configs": _OWN_FILES,
    "optuna_early_exit_threshold": "write search.patience: trials without a better one",
    "optuna_min_trials": _OWN_SEARCH,
    "output_model_repository_path": "only a proven winner is written, into the repository itself",
    "output_formats": _OWN_FILES,
    "override_output_model_repository": "only a proven winner is written, with a backup",
    "perf_analyzer_cpu_util": _OWN_METERS,
    "perf_analyzer_max_auto_adjusts": _WINDOWS,
    "perf_analyzer_timeout": _WINDOWS,
    "perf_output": _OWN_FILES,
    "perf_output_path": _OWN_FILES,
    "plots": _OWN_FILES,
    "reload_model_disable": "every config is loaded into the server and read back",
    "report_model_configs": _OWN_FILES,
    "run_config_profile_models_concurrently_enable": _SEVERAL,
    "run_config_search_disable": "a spec always searches; take fields out of its space",
    "run_config_search_max_binary_search_steps": _OWN_SEARCH,
    "run_config_search_min_concurrency": "the search of the highest load finds its start",
    "run_config_search_min_request_rate": "the search of the highest load finds its start",
    "server_output_fields": _OWN_FILES,
    "skip_detailed_reports": _OWN_FILES,
    "skip_summary_reports": _OWN_FILES,
    "triton_docker_args": "write what you need of it as server.mounts, args or environment",
    "triton_docker_labels": "tune labels its containers itself",
    "triton_install_path": "the in-process server of c_api is not measured, a real one is",
    "triton_output_path": "the server's log is in the run's logs/",
    "use_concurrency_formula": "tune searches the highest load of every config",
    "weighting": _SEVERAL,
}

#: Flags of perf_analyzer without a place in a spec, and why; others get a general reason.
FLAG_REASONS: Mapping[str, str] = {
    "async": "tune chooses it",
    "collect-metrics": _OWN_METERS,
    "latency-threshold": "write it as an SLO",
    "max-threads": "tune chooses it",
    "max-trials": _WINDOWS,
    "measurement-mode": _WINDOWS,
    "measurement-request-count": _WINDOWS,
    "percentile": "an SLO names its percentile",
    "shared-memory": "inputs travel with the requests, as those of your users do",
    "stability-percentage": _WINDOWS,
    "streaming": "a request of tune has one answer",
    "string-data": "random strings are drawn; inputs: {kind: file} brings your own",
    "sync": "tune chooses it",
    "verbose-csv": "tune chooses it",
}

#: Options that are carried over.
_CARRIED = (
    "batch_sizes",
    "client_protocol",
    "concurrency",
    "constraints",
    "gpus",
    "latency_budget",
    "min_throughput",
    "model_repository",
    "model_type",
    "objectives",
    "optuna_max_trials",
    "perf_analyzer_flags",
    "perf_analyzer_path",
    "profile_models",
    "request_rate",
    "request_rate_search_enable",
    "run_config_search_max_concurrency",
    "run_config_search_max_instance_count",
    "run_config_search_max_model_batch_size",
    "run_config_search_max_request_rate",
    "run_config_search_min_instance_count",
    "run_config_search_min_model_batch_size",
    "run_config_search_mode",
    "triton_docker_image",
    "triton_docker_mounts",
    "triton_docker_shm_size",
    "triton_grpc_endpoint",
    "triton_http_endpoint",
    "triton_launch_mode",
    "triton_metrics_url",
    "triton_server_environment",
    "triton_server_flags",
    "triton_server_path",
)

#: Every option of a file.
OPTIONS = frozenset({*_CARRIED, *REASONS} - {"cpu_only"})
