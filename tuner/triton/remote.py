"""A server that is already running; its models are restored at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tuner.errors import (
    DeployRefusedError,
    EnvironmentNotReadyError,
    ServerGoneError,
    TunerError,
    shortened,
)
from tuner.hiding import keep_secret
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.message import newer_client, to_load_json, unknown_fields
from tuner.modelconfig.schema import ModelConfig, new_config
from tuner.regular import read_regular
from tuner.server import health
from tuner.server.control import Control, ModelState
from tuner.server.log import NO_BACKEND, OTHER_BACKENDS, meaning
from tuner.server.server import NO_VARIABLES, Endpoints, Place, Variables, get
from tuner.spec.mistakes import did_you_mean, listed
from tuner.spec.server import ServerMode, ServerSpec
from tuner.triton.needs import backends_of
from tuner.writing import write_json

#: File beside the log with the initial config of each model, until the models are restored.
INITIAL_CONFIGS = "server_found.json"
#: Fields that are taken from that file: the author of a run must not select code.
_NUMBERS = (
    "dynamic_batching",
    "instance_group",
    "max_batch_size",
    "response_cache",
    "sequence_batching",
)
_UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
_TIMEOUT_S = 5.0
#: Most characters of the memory sizes in a version.
_MOST_SIZES = 200
#: Protocol extensions that a run needs.
_EXTENSIONS = frozenset({"model_repository", "model_configuration", "statistics"})
_CURES = {
    "http": "runs",
    "metrics": "runs without --allow-metrics=false; server.metrics may be left out",
}


def endpoints_of(server: ServerSpec, environment: Mapping[str, str]) -> Endpoints:
    """The endpoints of a spec's remote server; from now on, output hides the values of headers.

    Raises:
        EnvironmentNotReadyError: The environment has no value for a header.
    """
    headers = {}
    for name, variable in server.headers_from_env.items():
        value = headers[name.lower()] = environment.get(variable, "")
        if not (value and value.isascii() and value.isprintable()):
            text = f"server.headers_from_env: ${variable} is not set, or not to one line of ASCII"
            raise EnvironmentNotReadyError(text, "set it where tune is started")
        keep_secret(value)
    addresses = server.http or "", server.grpc or "", server.metrics  # the spec has them
    return Endpoints(*addresses, tls=server.tls, headers=headers)


def check(endpoints: Endpoints) -> None:
    """Checks that the server can be tuned; changes nothing.

    Raises:
        EnvironmentNotReadyError: No server answers, or it does not load models on request.
    """
    for service, path in (("http", "/v2/health/live"), ("metrics", "/metrics")):
        address = getattr(endpoints, service)
        scheme = "http" if endpoints.tls_of(service) is None else "https"
        try:
            if address:
                get(endpoints, service, path, _TIMEOUT_S)
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"no server answers at {scheme}://{address}{path}: {error}",
                f"check server.{service}, tls and headers_from_env in the spec, and that it "
                f"{_CURES[service]}",
            ) from error
    try:
        with Control(endpoints, _TIMEOUT_S) as control:
            metadata = control.metadata()
            if lacking := sorted(_EXTENSIONS.difference(metadata.extensions)):
                raise EnvironmentNotReadyError(
                    f"the server at {endpoints.grpc}, {metadata.name!r} {metadata.version}, is not "
                    f"a tritonserver: it has no {', '.join(lacking)}",
                    "check server.grpc in the spec",
                )
            control.check_explicit()
    except (DeployRefusedError, ServerGoneError) as error:
        raise EnvironmentNotReadyError(
            f"no server answers over gRPC at {endpoints.grpc}: {error.message}",
            "check server.grpc in the spec",
        ) from error


@dataclass(frozen=True)
class RemoteServer:
    """A server reached over the network; see `tuner.server.server.Server`."""

    endpoints: Endpoints

    def alive(self) -> bool:
        return health.live(self.endpoints)

    def log_tail(self, lines: int = 40) -> str:
        """Empty: a remote log cannot be read."""
        return ""

    def put_back(self) -> int:
        return 0  # its CPUs are not known


@dataclass(frozen=True)
class RemoteLauncher:
    """Uses a running server; see `tuner.server.server.ServerLauncher`.

    On leaving the context of `launch`, the models of the run are restored: loaded with their config
    from before the first launch, or unloaded. (Loading them without a config would change nothing,
    since Triton sees unchanged files.) Until then a file beside the log has the initial configs, so
    that the next launch after a kill restores them.

    Attributes:
        models: Names of the run's models, parts before parents.
        load_timeout_s: Timeout for loading a model, in seconds.
        files: The config of each model in the repository, by name.
    """

    endpoints: Endpoints
    models: tuple[str, ...]
    load_timeout_s: float = 120.0
    files: Mapping[str, ModelConfig] = field(default_factory=dict, compare=False, repr=False)
    #: Initial config of each model; None: the model was not loaded.
    _initial: dict[str, str | None] = field(default_factory=dict, init=False, repr=False)
    #: Why a model could not be restored, by name.
    _lost: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    restartable: ClassVar[bool] = False
    place: ClassVar[Place] = Place.ELSEWHERE
    python: ClassVar[None] = None

    def command_line(self) -> tuple[str, ...]:
        return ()

    def version(self) -> str:
        """The server's version and memory sizes; its image is not known."""
        check(self.endpoints)
        try:
            with Control(self.endpoints) as control:
                version, metrics = control.version(), control.metrics()
        except ServerGoneError as error:
            raise EnvironmentNotReadyError(error.message, "check server.metrics") from error
        by_kind = []
        for kind in ("gpu", "cpu"):
            sizes = [] if metrics is None else metrics.values(f"nv_{kind}_memory_total_bytes")
            each = str([round(size / 2**30) for size in sorted(sizes)])
            by_kind.append(f"{kind} {shortened(each, _MOST_SIZES)}")
        return f"{version}, remote; GiB of memory: {', '.join(by_kind)}"

    def check_backends(self, models: Sequence[ModelFiles]) -> str:
        """Checks by the repository index, which shows a missing backend only after a load."""
        with Control(self.endpoints, _TIMEOUT_S) as control:
            index = [*control.index()]
        open_yet = []
        for files in models:
            entries = [entry for entry in index if entry.name == files.model]
            if not entries:
                raise EnvironmentNotReadyError(
                    f"the server at {self.endpoints.grpc} has no model {files.model!r} in its "
                    "repository",
                    did_you_mean(files.model, {entry.name for entry in index})
                    or "copy the model's directory there: a run loads it with other configs",
                )
            reasons = [entry.reason for entry in entries if meaning(entry.reason) == NO_BACKEND]
            if reasons:
                raise EnvironmentNotReadyError(
                    f"the server at {self.endpoints.grpc} cannot load {files.model}: {reasons[0]}",
                    OTHER_BACKENDS[ServerMode.REMOTE],
                )
            if all(ModelState(entry.state) is not ModelState.READY for entry in entries):
                open_yet.append(files.model)
        if open_yet:
            return f"known once {listed(open_yet)} is loaded there"
        return listed(backends_of(models)) or "none required"

    def on(self, cpus: tuple[int, ...]) -> RemoteLauncher:
        return self

    @contextmanager
    def launch(
        self, server_args: Sequence[str], log: Path, environment: Variables = NO_VARIABLES
    ) -> Iterator[RemoteServer]:
        if environment:
            raise EnvironmentNotReadyError(
                f"a remote server cannot be given the variables {', '.join(environment)}",
                "take them out of the space, or use the local or docker mode",
            )
        if server_args:
            raise EnvironmentNotReadyError(
                f"a remote server cannot be given {' '.join(server_args)}",
                "take response_cache.size out of the space, or use the local or docker mode",
            )
        check(self.endpoints)
        kept = log.with_name(INITIAL_CONFIGS)
        if not self._initial:  # only once: later, the running configs may be a candidate's
            self._initial.update(self._kept(kept) if os.path.lexists(kept) else self._running())
        write_json(kept, self._initial)
        try:
            yield RemoteServer(self.endpoints)
        finally:
            gone = [m for m in reversed(self.models) if self._initial[m] is None]
            for model in (*gone, *(m for m in self.models if self._initial[m] is not None)):
                self._put_back(model, self._initial[model])
            if not self._lost:
                kept.unlink(missing_ok=True)

    def _running(self) -> dict[str, str | None]:
        with Control(self.endpoints) as control:
            loaded = {m: control.state(m) is ModelState.READY for m in self.models}
            running = {m: control.running_config(m) for m, there in loaded.items() if there}
        for model, config in running.items():
            if unknown := unknown_fields(config):
                raise EnvironmentNotReadyError(
                    f"{model} runs at {self.endpoints.grpc} with {listed(unknown)}, which the "
                    "installed tritonclient does not know: it could not be restored",
                    newer_client(),
                )
        return {m: to_load_json(running[m]) if there else None for m, there in loaded.items()}

    def _kept(self, path: Path) -> dict[str, str | None]:
        from google.protobuf import json_format

        configs = dict[str, str | None]()
        try:
            kept = json.loads(read_regular(path))
            for model in self.models:
                if (config := kept[model]) is not None:
                    numbers, merged = json_format.Parse(config, new_config(), True), new_config()
                    merged.CopyFrom(self.files[model])
                    for known in merged.DESCRIPTOR.fields:
                        (merged if known.name in _NUMBERS else numbers).ClearField(known.name)
                    merged.MergeFrom(numbers)
                    config = to_load_json(merged)
                configs[model] = config
        except (*_UNREADABLE, json_format.ParseError) as error:
            raise EnvironmentNotReadyError(
                f"cannot read {path}, the configs before tune was killed: {error}",
                "restore the server's models by hand, then remove that file",
            ) from error
        return configs

    def refuse_left_otherwise(self) -> None:
        """Checks, at the end, that every model was restored.

        Raises:
            EnvironmentNotReadyError: A model was not restored; lists each with the reason.
        """
        if self._lost:
            lost = "; ".join(f"{model}: {reason}" for model, reason in self._lost.items())
            raise EnvironmentNotReadyError(
                f"the models of the server at {self.endpoints.grpc} were not restored: {lost}",
                "once it answers, `tune rollback RUN` restores them; all measurements are kept",
            )

    def _put_back(self, model: str, config_json: str | None) -> None:
        self._lost.pop(model, None)
        try:
            with Control(self.endpoints) as control:
                if config_json is not None:
                    control.load(model, config_json, self.load_timeout_s)
                else:
                    control.unload(model, self.load_timeout_s)
        except TunerError as error:
            self._lost[model] = error.message
