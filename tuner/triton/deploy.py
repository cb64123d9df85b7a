"""Deploys a candidate with the cheapest change, and replaces an unhealthy server.

Several models are loaded one by one, parts before parents. Triton then keeps the parts of an
ensemble as loaded, and sets up the ensembles of a reloaded part again. An ensemble that its part no
longer fits becomes unavailable without an error, so every model's config is read back
(docs/internals/ensembles.md has the experiments).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tuner.errors import DeployRefusedError, ServerGoneError, ServerHangsError, TrialError
from tuner.machine.process import leave_out_the_middle
from tuner.modelconfig.base import differences
from tuner.modelconfig.message import to_load_json
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served, ServedModel
from tuner.reason import Reason, ReasonKind
from tuner.sentences import failed
from tuner.server import health
from tuner.server import log as server_log
from tuner.server.control import Control
from tuner.server.memory import Memories, is_of_gpu, read_memory, taken
from tuner.server.server import Endpoints, Server, ServerLauncher
from tuner.space.candidate import Candidate, ServerStart
from tuner.spec.fields import Gpus
from tuner.spec.labels import labelled
from tuner.spec.mistakes import listed
from tuner.triton.changes import DeploymentKind, dearest, kind_of_change
from tuner.triton.local import in_repository

_logger = logging.getLogger(__name__)
_LOG_LINES = 200
#: After this many crashes or hangs with a kind of change, the server is restarted for such changes:
#: Triton may crash when it reloads steps of ensembles (Model Analyzer's issue 1018).
_CRASHES = 2
#: For models that complete nothing: without it, each load starts an extra process that asks the
#: model for completions, which takes more than a second (tritonserver 2.51, Python backend).
WITHOUT_COMPLETION = "--disable-auto-complete-config"


@dataclass(frozen=True)
class Deployment:
    """A candidate that is being served.

    Attributes:
        kind: The most expensive change of its models.
        running: The config that the server runs for each model, by label.
    """

    kind: DeploymentKind
    endpoints: Endpoints
    running: Mapping[str, ModelConfig]


@dataclass
class _Running:
    """The current server and the configs that were last requested."""

    server: Server
    control: Control
    start: ServerStart
    stack: ExitStack
    empty: Memories  # before any model was loaded
    #: Requested configs by label; without models whose loaded config is not certain.
    configs: dict[str, ModelConfig] = field(default_factory=dict)
    completes: bool = True
    #: Label and kind of a change whose result has not been read back yet.
    change: tuple[str, DeploymentKind] | None = None
    #: No further load on this server: a load is still in progress, or a load failed on a GPU:
    #: TensorRT and ONNX Runtime leak GPU memory with each failed load (server issue 8969,
    #: onnxruntime_backend issue 268).
    spent: bool = False


class Deployer:
    """Owns the server of a run; use it as a context manager. It starts the server on demand.

    The server always gets the text of each model's file with the candidate's changes: Triton
    updates instances in place only if the rest of the *requested* config equals the last requested
    config.

    Args:
        log: File of the server's output.
        load_timeout_s: A model that takes longer to load counts as hung.
        unload_first: Unload a model before each reload. By default, Triton holds the old and the
            new copy at the same time, which may need too much memory, or a device or file that
            only one copy can use. Set automatically once a model loads only without its old copy.
        gpus: GPUs that the server may see.
        step: Receives the current step, such as `loading bert`.

    Attributes:
        completes: Whether the next server completes configs, as Triton does by default. A config
            that a server without completion refuses or changes is tried on a server with it.
    """

    def __init__(
        self,
        launcher: ServerLauncher,
        served: Served,
        log: Path,
        *,
        load_timeout_s: float = 120.0,
        unload_first: bool = False,
        gpus: Gpus = "all",
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._launcher, self._log, self._step = launcher, log, step
        self.served = served
        self._load_timeout_s, self._unload_first = load_timeout_s, unload_first
        self._memory = partial(read_memory, place=launcher.place, gpus=gpus)
        self._running: _Running | None = None
        self._crashes: Counter[DeploymentKind] = Counter()  # by changes of parts
        self.completes = True

    def __enter__(self) -> Deployer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def server(self) -> Server:
        """The current server.

        Raises:
            ServerGoneError: No server is running.
        """
        return self._current().server

    @property
    def control(self) -> Control:
        """The current server's control; raises as `server` does."""
        return self._current().control

    def alive(self) -> bool:
        server = None if self._running is None else self._running.server
        return server is not None and server.alive() and health.live(server.endpoints)

    def memory(self) -> Memories:
        """Current memory usage of the models, as far as it can be read."""
        running = self._running
        return taken(self._memory(running.control.metrics), running.empty) if running else {}

    def give(self, cpus: tuple[int, ...]) -> None:
        """Sets the CPUs, by number, of the next server; empty: any.

        Stops a running server that has other CPUs: its mask is never changed.
        """
        launcher = self._launcher.on(cpus)
        if launcher != self._launcher:
            self._stop()
            self._launcher = launcher

    def put_back(self) -> int:
        """Moves threads of the server that left its CPUs back; returns their number."""
        return 0 if self._running is None else self._running.server.put_back()

    def fresh(self) -> None:
        """Makes the next `deploy` start a new server, with an empty cache.

        If the server cannot be restarted, unloads its models instead; its cache stays.
        """
        if self._launcher.restartable or self._running is None:
            self._stop()
            return
        for label in reversed([*self.served.models]):
            self._unload(self._running, label)

    def deploy(self, candidate: Candidate) -> Deployment:
        """Serves ``candidate``, and checks that the server runs its configs.

        Raises:
            DeployRefusedError: Triton refused a config, with Triton's reason; the next deployment
                works.
            ServerGoneError: The server crashed or hung; the next deployment starts a new server.
            EnvironmentNotReadyError: No server can be started.
        """
        try:
            return self._read_back(candidate, self.try_out(candidate))
        except DeployRefusedError:
            if self._running is None or self._running.completes:
                raise
        self._stop()
        self.completes = True
        try:
            return self._read_back(candidate, self.try_out(candidate))
        except DeployRefusedError:
            self.completes = False  # completion was not the reason
            raise

    def _read_back(self, candidate: Candidate, deployment: Deployment) -> Deployment:
        """Refuses a candidate if the server runs another config than the requested one."""
        different: list[str] = []
        for label, model in self.served.models.items():
            fields = candidate.of(label)
            expected, paths = model.base.expect(fields), model.base.read_back(fields)
            texts = differences(expected, deployment.running[label], paths)
            if texts:
                # A failed load can leave the old config serving without an error.
                del self._current().configs[label]
            different += (labelled(label, text, self.served.models) for text in texts)
        if different:
            text = f"the server runs another config: {listed(different, '; ')}"
            raise failed(DeployRefusedError, Reason.of_text(text))
        return deployment

    def try_out(self, candidate: Candidate) -> Deployment:
        """Makes the server load ``candidate``, without a check of the running configs.

        Raises as `deploy` does.
        """
        try:
            kind = self._bring(candidate, self.served.requests(candidate.models))
            running = {label: self._read(model) for label, model in self.served.models.items()}
        except ServerGoneError:
            self._note_crash()
            self._stop()
            raise
        self._current().change = None
        return Deployment(kind, self.server.endpoints, running)

    def _read(self, model: ServedModel) -> ModelConfig:
        """The running config of a model; an ensemble that its steps do not fit is unavailable."""
        running = self._current()
        try:
            return running.control.running_config(model.name)
        except DeployRefusedError as gone:
            running.configs.pop(model.name, None)
            words = server_log.failure(running.server.log_tail(_LOG_LINES))
            reason = _says(words) if words else gone.reason
            raise failed(DeployRefusedError, self._of(model.name, reason)) from gone

    def _current(self) -> _Running:
        if self._running is None:
            raise ServerGoneError("no server is running")
        return self._running

    def _bring(self, candidate: Candidate, configs: Mapping[str, ModelConfig]) -> DeploymentKind:
        running, kinds = self._running, self._changes(candidate, configs)
        if running is None or kinds is None:
            self._stop()
            running = self._start(candidate.start)
            for label, config in configs.items():
                self._load(running, label, config)
            return DeploymentKind.RESTART
        changed = {la: kind for la, kind in kinds.items() if kind is not DeploymentKind.UNCHANGED}
        for label, kind in changed.items():
            running.change, reload = (label, kind), kind is DeploymentKind.RELOAD
            beside_old = reload and label in running.configs and not self._unload_first
            try:
                self._load(running, label, configs[label])
            except (DeployRefusedError, ServerHangsError) as error:
                if not beside_old:
                    raise
                return self._bring_without_old(candidate, configs, error)
        return dearest(kinds)

    def _bring_without_old(
        self, candidate: Candidate, configs: Mapping[str, ModelConfig], error: TrialError
    ) -> DeploymentKind:
        """Tries again without the old copy, which may be the reason whatever the message says."""
        self._unload_first = True
        try:
            kind = self._bring(candidate, configs)
        except TrialError as again:
            self._unload_first = False
            if not isinstance(again, ServerHangsError):
                raise
            self._stop()
            reason = Reason(ReasonKind.BESIDE_OLD_COPY, causes=(again.reason,))
            raise failed(DeployRefusedError, reason) from again
        _logger.warning(
            "a model did not load beside its old copy (%s), and does without it: from now on "
            "models are unloaded before each reload, as with server.unload_first: true",
            error.message,
        )
        return kind

    def _changes(
        self, candidate: Candidate, configs: Mapping[str, ModelConfig]
    ) -> Mapping[str, DeploymentKind] | None:
        """The change of each model on the current server; None: a new server is needed."""
        running = self._running
        if running is None or running.spent or running.start != candidate.start:
            return None
        if not self._healthy():
            return None
        before = running.configs
        kinds = {label: kind_of_change(before.get(label), c) for label, c in configs.items()}
        # A reload on a server with completion takes longer than starting one without.
        slow = running.completes and not self.completes and self._launcher.restartable
        if slow and dearest(kinds) is DeploymentKind.RELOAD:
            return None
        if any(self._crashes_server(label, kind) for label, kind in kinds.items()):
            return None
        return kinds

    def _note_crash(self) -> None:
        change = None if self._running is None else self._running.change
        if change is None or not self.served.parents(change[0]):
            return
        label, kind = change
        self._crashes[kind] += 1
        if self._crashes_server(label, kind):
            _logger.warning(
                "the server crashed or hung %d times when a part of another model was changed "
                "(%s): from now on it is restarted for such a change",
                *(_CRASHES, kind.value),
            )

    def _crashes_server(self, label: str, kind: DeploymentKind) -> bool:
        """Whether such a change of a part of another model has crashed the server before."""
        often = self._crashes[kind] >= _CRASHES and self._launcher.restartable
        return often and bool(self.served.parents(label))

    def _healthy(self) -> bool:
        running = self._running
        if running is None or not self.alive():
            return False
        try:
            return all(map(running.control.ready, running.configs))
        except (DeployRefusedError, ServerGoneError):  # since 26.06, an unknown model is an error
            return False

    def _start(self, start: ServerStart) -> _Running:
        options = () if self.completes else (WITHOUT_COMPLETION,)
        self._step("starting Triton" if self._launcher.restartable else "connecting to Triton")
        while True:
            args, variables = (*options, *start.args), start.variables
            try:
                with ExitStack() as stack:
                    server = stack.enter_context(self._launcher.launch(args, self._log, variables))
                    control = stack.enter_context(Control(server.endpoints))
                    empty = self._memory(control.metrics, patient=True)
                    self._running = _Running(
                        server, control, start, stack.pop_all(), empty, completes=not options
                    )
                return self._running
            except ServerGoneError as error:
                words = "\n".join(error.reason.quotes())
                if not options or WITHOUT_COMPLETION not in words:
                    raise
                self.completes, options = True, ()  # this tritonserver lacks the argument

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stack.close()
            leave_out_the_middle(self._log)  # a model may log every batch

    def _load(self, running: _Running, label: str, config: ModelConfig) -> None:
        before = dict(running.configs)
        if self._unload_first and running.change == (label, DeploymentKind.RELOAD):
            self._unload(running, label)
        self._step(f"loading {label}")
        try:
            running.control.load(label, to_load_json(config), self._load_timeout_s)
        except DeployRefusedError as refused:
            log = running.server.log_tail(_LOG_LINES)
            words = server_log.refusal(refused.message, label, log)
            words = in_repository(words, self.served.models[label].files.directory.parent)
            running.spent = self._launcher.restartable and (
                server_log.out_of_memory(words) or any(map(is_of_gpu, running.empty))
            )
            raise failed(DeployRefusedError, self._of(label, _says(words))) from refused
        except ServerGoneError as gone:
            running.spent, log = self._launcher.restartable, running.server.log_tail(_LOG_LINES)
            if isinstance(gone, ServerHangsError):
                errors = server_log.errors_of_load(label, log)
                facts = {"words": errors[-1]} if errors else {}
                reason = Reason(ReasonKind.LOAD_TIMEOUT, facts=facts, causes=(gone.reason,))
                raise failed(ServerHangsError, reason) from gone
            facts = {"words": server_log.failure(log)}
            reason = Reason(ReasonKind.DIED_LOADING, facts=facts, causes=(gone.reason,))
            raise failed(ServerGoneError, reason) from gone
        # Triton has loaded the ensembles of the model again, with their configs.
        running.configs = {**before, label: config}

    def _of(self, label: str, reason: Reason) -> Reason:
        return reason.of(label) if len(self.served.models) > 1 else reason

    def _unload(self, running: _Running, label: str) -> None:
        """Unloads a model, which makes the ensembles over it unavailable."""
        for gone in (label, *self.served.parents(label)):
            running.configs.pop(gone, None)
        running.control.unload(label, self._load_timeout_s)


def _says(words: str) -> Reason:
    return Reason(ReasonKind.SERVER_SAYS, facts={"words": words})
