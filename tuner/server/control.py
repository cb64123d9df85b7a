"""Model control, statistics and metrics of a running server; every request has a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tuner.errors import (
    DeployRefusedError,
    EnvironmentNotReadyError,
    ServerGoneError,
    ServerHangsError,
    shortened,
)
from tuner.hiding import without_passwords
from tuner.machine.process import LOOPBACK
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.server.server import Endpoints, credentials, get, key_headers
from tuner.server.shared_memory import REGION_BYTES, SharedRegion

_POLL_S = 0.01
_GONE = ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED", "StatusCode.DEADLINE_EXCEEDED")
_REFUSED = ("StatusCode.UNAUTHENTICATED", "StatusCode.PERMISSION_DENIED")
_NOT_EXPLICIT = "explicit model load / unload is not allowed"
_RESTRICTED = "This protocol is restricted"
_NO_SUCH_MODEL = "tune-asks-whether-models-may-be-unloaded"
_NO_COUNTER = 2.0**64
_MOST_VERSION = 200
#: Most characters of a line of metrics: parsing time grows with the square of its labels.
_MOST_LINE = 8192
#: The first metric that was left out. Only one warning: metrics are read twice a second.
_left_out: list[str] = []
_logger = logging.getLogger(__name__)


class ModelState(Enum):
    """A model's state in the repository index; members in order of preference."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    NEVER_LOADED = ""

    @classmethod
    def _missing_(cls, value: object) -> ModelState:
        """Treats a state of another release as neither ready nor unloaded."""
        return cls.LOADING


