"""Rules for ensembles: what their config may hold, and how tensors flow through the steps.

From ValidateEnsembleSchedulingConfig in core's model_config_utils.cc (`mistakes`, one config)
and ValidateEnsembleConfig in its ensemble_utils.cc (`mistakes_between` and `circle_mistakes`, which
need the configs of the models in the steps).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tuner.modelconfig.backends import PLATFORM, Mistake, is_ensemble, may_set_batch
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.mistakes import listed, meant_or_listed

_STEP = "ensemble_scheduling.step"
_JOINED = "what is joined must come from the same decoupled model, or from none"


def mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Why Triton refuses this ensemble, regardless of its models."""
    if not is_ensemble(config):
        return
    if config.platform != PLATFORM or config.backend:
        text = f'an ensemble has platform "{PLATFORM}" and no backend'
        yield "platform", text, f'write platform: "{PLATFORM}"'
    set_ = {field.name for field, _ in config.ListFields()}
    for name in ("instance_group", "optimization", "model_warmup"):
        if name in set_:
            yield name, f"an ensemble has no {name}", "set it on the models of its steps"
    steps = list(config.ensemble_scheduling.step)
    if not steps:
        yield "ensemble_scheduling", "the ensemble has no step", "add one step for each model"
        return
    incomplete = list(_incomplete_steps(steps))
    yield from incomplete or _flow(config, steps)


