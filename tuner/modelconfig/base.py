"""The config a run starts from: what the file says, and what the server completes.

A backend may complete a config when it loads the model: inputs, outputs, max_batch_size, a
scheduler (TensorRT, ONNX Runtime, a Python model's ``auto_complete_config``). What only Triton's
defaults fill in is not distinguished from the file, except for the number of instances, which is
always stated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.backends import backend_of
from tuner.modelconfig.lengths import has_one
from tuner.modelconfig.path import element_index, get, with_fields
from tuner.modelconfig.path_steps import Step, format_steps, parse_steps
from tuner.modelconfig.queues import policy_of_queue
from tuner.modelconfig.rules import Rule, Violation
from tuner.modelconfig.schema import ModelConfig, same_config
from tuner.modelconfig.traps import fixed_batch
from tuner.modelconfig.values import FieldValue
from tuner.spec.paths import DYNAMIC_BATCHING, INSTANCE_GROUP, MAX_BATCH_SIZE, PREFERRED, is_inside
from tuner.spec.units import bare_text

#: What ``--backend-config=default-max-batch-size`` is by default.
ASSUMED_BATCH_SIZE = 4
#: SetDefaultInstanceCount of Triton's core: what a group without a count gets on a CPU.
_CPU_COUNTS = {"onnxruntime": 2, "tensorflow": 2}


@dataclass(frozen=True)
class Base:
    """A model's config, with what the file says separate from what was completed.

    Attributes:
        file: ``ModelConfig`` message of config.pbtxt as it is.
        completed: The same as the server completes it; only with default counts until a server
            was queried.
        overridden: Those of `MAX_BATCH_SIZE` and `DYNAMIC_BATCHING` that the server sets by
            itself whatever the file says: the size cannot be changed, nor the batcher removed.
    """

    file: ModelConfig = field(repr=False)
    completed: ModelConfig = field(repr=False)
    overridden: frozenset[str] = frozenset()
    completes: bool = False
    known: bool = False

    @classmethod
    def of_file(
        cls, file: ModelConfig, *, completes: bool = False, backend: str = "", on_cpu: bool = False
    ) -> Base:
        """Before a server was queried, which serves it with ``backend``, perhaps without a GPU.

        Where the server will complete max_batch_size, Triton's default stands in for it.
        """
        backend = backend or file.backend
        completed = _with_default_counts(file, backend, on_cpu=on_cpu)
        is_open = completes and _is_batch_open(file)
        if is_open:
            completed.max_batch_size = ASSUMED_BATCH_SIZE
        may_batch = is_open or file.max_batch_size
        if not (completes and may_batch and turns_on_batching(backend, file)):
            return cls(file, completed, completes=completes)
        completed.dynamic_batching.SetInParent()
        return cls(file, completed, frozenset({DYNAMIC_BATCHING}), completes)

    @classmethod
    def of_server(cls, file: ModelConfig, running: ModelConfig, *, completes: bool) -> Base:
        """From what a server reports when it was given ``file`` unchanged."""
        completed = _complete(file, running)
        by_itself = completed.HasField(DYNAMIC_BATCHING) and not file.HasField(DYNAMIC_BATCHING)
        overridden = frozenset({DYNAMIC_BATCHING} if by_itself else ())
        return cls(file, completed, overridden, completes, known=True)

    @property
    def completions(self) -> tuple[str, ...]:
        """Fields that the server completed, by name; no plain defaults."""
        before = self.file
        names = (*_TAKEN_OVER, DYNAMIC_BATCHING, "sequence_batching")
        after = self.completed
        return tuple(n for n in names if not same_config(_only(before, n), _only(after, n)))

    @property
    def leaves_batch_open(self) -> bool:
        """The file leaves max_batch_size to whatever completes the config."""
        return self.completes and _is_batch_open(self.file)

    def assumes_batch(self, fields: Mapping[str, FieldValue]) -> bool:
        """Whether max_batch_size is a placeholder, until a server was queried."""
        return self.leaves_batch_open and not self.known and MAX_BATCH_SIZE not in fields

    def message(self, fields: Mapping[str, FieldValue]) -> ModelConfig:
        """What runs when ``fields`` are requested (a new message)."""
        base = self.completed
        if not self.file.instance_group and any(_is_instances(p) for p in fields):
            base = deepcopy(base)
            del base.instance_group[:]  # the defaults' group: what is asked for makes its own
        return with_fields(base, fields)

    def request(self, fields: Mapping[str, FieldValue]) -> ModelConfig:
        """What the server is given to run ``fields``: the file with `changes` (a new message)."""
        return with_fields(self.file, self.changes(fields))

    def changes(self, fields: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
        """What must be added to the file, without anything that is completed anyway.

        Preferred sizes need a max_batch_size beside them: Triton compares the two before the
        backend completes the config (tritonserver 2.51 refuses ``preferred_batch_size: [4]``
        alone).
        """
        wanted = self._express(fields)
        changed = {p: v for p, v in wanted.items() if self._differs(p, v)}
        if any(_is_instances(p) for p in changed):  # a count left open may depend on the kind
            changed |= {p: v for p, v in wanted.items() if _is_instances(p)}
        if changed.get(PREFERRED) and MAX_BATCH_SIZE not in changed:
            size = self.completed.max_batch_size
            changed |= {MAX_BATCH_SIZE: size} if size != self.file.max_batch_size else {}
        return changed

    def expect(self, fields: Mapping[str, FieldValue]) -> ModelConfig:
        """What a server that runs ``fields`` reports, before Triton's defaults (a new message)."""
        return self.message(self._express(fields))

    def read_back(self, fields: Mapping[str, FieldValue]) -> Collection[str]:
        """Paths at which the server must report what `expect` says.

        Whether there is a batcher makes no difference to batches of at most one, but for a queue
        policy: a batcher of batches of one limits, times out and orders what waits.
        """
        wanted = self._express(fields)
        queued = policy_of_queue(self.message(wanted)) or policy_of_queue(self.completed)
        if self._largest_batch(fields) <= 1 and not queued:
            return [p for p in wanted if not _is_batching(p)]
        return wanted.keys()

    def violations(self, fields: Mapping[str, FieldValue]) -> Iterator[Violation]:
        """Values that the completion overwrites."""
        size = self._largest_batch(fields)
        if MAX_BATCH_SIZE in self.overridden and size != self.completed.max_batch_size:
            yield Violation(
                Rule.COMPLETED,
                MAX_BATCH_SIZE,
                f"the server sets max_batch_size to {self.completed.max_batch_size}, whatever "
                f"config.pbtxt says: {size} is not possible",
                "take max_batch_size out of the space, or change what completes it "
                "(auto_complete_config of a Python model)",
            )

    def _express(self, fields: Mapping[str, FieldValue]) -> Mapping[str, FieldValue]:
        """``fields`` so that they hold.

        Where the server turns the batcher on by itself, a batcher that prefers batches of one is
        none: Triton sends each request alone, as without one (GetDynamicBatch in core's
        dynamic_batch_scheduler.cc).
        """
        off = fields.get(DYNAMIC_BATCHING, True) is None
        if not off or DYNAMIC_BATCHING not in self.overridden or self._largest_batch(fields) <= 1:
            return fields
        others = {p: v for p, v in fields.items() if not _is_batching(p)}
        return {**others, DYNAMIC_BATCHING: None, PREFERRED: (1,)}

    def _largest_batch(self, fields: Mapping[str, FieldValue]) -> int:
        size = fields.get(MAX_BATCH_SIZE, self.completed.max_batch_size)
        return size if isinstance(size, int) else 0

    def _differs(self, path: str, value: FieldValue) -> bool:
        """The completed config has another value; unset and a default are the same."""
        try:
            changed = with_fields(self.completed, {path: value})
        except SpecError:  # another member of a oneof is in the way
            return True
        return not same_config(changed, self.completed)


