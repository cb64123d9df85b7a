"""Model control, statistics and metrics of a running server, with a deadline on every request."""

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
#: Of a line of metrics, in characters: the time to parse one grows with the square of its labels.
_MOST_LINE = 8192
#: The metric that was said to be left out: once, since metrics are read twice a second.
_left_out: list[str] = []
_logger = logging.getLogger(__name__)


class ModelState(Enum):
    """A model's state in the repository index, of its best version."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    NEVER_LOADED = ""

    @classmethod
    def _missing_(cls, value: object) -> ModelState:
        """A state of another release's is neither ready nor gone."""
        return cls.LOADING


class Control:
    """Talks to one server over gRPC; use it as a context manager.

    Every method raises `ServerGoneError` when the server does not answer in time.

    Args:
        timeout_s: For every request but loading and unloading.
    """

    def __init__(self, endpoints: Endpoints, timeout_s: float = 10.0) -> None:
        tls = credentials(endpoints.tls_of("grpc"))
        import tritonclient.grpc as client

        # gRPC would send even 127.0.0.1 through a proxy named in the environment.
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
        """Loads a model, with a config that replaces its file's when one is given.

        Without one, a loaded model whose files are unchanged stays as it is, even when it was
        loaded with another config.

        Raises:
            DeployRefusedError: The config or the model was refused; what ran before still runs.
            EnvironmentNotReadyError: The server is not in explicit model control.
            ServerHangsError: Not loaded by the deadline (a Python stub that cannot start hangs
                for ever).
            ServerGoneError: The server died.
        """
        with _translated(f"loading {model}", deadline_s):
            self._client.load_model(
                model, headers=self._headers, config=config_json, client_timeout=deadline_s
            )

    def unload(self, model: str, deadline_s: float) -> None:
        """Unloads a model and returns once it and its memory are really gone."""
        deadline = time.monotonic() + deadline_s
        with _translated(f"unloading {model}", deadline_s):
            self._unload(model, deadline_s)
        while self.state(model) not in (ModelState.UNAVAILABLE, ModelState.NEVER_LOADED):
            if time.monotonic() > deadline:
                raise ServerGoneError(f"{model} was not unloaded within {deadline_s:g} s")
            time.sleep(_POLL_S)

    def check_explicit(self) -> None:
        """Returns if models may be loaded and unloaded; changes nothing.

        Raises:
            EnvironmentNotReadyError: The server runs in none or poll mode.
        """
        # Unloading what is not there succeeds in explicit mode and is refused in the others.
        with _translated("asking for explicit model control", self._timeout_s):
            self._unload(_NO_SUCH_MODEL, self._timeout_s)

    def share(self, region: SharedRegion) -> None:
        """Lets requests refer to a region, until the server ends.

        Raises:
            EnvironmentNotReadyError: The server does not.
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
                f"the server takes no inputs in shared memory: {error.message}",
                "since release 26.04 that needs server.args: [--allow-client-shm=true]; or leave "
                "workload.shared_memory out",
            ) from error

    def _unload(self, model: str, deadline_s: float) -> None:
        self._client.unload_model(model, headers=self._headers, client_timeout=deadline_s)

    def _ask(self, doing: str, method: str, *model: str) -> Any:
        with _translated(doing, self._timeout_s):
            ask = getattr(self._client, method)
            return ask(*model, headers=self._headers, client_timeout=self._timeout_s)

    def ready(self, model: str) -> bool:
        return bool(self._ask(f"asking whether {model} is ready", "is_model_ready", model))

    def state(self, model: str) -> ModelState:
        """The model's state; of several versions, the one closest to ready counts."""
        states = {ModelState(entry.state) for entry in self.index() if entry.name == model}
        return next((state for state in ModelState if state in states), ModelState.NEVER_LOADED)

    def index(self) -> Sequence[Any]:
        """Every version of the repository's models: ``name``, ``state``, and ``reason`` for it."""
        answer = self._ask("reading the repository index", "get_model_repository_index")
        return list(answer.models)

    def running_config(self, model: str) -> Any:
        """The ``ModelConfig`` message the server runs, completed by its backend."""
        return self._ask(f"reading the config of {model}", "get_model_config", model).config

    def statistics(self, model: str) -> StatisticsSnapshot:
        asking = f"reading the statistics of {model}"
        response = self._ask(asking, "get_inference_statistics", model)
        return StatisticsSnapshot.from_response(response)

    def metadata(self) -> Any:
        """The server's ``name``, ``version`` and ``extensions``."""
        return self._ask("reading the server's metadata", "get_server_metadata")

    def version(self) -> str:
        return shortened(str(self.metadata().version), _MOST_VERSION)

    def metrics(self) -> Metrics | None:
        """The metrics endpoint's values now; None when the server has none."""
        if self._endpoints.metrics is None:
            return None
        try:
            answer = get(self._endpoints, "metrics", "/metrics", self._timeout_s)
        except OSError as error:
            raise ServerGoneError(f"reading the metrics: {error}") from error
        return Metrics.parse(answer.decode(errors="replace"))


@contextmanager
def _translated(doing: str, deadline_s: float) -> Iterator[None]:
    """Turns the client library's one exception into ours, by its gRPC status."""
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
                f"{doing}: the server asks for a key that tune does not send ({message})",
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
    """Executions of one batch size."""

    count: int
    compute_infer_ns: int


@dataclass(frozen=True)
class StatisticsSnapshot:
    """Raw counters of a model, all its versions added up; only differences mean anything.

    They start at zero when the model is loaded in full and go on through an in-place update.
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
        """Reads them; raises `ServerGoneError` where whoever answers is no metrics endpoint.

        A value that is not finite, or beyond any counter, is left out, and that is said once.
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
            elif "quantile" not in sample.labels and not _left_out:  # those have none without load
                _left_out.append(name)
                _logger.warning("the server's metric %s is %s, and so left out", name, value)
        return cls(tuple(kept))

    def values(self, name: str, **labels: str) -> list[float]:
        """Every value of a metric whose labels include the given ones; empty when not served."""
        wanted = labels.items()
        return [s.value for s in self.samples if s.name == name and wanted <= s.labels.items()]