class Control:
    """A gRPC client of one server; use it as a context manager.

    Every method raises `ServerGoneError` if the server does not answer in time.

    Args:
        timeout_s: Timeout of each request except loading and unloading.
    """

    def __init__(self, endpoints: Endpoints, timeout_s: float = 10.0) -> None:
        tls = credentials(endpoints.tls_of("grpc"))
        import tritonclient.grpc as client

        # Otherwise gRPC connects even to 127.0.0.1 through a proxy of the environment.
        local = endpoints.grpc.startswith(LOOPBACK)
        channel_args = [("grpc.enable_http_proxy", 0)] if local else None
        self._client: Any = client.InferenceServerClient(
            endpoints.grpc, creds=tls, channel_args=channel_args
        )
        self._endpoints = endpoints
        self._headers = {**endpoints.headers, **key_headers(endpoints.key)}
        self._timeout_s = timeout_s

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def load(self, model: str, config_json: str | None, deadline_s: float) -> None:
        """Loads a model.

        Args:
            config_json: Config in place of the model's file. None: the file's; then Triton does not
                reload a model with unchanged files, even if it runs with another config.
            deadline_s: Timeout in seconds.

        Raises:
            DeployRefusedError: Triton refused the config or the model; the old one still runs.
            EnvironmentNotReadyError: The server is not in explicit model control.
            ServerHangsError: Not loaded by the deadline (a Python stub that cannot start hangs
                forever).
            ServerGoneError: The server died.
        """
        with _translated(f"loading {model}", deadline_s):
            self._client.load_model(
                model, headers=self._headers, config=config_json, client_timeout=deadline_s
            )

    def unload(self, model: str, deadline_s: float) -> None:
        """Unloads a model, and waits until it has released its memory."""
        deadline = time.monotonic() + deadline_s
        with _translated(f"unloading {model}", deadline_s):
            self._unload(model, deadline_s)
        while self.state(model) not in (ModelState.UNAVAILABLE, ModelState.NEVER_LOADED):
            if time.monotonic() > deadline:
                raise ServerGoneError(f"{model} was not unloaded within {deadline_s:g} s")
            time.sleep(_POLL_S)

    def check_explicit(self) -> None:
        """Checks that the server permits loading and unloading; changes nothing.

        Raises:
            EnvironmentNotReadyError: The model control mode is none or poll.
        """
        # Unloading a model that does not exist succeeds in explicit mode only.
        with _translated("asking for explicit model control", self._timeout_s):
            self._unload(_NO_SUCH_MODEL, self._timeout_s)

    def share(self, region: SharedRegion) -> None:
        """Registers a region of shared memory for requests, until the server ends.

        Raises:
            EnvironmentNotReadyError: The server does not permit it.
        """
        name = region.name
        try:
            with _translated("sharing memory with the server", self._timeout_s):
                self._client.register_system_shared_memory(
                    *(name, name, REGION_BYTES),
                    headers=self._headers,
                    client_timeout=self._timeout_s,
                )
        except DeployRefusedError as error:
            raise EnvironmentNotReadyError(
                f"the server refuses tensors in shared memory: {error.message}",
                "since release 26.04 they need server.args: [--allow-client-shm=true]; or remove "
                "workload.shared_memory from the spec",
            ) from error

    def _unload(self, model: str, deadline_s: float) -> None:
        self._client.unload_model(model, headers=self._headers, client_timeout=deadline_s)

    def _call(self, doing: str, method: str, *model: str) -> Any:
        with _translated(doing, self._timeout_s):
            call = getattr(self._client, method)
            return call(*model, headers=self._headers, client_timeout=self._timeout_s)

    def ready(self, model: str) -> bool:
        return bool(self._call(f"asking whether {model} is ready", "is_model_ready", model))

    def state(self, model: str) -> ModelState:
        """The model's state; of several versions, the one closest to ready."""
        states = {ModelState(entry.state) for entry in self.index() if entry.name == model}
        return next((state for state in ModelState if state in states), ModelState.NEVER_LOADED)

    def index(self) -> Sequence[Any]:
        """Every version of the repository's models, with ``name``, ``state`` and ``reason``."""
        answer = self._call("reading the repository index", "get_model_repository_index")
        return list(answer.models)

    def running_config(self, model: str) -> Any:
        """The ``ModelConfig`` message that the server runs, completed by its backend."""
        return self._call(f"reading the config of {model}", "get_model_config", model).config

    def statistics(self, model: str) -> StatisticsSnapshot:
        asking = f"reading the statistics of {model}"
        response = self._call(asking, "get_inference_statistics", model)
        return StatisticsSnapshot.from_response(response)

    def metadata(self) -> Any:
        """The server's ``name``, ``version`` and ``extensions``."""
        return self._call("reading the server's metadata", "get_server_metadata")

    def version(self) -> str:
        return shortened(str(self.metadata().version), _MOST_VERSION)

    def metrics(self) -> Metrics | None:
        """Current values of the metrics endpoint; None if the server has no such endpoint."""
        if self._endpoints.metrics is None:
            return None
        try:
            answer = get(self._endpoints, "metrics", "/metrics", self._timeout_s)
        except OSError as error:
            raise ServerGoneError(f"reading the metrics: {error}") from error
        return Metrics.parse(answer.decode(errors="replace"))


@contextmanager
def _translated(doing: str, deadline_s: float) -> Iterator[None]:
    """Turns the client library's exception into one of tune's, by its gRPC status."""
    from tritonclient.utils import InferenceServerException

    try:
        yield
    except InferenceServerException as error:
        message, status = shortened(without_passwords(str(error.message()))), str(error.status())
        if _NOT_EXPLICIT in message:
            raise EnvironmentNotReadyError(
                "the server does not allow models to be loaded: its model control mode is none or "
                "poll",
                "start it with --model-control-mode=explicit",
            ) from error
        if _RESTRICTED in message or status in _REFUSED:
            raise EnvironmentNotReadyError(
                f"{doing}: the server requires a key that tune does not send ({message})",
                "name it in server.headers_from_env: NAME, or triton-grpc-protocol-NAME over gRPC",
            ) from error
        if status == "StatusCode.DEADLINE_EXCEEDED":
            facts: dict[str, Fact] = {"doing": doing, "deadline_s": deadline_s}
            raise failed(ServerHangsError, Reason(ReasonKind.NO_ANSWER, facts=facts)) from error
        if status in _GONE:
            facts = {"doing": doing, "words": message}
            raise failed(ServerGoneError, Reason(ReasonKind.SERVER_GONE, facts=facts)) from error
        raise DeployRefusedError(message) from error