_POLICY = "model_transaction_policy"
#: Fields that a backend may complete, scheduler and instances aside.
_TAKEN_OVER = (MAX_BATCH_SIZE, "input", "output", _POLICY)
#: And what says which backend it is: found by the names of files.
_INFERRED = ("backend", "platform")


def _is_batch_open(file: ModelConfig) -> bool:
    """No max_batch_size, and no batch of one that the model's file fixes.

    TensorRT's takes that for a dimension of the model (FixBatchingSupport in tensorrt_backend's
    model_state.cc); the code of a Python model may say what it likes.
    """
    fixed = backend_of(file) != "python" and any(fixed_batch(file))
    return not (file.max_batch_size or fixed)


def turns_on_batching(backend: str, config: ModelConfig) -> bool:
    """The backend adds a dynamic batcher when it loads a model that can batch.

    TensorRT's always completes. ONNX Runtime's only where inputs or outputs are left out
    (AutoCompleteConfig in onnxruntime_backend's onnxruntime.cc).
    """
    completed = backend == "onnxruntime" and not (config.input and config.output)
    scheduled = config.WhichOneof("scheduling_choice") is not None or config.max_batch_size == 1
    return (completed or backend == "tensorrt") and not scheduled


def unragged_inputs(config: ModelConfig, *, may_batch: bool = False) -> list[str]:
    """Inputs of open dimensions that must have one shape in all requests of a batch.

    ``may_batch``: a dynamic batcher is to be tried, whether or not there is one now.
    """
    scheduler = config.WhichOneof("scheduling_choice")
    may_batch = may_batch or turns_on_batching(backend_of(config), config)
    batches = scheduler == DYNAMIC_BATCHING or (scheduler is None and may_batch)
    if config.max_batch_size < 2 or not batches:
        return []
    return [t.name for t in config.input if -1 in t.dims and not t.allow_ragged_batch]


def inputs_of_any_length(config: ModelConfig, *, may_batch: bool = False) -> list[str]:
    """Those of `unragged_inputs` whose lengths probably differ: not one text, nor one setting."""
    one = {tensor.name for tensor in config.input if has_one(tensor, config)}
    return [name for name in unragged_inputs(config, may_batch=may_batch) if name not in one]


