"""NVIDIA's own search generators, without the program around them.

The one module that imports `model_analyzer`; written against its release 1.58.0. What is private
there is used in three places: `ModelConfig._default_config_dict` holds the model's config (else
a file would be read or a server started), a measurement's `ConstraintManager._constraints` holds
the SLO (else a whole command line would be parsed), and a generator gets its results through
`set_last_results`. The generators write no files and start nothing; what they log is held back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tuner.modelconfig.schema import enum_name
from tuner.spec.model import ModelAnalyzerMode

#: The model's name here; Model Analyzer takes names with ``_config_`` in them apart.
MODEL = "model"
#: Model Analyzer's bound on p99 latency, in milliseconds: our SLOs as one number.
LATENCY_BUDGET = 100.0

#: Fields of Model Analyzer's config that its generators read; the others stay unset.
_READ = (
    "early_exit_enable",
    "run_config_search_disable",
    "run_config_search_min_concurrency",
    "run_config_search_max_concurrency",
    "run_config_search_min_instance_count",
    "run_config_search_max_instance_count",
    "run_config_search_min_model_batch_size",
    "run_config_search_max_model_batch_size",
    "min_percentage_of_search_space",
    "max_percentage_of_search_space",
    "optuna_min_trials",
    "optuna_early_exit_threshold",
    "request_rate_search_enable",
    "triton_launch_mode",
    "triton_grpc_endpoint",
    "triton_metrics_url",
    "client_protocol",
    "client_max_retries",
    "monitoring_interval",
)


@dataclass(frozen=True)
class SweepValues:
    """Ascending values of each field, within the bounds of the space.

    ``instances`` always has one at least: Model Analyzer never leaves them out. The others are
    empty where the space does not have the field.
    """

    instances: tuple[int, ...]
    max_batch_sizes: tuple[int, ...] = ()
    delays_us: tuple[int, ...] = ()
    preferred: tuple[tuple[int, ...], ...] = ()

    @property
    def combinations(self) -> int:
        others = (self.max_batch_sizes, self.delays_us, self.preferred)
        return len(self.instances) * math.prod(len(values) or 1 for values in others)


@dataclass(frozen=True)
class SearchResult:
    """What a generator is given about a measured config.

    Attributes:
        value: The objective, above 0.
        violation: Sum of relative overshoots of the SLOs; 0 when all are met.
    """

    value: float
    violation: float = 0.0


class Generators:
    """Makes generators of one mode for one model."""

    def __init__(
        self,
        mode: ModelAnalyzerMode,
        base: Any,
        offer: SweepValues,
        seed: int,
        trials: int,
        maximise: bool,
    ) -> None:
        self._mode = mode
        self._offer = offer
        self._seed = seed
        self._trials = trials
        self._maximise = maximise
        with _silenced():
            self._config = self._search_config()
            self._profile = self._model_profile(base)

    def messages(self, results: list[SearchResult | None]) -> Iterator[Any]:
        """ModelConfig messages in the order NVIDIA's search asks for them, its default first.

        Put the answer to each into ``told`` before taking the next; None is no measurement.
        """
        with _silenced():
            generator = self._generator()
            wanted = generator.get_configs()
        while True:
            with _silenced():
                run_config = next(wanted, None)
            if run_config is None:
                return
            variant = run_config.model_run_configs()[0].model_config_variant()
            yield variant.model_config._model_config
            with _silenced():
                generator.set_last_results([self._measurement(results.pop())])

    def _generator(self) -> Any:
        if self._mode is ModelAnalyzerMode.QUICK:
            return self._quick()
        if self._mode is ModelAnalyzerMode.OPTUNA:
            return self._optuna()
        return self._brute()

    def _quick(self) -> Any:
        from model_analyzer.config.generate.quick_run_config_generator import (
            QuickRunConfigGenerator,
        )
        from model_analyzer.config.generate.search_config import SearchConfig
        from model_analyzer.config.generate.search_dimensions import SearchDimensions
        from model_analyzer.constants import MIN_INITIALIZED, RADIUS

        dimensions = SearchDimensions()
        dimensions.add_dimensions(0, self._dimensions())
        return QuickRunConfigGenerator(
            search_config=SearchConfig(dimensions, radius=RADIUS, min_initialized=MIN_INITIALIZED),
            gpu_count=0,
            composing_models=[],
            **self._common(),
        )

    def _common(self) -> dict[str, Any]:
        names = _OneName()
        models = [self._profile]
        return {"config": self._config, "models": models, "model_variant_name_manager": names}

    def _dimensions(self) -> list[Any]:
        """Makes NVIDIA's dimensions, bounded by the space: the factory's clamps stall the climb."""
        from model_analyzer.config.generate.search_dimension import SearchDimension

        exponential = SearchDimension.DIMENSION_TYPE_EXPONENTIAL
        dimensions = []
        batches, counts = self._offer.max_batch_sizes, self._offer.instances
        if batches:
            least, most = _exponents(batches)
            dimensions.append(SearchDimension("max_batch_size", exponential, least, most))
        if _contiguous(counts):
            linear = SearchDimension.DIMENSION_TYPE_LINEAR
            least, most = counts[0] - 1, counts[-1] - 1  # index 0 is one instance
            dimensions.append(SearchDimension("instance_count", linear, least, most))
        else:
            least, most = _exponents(counts)
            dimensions.append(SearchDimension("instance_count", exponential, least, most))
        return dimensions

    def _optuna(self) -> Any:
        from model_analyzer.config.generate.optuna_run_config_generator import (
            OptunaRunConfigGenerator,
        )
        from model_analyzer.config.generate.search_parameters import SearchParameters

        return OptunaRunConfigGenerator(
            state_manager=_NoState(),
            gpu_count=0,
            composing_models=[],
            search_parameters={MODEL: SearchParameters(self._profile, self._config)},
            composing_search_parameters={},
            user_seed=self._seed,
            **self._common(),
        )

    def _brute(self) -> Any:
        from model_analyzer.config.generate.brute_run_config_generator import (
            BruteRunConfigGenerator,
        )

        return BruteRunConfigGenerator(gpus=[], client=None, **self._common())

    def _search_config(self) -> Any:
        from model_analyzer.config.input.config_command_profile import ConfigCommandProfile

        config = ConfigCommandProfile()
        fields = config.get_config()
        for name in _READ:
            fields[name].set_value(fields[name].default_value())
        for name in ("bls_composing_models", "cpu_only_composing_models"):
            fields[name].set_value([])
        config.use_concurrency_formula = True  # tune decides the load, so it is not searched
        config.optuna_max_trials = self._trials
        counts, batches = self._offer.instances, self._offer.max_batch_sizes
        if _contiguous(counts):
            config.run_config_search_min_instance_count = counts[0]
            config.run_config_search_max_instance_count = counts[-1]
        if _doubling(batches):
            config.run_config_search_min_model_batch_size = batches[0]
            config.run_config_search_max_model_batch_size = batches[-1]
        return config

    def _model_profile(self, base: Any) -> Any:
        """The model as Model Analyzer knows it, with the values that its YAML would list."""
        from google.protobuf import json_format
        from model_analyzer.config.generate.model_profile_spec import ModelProfileSpec
        from model_analyzer.config.input.objects.config_model_profile_spec import (
            ConfigModelProfileSpec,
        )
        from model_analyzer.triton.model.model_config import ModelConfig

        on_cpu = any(enum_name(group, "kind") == "KIND_CPU" for group in base.instance_group)
        searches_client_batch = [] if self._mode is ModelAnalyzerMode.OPTUNA else [1]
        listed = ConfigModelProfileSpec(
            MODEL,
            cpu_only=on_cpu,
            parameters={
                "batch_sizes": searches_client_batch,
                "concurrency": [1],  # one load for each config: the bench decides which
                "request_rate": [],
            },
            model_config_parameters=self._listed(base),
            perf_analyzer_flags={},
        )
        known = json_format.MessageToDict(base, preserving_proto_field_name=True)
        ModelConfig._default_config_dict[MODEL] = {**known, "name": MODEL}
        try:
            return ModelProfileSpec(listed, self._config, None, [])
        finally:
            del ModelConfig._default_config_dict[MODEL]

    def _listed(self, base: Any) -> dict[str, Any]:
        """`model_config_parameters`, each value in the list that Model Analyzer's parser makes.

        The Optuna mode treats a list as unordered, so what is a range is given as one there.
        """
        offer = self._offer
        listed: dict[str, Any] = {}
        if self._mode is ModelAnalyzerMode.QUICK:
            return {}
        brute = self._mode is ModelAnalyzerMode.BRUTE
        if brute or not _contiguous(offer.instances):
            listed["instance_group"] = [[{"count": list(offer.instances)}]]
        if offer.max_batch_sizes and (brute or not _doubling(offer.max_batch_sizes)):
            listed["max_batch_size"] = list(offer.max_batch_sizes)
        batcher: dict[str, Any] = {}
        if offer.delays_us:
            batcher["max_queue_delay_microseconds"] = list(offer.delays_us)
        if offer.preferred and brute:
            batcher["preferred_batch_size"] = [list(sizes) for sizes in offer.preferred]
        schedules_itself = base.WhichOneof("scheduling_choice") == "sequence_batching"
        if batcher or (brute and offer.max_batch_sizes and not schedules_itself):
            listed["dynamic_batching"] = [batcher]  # empty: on, as its automatic searches have it
        return listed

    def _measurement(self, result: SearchResult | None) -> Any:
        """The result as Model Analyzer's own measurement, with its own arithmetic."""
        from model_analyzer.record.types.perf_latency_avg import PerfLatencyAvg
        from model_analyzer.record.types.perf_latency_p99 import PerfLatencyP99
        from model_analyzer.record.types.perf_throughput import PerfThroughput
        from model_analyzer.result.constraint_manager import ConstraintManager
        from model_analyzer.result.model_constraints import ModelConstraints
        from model_analyzer.result.run_config_measurement import RunConfigMeasurement

        if result is None:
            return None
        objective = PerfThroughput if self._maximise else PerfLatencyAvg
        latency = PerfLatencyP99(LATENCY_BUDGET * (1.0 + result.violation))
        measurement = RunConfigMeasurement(MODEL, {})
        measurement.add_model_config_measurement(MODEL, {}, [objective(result.value), latency])
        measurement.set_metric_weightings([{objective.tag: 1}])
        constraints = ConstraintManager(None)
        constraints._constraints = {
            MODEL: ModelConstraints({PerfLatencyP99.tag: {"max": LATENCY_BUDGET}})
        }
        measurement.set_constraint_manager(constraints)
        return measurement


class _NoState:
    """Model Analyzer's checkpoint, of which its Optuna search keeps the seed."""

    def starting_fresh_run(self) -> bool:
        return True

    def set_state_variable(self, name: str, value: object) -> None:
        pass


class _OneName:
    """Names of variants. NVIDIA's own compares each new config with all before it."""

    def get_model_variant_name(self, *_: object) -> tuple[bool, str]:
        return False, MODEL


@contextmanager
def _silenced() -> Iterator[None]:
    """Model Analyzer logs to a logger without a handler, whose warnings reach stderr."""
    from model_analyzer.constants import LOGGER_NAME

    logger = logging.getLogger(LOGGER_NAME)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _contiguous(values: tuple[int, ...]) -> bool:
    return values == tuple(range(values[0], values[-1] + 1)) if values else False


def _doubling(values: tuple[int, ...]) -> bool:
    """Successive powers of two."""
    if not values or values[0] < 1:
        return False
    least, most = _exponents(values)
    return values == tuple(2**n for n in range(least, most + 1))


def _exponents(values: tuple[int, ...]) -> tuple[int, int]:
    return math.floor(math.log2(values[0])), math.ceil(math.log2(values[-1]))