@dataclass(frozen=True)
class BatchStatistics:
    """Executions of one batch size: their number and their compute time."""

    count: int
    compute_infer_ns: int


@dataclass(frozen=True)
class StatisticsSnapshot:
    """Counters of a model, summed over its versions; use differences of two snapshots.

    They start at zero with a full load of the model, and continue through an in-place update.
    Source: Triton's statistics extension. ``queue`` and ``success`` include cache hits,
    ``inference``, ``execution`` and ``compute`` do not.
    """

    success_count: int = 0
    fail_count: int = 0
    inference_count: int = 0
    execution_count: int = 0
    queue_ns: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0
    cache_hit_count: int = 0
    cache_miss_count: int = 0
    batches: Mapping[int, BatchStatistics] = field(default_factory=dict)

    @classmethod
    def from_response(cls, response: Any) -> StatisticsSnapshot:
        """Reads a ``ModelStatisticsResponse`` message."""
        versions = response.model_stats
        batches: dict[int, BatchStatistics] = {}
        for batch in (b for v in versions for b in v.batch_stats):
            before = batches.get(batch.batch_size, BatchStatistics(0, 0))
            batches[int(batch.batch_size)] = BatchStatistics(
                before.count + int(batch.compute_infer.count),
                before.compute_infer_ns + int(batch.compute_infer.ns),
            )
        inferences = [v.inference_stats for v in versions]

        def total(name: str, counter: str) -> int:
            return sum(int(getattr(getattr(stats, name), counter)) for stats in inferences)

        return cls(
            success_count=total("success", "count"),
            fail_count=total("fail", "count"),
            inference_count=sum(int(v.inference_count) for v in versions),
            execution_count=sum(int(v.execution_count) for v in versions),
            queue_ns=total("queue", "ns"),
            compute_input_ns=total("compute_input", "ns"),
            compute_infer_ns=total("compute_infer", "ns"),
            compute_output_ns=total("compute_output", "ns"),
            cache_hit_count=total("cache_hit", "count"),
            cache_miss_count=total("cache_miss", "count"),
            batches=batches,
        )


@dataclass(frozen=True)
class MetricSample:
    """One line of the metrics endpoint: ``nv_gpu_power_usage{gpu_uuid="…"} 61.2``."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Metrics:
    """The metrics endpoint at one moment; GPU values are refreshed every 2 s by default."""

    samples: tuple[MetricSample, ...]

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Parses the text of a metrics endpoint.

        Leaves out values that are not finite or too large for a counter, with one warning.

        Raises:
            ServerGoneError: The text is not from a metrics endpoint.
        """
        from prometheus_client.parser import text_string_to_metric_families

        longest = max(map(len, text.split("\n")))
        if longest > _MOST_LINE:
            raise ServerGoneError(f"reading the metrics: a line of {longest:,} characters")
        try:
            families = [*text_string_to_metric_families(text)]
        except Exception as error:  # the parser raises ValueError, IndexError and others
            reason = without_passwords(str(error) or type(error).__name__)
            raise ServerGoneError(f"reading the metrics: {reason}") from error
        kept = []
        for sample in (sample for family in families for sample in family.samples):
            # The parser appends "_total" to counters; Triton's own names come without.
            name, value = sample.name.removesuffix("_total"), float(sample.value)
            if abs(value) < _NO_COUNTER:
                kept.append(MetricSample(name, dict(sample.labels), value))
            elif (
                "quantile" not in sample.labels and not _left_out
            ):  # quantiles have no value without load
                _left_out.append(name)
                _logger.warning("ignoring the server's metric %s: its value is %s", name, value)
        return cls(tuple(kept))

    def values(self, name: str, **labels: str) -> list[float]:
        """All values of a metric whose labels include the given ones; empty if there are none."""
        wanted = labels.items()
        return [s.value for s in self.samples if s.name == name and wanted <= s.labels.items()]