def mistakes_between(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[Mistake]:
    """Why Triton refuses an ensemble over the models of its steps: batch sizes, maps, tensors.

    Args:
        models: The configs of its steps' models by name, as far as they are known. What is not
            known is skipped; a missing model is reported by those who know all names.
    """
    for index, step in enumerate(ensemble.ensemble_scheduling.step):
        if step.model_name in models:
            yield from step_mistakes(ensemble, index, step.model_name, models[step.model_name])
    yield from tensor_mistakes(ensemble, models)
    yield from _branches(ensemble, models)


def _branches(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[Mistake]:
    """A step, or the end, that joins a decoupled model's answers with others: refused."""
    source = {tensor.name: "the request" for tensor in ensemble.input}
    for index, step in _in_order(ensemble.ensemble_scheduling.step, set(source)):
        joined, branch = (
            {source[n] for n in step.input_map.values()},
            f"step {index} ({step.model_name})",
        )
        if len(joined) > 1:
            text = f"{branch} joins {listed(sorted(joined), ' and ')}"
            yield f"{_STEP}[{index}].input_map", text, _JOINED
            return
        if not answers_many_times(step.model_name, models):
            branch = "".join(joined)
        source.update(dict.fromkeys(step.output_map.values(), branch))
    ends = {source[tensor.name] for tensor in ensemble.output if tensor.name in source}
    if len(ends) > 1:
        yield "output", f"the outputs join {listed(sorted(ends), ' and ')}", _JOINED


def answers_many_times(name: str, models: Mapping[str, ModelConfig]) -> bool:
    """Whether a model is decoupled, or an ensemble has a decoupled step, as far as it is known."""
    inner = [models[n] for n in _reached(name, models) if n in models]
    return any(model.model_transaction_policy.decoupled for model in inner)


def _reached(name: str, models: Mapping[str, ModelConfig]) -> list[str]:
    """The model, and those of its steps, and so on."""
    reached = [name]
    for inner in reached:  # grows
        steps = models[inner].ensemble_scheduling.step if inner in models else ()
        reached += {s.model_name for s in steps} - {*reached}
    return reached


def circle_mistakes(
    name: str, ensemble: ModelConfig, models: Mapping[str, ModelConfig]
) -> Iterator[Mistake]:
    """Steps that lead back to the ensemble ``name``, through any others: refused."""
    for index, step in enumerate(ensemble.ensemble_scheduling.step):
        if name in _reached(step.model_name, models):
            text = f"step {index} ({step.model_name}) leads back to {name} itself"
            yield f"{_STEP}[{index}].model_name", text, "break the circle"


def step_mistakes(
    ensemble: ModelConfig, index: int, name: str, model: ModelConfig
) -> Iterator[Mistake]:
    """Why Triton refuses step ``index`` of an ensemble, given the config of the step's model.

    The model's config must be complete: if the backend determines its tensors, nothing is reported.
    """
    step = ensemble.ensemble_scheduling.step[index]
    path = f"{_STEP}[{index}]"
    outer, inner = ensemble.max_batch_size, model.max_batch_size
    if 0 < inner < outer:
        text = f"the ensemble takes batches of {outer}, and its model {name} takes at most {inner}"
        yield path, text, f"raise {name}'s max_batch_size or lower the ensemble's"
    inputs = {tensor.name: tensor for tensor in model.input}
    outputs = {tensor.name for tensor in model.output}
    for tensor in inputs.values():
        if tensor.name not in step.input_map and not tensor.optional:
            text = f"input {tensor.name} of {name} is not mapped to any ensemble tensor"
            yield path, text, f'add input_map {{ key: "{tensor.name}" value: ... }}'
    for side, known in (("input", [*inputs]), ("output", sorted(outputs))):
        mapped = getattr(step, f"{side}_map")
        for key in sorted(set(mapped) - set(known)) if known else ():
            text = f"{name} has no {side} {key!r}"
            yield f"{path}.{side}_map", text, meant_or_listed(key, known)


def _incomplete_steps(steps: list[Any]) -> Iterator[Mistake]:
    for index, step in enumerate(steps):
        for field in ("model_name", "model_version", "input_map", "output_map"):
            if not getattr(step, field):
                hint = "write model_version: -1 for the latest" if field == "model_version" else ""
                yield f"{_STEP}[{index}]", f"step {index} has no {field}", hint


def _flow(config: ModelConfig, steps: list[Any]) -> Iterator[Mistake]:
    """Every tensor is written once, read (unless it is an output), and reached from the inputs."""
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    read = {name for step in steps for name in step.input_map.values()}
    written: set[str] = set()
    for index, step in enumerate(steps):
        for name in sorted(step.output_map.values()):
            if name in written or name in inputs:
                text = f"tensor {name!r} is written more than once"
                yield f"{_STEP}[{index}].output_map", text, "give each output its own name"
            written.add(name)
    for name in sorted(inputs - read - outputs):
        yield "input", f"no step reads the ensemble's input {name!r}", "map it or remove it"
    for name in sorted(outputs - written - inputs):
        yield "output", f"no step writes the ensemble's output {name!r}", "map it or remove it"
    unwritten = read - written - inputs
    if not unwritten:
        yield from _circles(steps, inputs)
    for index, step in enumerate(steps):
        for name in sorted(unwritten.intersection(step.input_map.values())):
            text = f"step {index} ({step.model_name}) reads {name!r}, which nothing writes"
            yield f"{_STEP}[{index}].input_map", text, "map it from an input or an earlier step"
        for name in sorted(set(step.output_map.values()) - read - outputs):
            text = f"nothing uses {name!r}, written by step {index} ({step.model_name})"
            yield f"{_STEP}[{index}].output_map", text, "remove the mapping"


def _circles(steps: list[Any], inputs: set[str]) -> Iterator[Mistake]:
    """A step that reads what it writes, itself or through others: refused."""
    ordered = dict(_in_order(steps, inputs))
    ready = inputs.union(*(step.output_map.values() for step in ordered.values()))
    for index, step in enumerate(steps):
        if index in ordered:
            continue
        name = min(set(step.input_map.values()) - ready)
        text = f"step {index} ({step.model_name}) never runs: {name!r} comes from a circle of steps"
        yield f"{_STEP}[{index}].input_map", text, "map it from an input or an earlier step"


def _in_order(steps: Sequence[Any], inputs: set[str]) -> Iterator[tuple[int, Any]]:
    """The steps as their inputs become ready, with their places; none of a circle."""
    ready, waiting = set(inputs), dict(enumerate(steps))
    while fed := [i for i, s in waiting.items() if ready.issuperset(s.input_map.values())]:
        for index in fed:
            yield index, waiting[index]
            ready.update(waiting.pop(index).output_map.values())


def tensor_mistakes(ensemble: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[Mistake]:
    """A tensor whose type or dims differ between two of its ends: refused.

    An open dimension fits any. Dims fit as they are written, or with the batch in front where the
    model, or the ensemble, takes batches.
    """
    known: dict[str, _End] = {}
    for tensor in (*ensemble.input, *ensemble.output):
        shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        known[tensor.name] = _End.of("the ensemble", tensor, ensemble, list(shape))
    for index, step in enumerate(ensemble.ensemble_scheduling.step):
        model = models.get(step.model_name)
        if model is None:
            continue
        for side, tensors in (("input_map", model.input), ("output_map", model.output)):
            by_name = {tensor.name: tensor for tensor in tensors}
            for key, name in sorted(getattr(step, side).items()):
                if key not in by_name:
                    continue
                end = _End.of(step.model_name, by_name[key], model, list(by_name[key].dims))
                mistake = end.mistake(name, known.setdefault(name, end))
                if mistake:
                    yield (f"{_STEP}[{index}].{side}", *mistake)


@dataclass(frozen=True)
class _End:
    """A tensor as one of the models at its ends has it.

    Attributes:
        dims: Empty where they are not known.
        batched: The same with the batch in front, where there is one, or both where that is open.
    """

    model: str
    data_type: int
    dims: list[int]
    batched: list[list[int]]

    @classmethod
    def of(cls, name: str, tensor: Any, model: ModelConfig, dims: list[int]) -> _End:
        with_batch = [[-1, *dims]] if model.max_batch_size > 0 or may_set_batch(model) else []
        without = [] if model.max_batch_size > 0 else [dims]
        return cls(name, tensor.data_type, dims, without + with_batch)

    def mistake(self, name: str, other: _End) -> tuple[str, str] | None:
        """Message and hint."""
        if self.data_type != other.data_type:
            text = f"{name!r} has different data types in {self.model} and {other.model}"
            return text, "give both the same data_type"
        if not self.dims or not other.dims:
            return None
        readings = [(self.dims, other.dims), *product(self.batched, other.batched)]
        if any(_fit(one, two) for one, two in readings):
            return None
        one, two = self.batched[0], other.batched[0]
        if len(one) - len(self.dims) == len(two) - len(other.dims):
            one, two = self.dims, other.dims
        text = f"{name!r} is {one} in {self.model} and {two} in {other.model}"
        return text, "give both the same dims"


def _fit(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )
