"""Brings a candidate onto the server with the least work, and makes the server healthy again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tuner.errors import DeployRefusedError, ServerGoneError
from tuner.modelconfig.base import Base
from tuner.modelconfig.compare import differences
from tuner.modelconfig.message import to_load_json
from tuner.space.cache import server_args
from tuner.space.candidate import Candidate
from tuner.spec.paths import INSTANCE_GROUP
from tuner.triton import health
from tuner.triton import log as server_log
from tuner.triton.control import Control
from tuner.triton.server import Endpoints, Server, ServerLauncher

_LOG_LINES = 200
#: For a model that completes nothing: it spares each load the process that Triton starts, asks for
#: the model's completions and waits for, more than a second (tritonserver 2.51, Python backend).
WITHOUT_COMPLETION = "--disable-auto-complete-config"


class DeploymentKind(Enum):
    """What it took, cheapest first."""

    UNCHANGED = "unchanged"
    IN_PLACE = "in place"  # only instances differ: Triton adds or removes some
    RELOAD = "reload"
    RESTART = "restart"


@dataclass(frozen=True)
class Deployment:
    """A candidate that is being served.

    Attributes:
        seconds: Time it took.
        running: The ``ModelConfig`` message the server runs, completed by its backend.
    """

    kind: DeploymentKind
    seconds: float
    endpoints: Endpoints
    running: Any


@dataclass
class _Running:
    """The current server and what it was last asked to serve."""

    server: Server
    control: Control
    cache_bytes: int | None
    stack: ExitStack
    config: Any = None  # the ModelConfig as asked; None when nothing is loaded for certain
    completes: bool = True


class Deployer:
    """Owns the server of a run; use it as a context manager. The server starts when needed.

    What the server is given is always the file with a candidate's changes, as it would be written:
    Triton updates instances in place only when the rest of what was *asked* is equal to what was
    asked before.

    Args:
        launcher: Starts servers.
        model: The model's name.
        base: The model's config as its file has it and as the server completes it.
        log: File for the server's output (appended).
        load_timeout_s: A model that takes longer to load counts as hung.
        unload_first: Unload before each reload. Done by itself after a reload ran out of
            memory, since by default old and new copy are in memory together.

    Attributes:
        completes: The servers started from now on complete configs, as Triton does by default.
            What one that does not refuses, or runs as another config, is tried on one that does.
    """

    def __init__(
        self,
        launcher: ServerLauncher,
        model: str,
        base: Base,
        log: Path,
        *,
        load_timeout_s: float = 120.0,
        unload_first: bool = False,
    ) -> None:
        self._launcher = launcher
        self._model = model
        self.base = base
        self._log = log
        self._load_timeout_s = load_timeout_s
        self._unload_first = unload_first
        self._running: _Running | None = None
        self.completes = True

    def __enter__(self) -> Deployer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def server(self) -> Server:
        """The current server.

        Raises:
            ServerGoneError: There is none now.
        """
        return self._current().server

    @property
    def control(self) -> Control:
        """Of the current server; raises as `server` does."""
        return self._current().control

    def alive(self) -> bool:
        """Whether the current server lives and answers."""
        running = self._running
        return (
            running is not None and running.server.alive() and health.live(running.server.endpoints)
        )

    def fresh(self) -> None:
        """Lets the next `deploy` begin with a newly started server, its cache empty.

        A server that cannot be restarted has its model unloaded instead; its cache stays.
        """
        if self._launcher.restartable or self._running is None:
            self._stop()
        else:
            self._running.control.unload(self._model, self._load_timeout_s)
            self._running.config = None

    def deploy(self, candidate: Candidate) -> Deployment:
        """Serves ``candidate``: nothing else is served when this returns.

        Raises:
            DeployRefusedError: Triton refused it, with Triton's reason; the next deploy works.
            ServerGoneError: The server crashed or hung; the next deploy starts another.
            EnvironmentNotReadyError: No server can be started at all.
        """
        try:
            return self._deploy_once(candidate)
        except DeployRefusedError:
            if self._running is None or self._running.completes:
                raise
        self._stop()
        self.completes = True
        try:
            return self._deploy_once(candidate)
        except DeployRefusedError:
            self.completes = False  # it was not that
            raise

    def _deploy_once(self, candidate: Candidate) -> Deployment:
        deployment = self.try_out(candidate)
        base = self.base
        fields = candidate.of("")
        expected, paths = base.expect(fields), base.read_back(fields)
        different = differences(expected, deployment.running, paths)
        if different:
            # A failed load can leave the old config serving without a word.
            self._current().config = None
            raise DeployRefusedError(f"the server runs another config: {'; '.join(different)}")
        return deployment

    def try_out(self, candidate: Candidate) -> Deployment:
        """Has the server load ``candidate``, which may serve something else of it.

        Raises:
            DeployRefusedError: As `deploy` does.
            ServerGoneError: As `deploy` does.
            EnvironmentNotReadyError: As `deploy` does.
        """
        started = time.monotonic()
        try:
            kind = self._bring(candidate, self.base.request(candidate.of("")))
            running_config = self.control.running_config(self._model)
        except ServerGoneError:
            self._stop()
            raise
        return Deployment(kind, time.monotonic() - started, self.server.endpoints, running_config)

    def _current(self) -> _Running:
        if self._running is None:
            raise ServerGoneError("no server is running")
        return self._running

    def _bring(self, candidate: Candidate, config: Any) -> DeploymentKind:
        running = self._running
        if running is None or running.cache_bytes != candidate.cache_bytes or not self._healthy():
            return self._restart(candidate, config)
        if running.config == config:
            return DeploymentKind.UNCHANGED
        in_place = running.config is not None and _without_instances(running.config) == (
            _without_instances(config)
        )
        if not in_place and self._slow_to_load(running):
            return self._restart(candidate, config)
        self._load(running, config, unload_first=self._unload_first and not in_place)
        return DeploymentKind.IN_PLACE if in_place else DeploymentKind.RELOAD

    def _slow_to_load(self, running: _Running) -> bool:
        """A reload on a server that completes takes longer than to start one that does not."""
        return running.completes and not self.completes and self._launcher.restartable

    def _restart(self, candidate: Candidate, config: Any) -> DeploymentKind:
        self._stop()
        running = self._start(candidate.cache_bytes)
        self._load(running, config)
        return DeploymentKind.RESTART

    def _healthy(self) -> bool:
        running = self._running
        if running is None or not self.alive():
            return False
        try:
            return running.config is None or running.control.ready(self._model)
        except ServerGoneError:
            return False

    def _start(self, cache_bytes: int | None) -> _Running:
        if not self.completes:
            try:
                return self._launch(cache_bytes, (WITHOUT_COMPLETION,))
            except ServerGoneError as error:
                if WITHOUT_COMPLETION not in error.message:
                    raise
                self.completes = True  # this tritonserver is too old to know the argument
        return self._launch(cache_bytes, ())

    def _launch(self, cache_bytes: int | None, own: tuple[str, ...]) -> _Running:
        with ExitStack() as stack:
            args = (*own, *server_args(cache_bytes))
            server = stack.enter_context(self._launcher.launch(args, self._log))
            control = stack.enter_context(Control(server.endpoints))
            self._running = _Running(
                server, control, cache_bytes, stack.pop_all(), completes=not own
            )
        return self._running

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stack.close()

    def _load(self, running: _Running, config: Any, *, unload_first: bool = False) -> None:
        """One load, and after an out-of-memory reload another with nothing loaded beside it."""
        had_one = running.config is not None and not unload_first
        if unload_first:
            self._unload(running)
        try:
            self._load_once(running, config)
        except DeployRefusedError as refused:
            if not (had_one and server_log.out_of_memory(refused.message)):
                raise
            self._unload_first = True
            self._unload(running)
            self._load_once(running, config)

    def _load_once(self, running: _Running, config: Any) -> None:
        text = to_load_json(config)
        try:
            running.control.load(self._model, text, self._load_timeout_s)
        except DeployRefusedError as refused:
            log = running.server.log_tail(_LOG_LINES)
            reason = server_log.refusal(refused.message, self._model, log)
            raise DeployRefusedError(reason) from refused
        except ServerGoneError as gone:
            reason = server_log.failure(running.server.log_tail(_LOG_LINES))
            raise ServerGoneError(f"{gone.message}; the log ends with: {reason}") from gone
        running.config = config

    def _unload(self, running: _Running) -> None:
        running.config = None
        running.control.unload(self._model, self._load_timeout_s)


def _without_instances(config: Any) -> Any:
    rest = deepcopy(config)
    rest.ClearField(INSTANCE_GROUP)
    return rest