def _complete(file: ModelConfig, running: ModelConfig) -> ModelConfig:
    config = deepcopy(file)
    for name in (*_TAKEN_OVER, *_INFERRED):
        config.ClearField(name)
        config.MergeFrom(_only(running, name))
    if file.WhichOneof("scheduling_choice") is None:
        scheduler = running.WhichOneof("scheduling_choice")
        if scheduler is not None:
            config.MergeFrom(_only(running, scheduler))
            # Without preferred sizes Triton prefers max_batch_size, and says so.
            batching = config.dynamic_batching if scheduler == "dynamic_batching" else None
            if batching and list(batching.preferred_batch_size) == [config.max_batch_size]:
                del batching.preferred_batch_size[:]
    if not file.HasField(_POLICY) and not config.model_transaction_policy.decoupled:
        config.ClearField(_POLICY)  # stated of every ensemble
    _take_counts(config, running)
    return config


def _only(config: ModelConfig, name: str) -> ModelConfig:
    """One field of a config in an otherwise empty one."""
    only = deepcopy(config)
    for other, _ in config.ListFields():
        if other.name != name:
            only.ClearField(other.name)
    return only


def _take_counts(config: ModelConfig, running: ModelConfig) -> None:
    """The number of instances where the file leaves it open."""
    if not config.instance_group and len(running.instance_group) == 1:
        config.instance_group.add(count=running.instance_group[0].count)
    if len(config.instance_group) == len(running.instance_group):
        for group, served in zip(config.instance_group, running.instance_group, strict=True):
            group.count = served.count


def _with_default_counts(file: ModelConfig, backend: str, *, on_cpu: bool) -> ModelConfig:
    config = deepcopy(file)
    if config.HasField("ensemble_scheduling"):
        return config
    if not config.instance_group:
        config.instance_group.add()
    for group in config.instance_group:
        if group.count < 1:
            cpu = group.kind == group.KIND_CPU or (on_cpu and group.kind == group.KIND_AUTO)
            group.count = _CPU_COUNTS.get(backend, 1) if cpu else 1
    return config


def _is_instances(path: str) -> bool:
    return path.startswith(INSTANCE_GROUP)


def _is_batching(path: str) -> bool:
    return path == DYNAMIC_BATCHING or is_inside(path, DYNAMIC_BATCHING)


#: SEQUENCE_IDLE_DEFAULT_MICROSECONDS of Triton's core.
DEFAULT_SEQUENCE_IDLE_US = 1_000_000
#: What Triton or the backend fills in, from the machine or the model's files, when it is unset.
_FILLED_IN = ("instance_group", "platform", "backend", "default_model_filename", "input", "output")


def differences(requested: ModelConfig, running: ModelConfig, paths: Iterable[str]) -> list[str]:
    """Fields in which the ``running`` config, as the server reports it, differs from ``asked``.

    Compares ``paths`` only, after filling ``asked`` in as Triton does when it loads a model
    (NormalizeModelConfig and NormalizeInstanceGroup in core's model_config_utils.cc): without
    preferred sizes it prefers max_batch_size, an instance group left open gets a kind, a count
    and GPUs, and so on. What was left open there may be anything.

    Returns:
        One sentence for each difference.
    """
    expected = _normalize(requested)
    texts = []
    for path in paths:
        steps = parse_steps(path)
        wanted = get(expected, path)
        if steps[0].field.name in _FILLED_IN and (not wanted or wanted == "KIND_AUTO"):
            continue
        actual = _get_or_none(running, format_steps(_by_position(expected, steps, path)))
        if (wanted or None) != (actual or None):
            texts.append(f"asked for {path} = {_words(wanted)}, the server has {_words(actual)}")
    return texts


def _get_or_none(config: ModelConfig, path: str) -> FieldValue:
    try:
        return get(config, path)
    except SpecError:  # fewer elements than requested
        return None


def _normalize(requested: ModelConfig) -> ModelConfig:
    config = deepcopy(requested)
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching"):
        _prefer_largest(config.dynamic_batching, config.max_batch_size)
    if config.HasField("sequence_batching"):
        sequence = config.sequence_batching
        if not sequence.max_sequence_idle_microseconds:
            sequence.max_sequence_idle_microseconds = DEFAULT_SEQUENCE_IDLE_US
        if sequence.HasField("oldest"):
            _prefer_largest(sequence.oldest, config.max_batch_size)
    if not config.HasField("ensemble_scheduling"):
        for buffer in ("input_pinned_memory", "output_pinned_memory"):
            if not config.optimization.HasField(buffer):
                getattr(config.optimization, buffer).enable = True
    return config


def _prefer_largest(batcher: Any, max_batch_size: int) -> None:
    if not batcher.preferred_batch_size and max_batch_size > 0:
        batcher.preferred_batch_size.append(max_batch_size)


def _by_position(config: ModelConfig, steps: tuple[Step, ...], path: str) -> tuple[Step, ...]:
    """The same elements by position: Triton keeps their order, but may change their kinds."""
    first, *rest = steps
    if first.is_map or first.field.name != "instance_group":
        return steps
    index = element_index(config, first, path)
    return (Step(first.field, index=index or 0), *rest)


def _words(value: FieldValue) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return bare_text(value)
