"""The commented spec that `tune init MODEL` writes: bounds from the model and the machine."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.base import inputs_of_any_length
from tuner.modelconfig.lengths import has_one, is_named, is_setting, likely_dims
from tuner.modelconfig.schema import (
    batches_sequences,
    enum_name,
    inputs_sent,
    shape_tensors,
    takes_sequences,
)
from tuner.modelconfig.traps import batch_in_dims
from tuner.space.build import LLM_BACKENDS, refuse_unmeasurable
from tuner.space.draft_instances import Machine, any_on_gpu
from tuner.space.draft_sequences import sequence_arrivals_lines
from tuner.space.draft_server import CACHE, cache_of_server, server_section, variable_lines
from tuner.space.draft_slos import example_slo, latency_bound, slo_lines
from tuner.space.draft_space import DraftedModel, answer_many_times, are_for_sequences, space_of
from tuner.space.draft_text import COLUMN, DraftEntry, Remark, as_yaml, flow, remarks
from tuner.space.sequences import DECOUPLED
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.slo import Slo
from tuner.spec.units import count_text

GOODPUT = "maximize goodput"
#: The budget of a draft.
TRIALS, BUDGET_S = 30, 1200
#: The size used for a dimension that config.pbtxt leaves open, or less, so that an input has at
#: most this many elements: nobody should send megabytes in each request without asking for it.
OPEN_DIMENSION, MOST_ELEMENTS = 128, 1 << 16
#: Words of names of integers that refer to something else, of which a request has many.
_REFERRING = re.compile(r"keys?|offsets?|index|indices|dims|shape")
_EVERY_LINE = "Every line may be changed; docs/spec.md has them all,"
_LOCAL = MappingProxyType({"mode": "local"})


@dataclass(frozen=True)
class Given:
    """Parts of a spec that a draft takes from another source; empty parts are guessed.

    Attributes:
        command: The command that drafts, for the first line.
        file: The file of requests, relative to the spec.
        sequences: Whether the file has sequences.
        shapes: The shapes of random requests.
        spaces: The values to try, by the model's name and the path.
        bounds: Values of drafted fields, likewise; other fields are drafted beside them.
        left: The parts that could not be taken over, a line each.
    """

    command: str
    slos: tuple[str, ...]
    objective: str = GOODPUT
    arrivals: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 1
    file: str = ""
    sequences: bool = False
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    spaces: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    bounds: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def draft_spec(
    models: Mapping[str, DraftedModel],
    machine: Machine,
    repository: str,
    slos: tuple[str, ...] = (),
    given: Given | None = None,
    *,
    server: Mapping[str, Any] = _LOCAL,
    why: str = "local, docker or remote",
    write_to: str = CONFIG_NAME,
) -> str:
    """YAML text of a spec that loads and runs as it is.

    Args:
        models: The model and all its parts, by name, the model first.
        repository: The path to write in the spec.
        slos: The SLOs, at least one of them on a latency; if empty, an example.
        given: Known parts, which replace the guesses of the draft.
        server: The ``server`` section, where ``given`` has none.
        why: A remark beside that section.

    Raises:
        SpecError: No SLO is on a latency, or this kind of model cannot be tuned; the hint says what
            to do.
    """
    model, drafted = next(iter(models.items()))
    steps = {name: models[name].config for name in answering(models, model)}
    for name, config in steps.items():
        refuse_unmeasurable(name, config)
    many = answer_many_times(models)
    _refuse_decoupled_sequences(models)
    cached = not many and not any(map(batches_sequences, steps.values()))
    slos = slos or (example_slo(many=many),)
    bound = latency_bound((*given.slos, *slos) if given else slos)
    if is_ensemble(drafted.config) and len(models) == 1:
        hint = "put the models of its steps into the repository: they are what is searched"
        raise SpecError(f"{model} is an ensemble, and none of its models is there", hint)
    place = [DraftEntry("model", flow(model)), DraftEntry("repository", flow(repository))]
    place += [] if write_to == CONFIG_NAME else [DraftEntry("write_to", write_to)]
    given = given or Given(f"tune init {model}", slos)
    models = _as_given(models, given)
    drafted = models[model]
    searched: list[DraftEntry | Remark]
    on_cpu = (part for part in models.values() if not any_on_gpu(part.config, machine, part.cuda))
    names = dict.fromkeys(name for part in on_cpu for name in part.variables)
    variables = variable_lines(names, server, machine.cores)
    if len(models) > 1 or drafted.unnamed:
        place.append(server_section(server, why, variables))
        searched = [models_entry(models, machine, shared_bounds(models, bound), given.spaces)]
        searched += cache_of_server(variables) if cached else []
    else:
        place.append(server_section(server, why, []))
        known = given.spaces.get(model, {})
        fields = [*space_of(drafted, machine, bound, known, alone=True), *variables]
        fields += CACHE if cached else ()
        searched = [_space(known, fields, drafted.bounds)]
    draft = [*_head(place, given), _workload(models, given), *searched, *tail_of(machine)]
    return as_yaml(draft)


def _refuse_decoupled_sequences(models: Mapping[str, DraftedModel]) -> None:
    taking = [name for name, part in models.items() if takes_sequences(part.config)]
    many = [n for n, part in models.items() if part.config.model_transaction_policy.decoupled]
    if both := [name for name in taking if name in many]:
        text = f"{both[0]} takes sequences and is decoupled: not measured"
        raise SpecError(text, DECOUPLED)
    if taking and many:
        text = f"{many[0]} is decoupled, and {taking[0]} takes sequences: not measured together"
        raise SpecError(text, "draft one without the other, or the models that are called")


def _as_given(models: Mapping[str, DraftedModel], given: Given) -> dict[str, DraftedModel]:
    """The models, with batches of at least one request, and with the given bounds."""
    rows = given.batch_size
    return {
        name: replace(
            part,
            least_batch=max(part.least_batch, rows),
            rows=rows,
            bounds=given.bounds.get(name, {}),
        )
        for name, part in models.items()
    }


def answering(models: Mapping[str, DraftedModel], model: str) -> list[str]:
    """The model, with all steps of ensembles that process its requests."""
    names = [model]
    for name in names:  # grows
        steps = (step.model_name for step in models[name].config.ensemble_scheduling.step)
        names += [step for step in steps if step in models and step not in names]
    return names


def open_shapes(config: Any) -> dict[str, list[int]]:
    """A guess for each input of a request whose shape config.pbtxt leaves open, by name.

    The guess is the same for each open dimension, since inputs often have one length, such as
    embeddings and their mask, and small enough for `MOST_ELEMENTS` of each. Most clients send one
    text, and one of each setting. Of a model whose inputs are all optional, every
    input has its shape: those without one are not sent.
    """
    choose = all(tensor.optional for tensor in config.input)
    tensors = [t for t in inputs_sent(config) if choose or any(d < 0 for d in t.dims)]
    dims = {tensor.name: likely_dims(tensor, config) for tensor in tensors}
    ones = {tensor.name for tensor in tensors if has_one(tensor, config)}
    length = min((_length(dims[name]) for name in dims if name not in ones), default=1)
    return {name: _sized(given, 1 if name in ones else length) for name, given in dims.items()}


def _length(dims: list[int]) -> int:
    """The largest guess that keeps an input small."""
    guess = OPEN_DIMENSION
    while guess > 1 and math.prod(_sized(dims, guess)) > MOST_ELEMENTS:
        guess //= 2
    return guess


def _sized(dims: list[int], guess: int) -> list[int]:
    return [guess if dim < 0 else dim for dim in dims]


def _head(place: list[DraftEntry], given: Given) -> Iterator[DraftEntry | Remark]:
    yield from opening(given.command, given.left)
    yield from place
    slos = tuple(slo_lines(given.slos, BUDGET_S / TRIALS))
    first = "what your users need: change this first"
    yield DraftEntry("slo", remark=first, below=slos, column=COLUMN)
    best = "highest load that meets every SLO" if given.objective == GOODPUT else ""
    yield DraftEntry("objective", given.objective, best, column=COLUMN)


def opening(command: str, left: Sequence[str]) -> Iterator[DraftEntry | Remark]:
    """The first lines: the command, and the parts that could not be taken over."""
    yield from remarks(
        "yaml-language-server: $schema=tune.schema.json",
        f"Drafted by `{command}`. {_EVERY_LINE}",
        "and `tune schema > tune.schema.json` lets your editor complete and check them.",
    )
    if left:
        yield Remark("Not carried over:")
        yield from (Remark(f"  {line}") for line in left)


def _space(
    given: Mapping[str, Mapping[str, Any]],
    drafted: list[DraftEntry | Remark],
    bounded: Collection[str],
) -> DraftEntry:
    """The given and the bounded fields, others as comments; without given ones, all drafted."""
    if not given:
        return DraftEntry("space", below=tuple(drafted))
    below: list[DraftEntry | Remark] = [
        DraftEntry(flow(path), flow(field)) for path, field in given.items()
    ]
    entries = [one for one in drafted if isinstance(one, DraftEntry) and not one.mark]
    others = [one for one in entries if one.key not in given]
    below += [one for one in others if one.key in bounded]
    more = [replace(one, mark="#   ") for one in others if one.key not in bounded]
    below += [Remark("Worth searching as well:"), *more] if more else []
    return DraftEntry("space", below=tuple(below))


def _workload(models: Mapping[str, DraftedModel], given: Given) -> DraftEntry:
    below: list[DraftEntry | Remark] = []
    if are_for_sequences(models):
        below += sequence_arrivals_lines(of_file=given.sequences)
    elif given.arrivals:
        below.append(DraftEntry("arrivals", flow(given.arrivals)))
    else:
        clock = "requests come on their own clock, as users do"
        below.append(DraftEntry("arrivals", "{kind: poisson}", clock, column=COLUMN))
    config = next(iter(models.values())).config
    return DraftEntry("workload", below=(*below, *requests_of(config, given)))


def requests_of(config: Any, given: Given) -> Iterator[DraftEntry | Remark]:
    """The content of requests to a model."""
    if given.batch_size > 1:
        yield DraftEntry("batch_size", flow(given.batch_size))
    if given.file:
        yield DraftEntry("inputs", flow({"kind": "file", "file": given.file}))
    else:
        yield DraftEntry("inputs", below=tuple(_random_inputs(config, given)))


def _random_inputs(config: Any, given: Given) -> Iterator[DraftEntry | Remark]:
    yours = "file: your own requests in perf_analyzer's JSON"
    yield DraftEntry("kind", "random", yours, column=COLUMN)
    yield DraftEntry("unique", "2000")
    if shapes := open_shapes(config):
        guessed = [name for name in shapes if name not in given.shapes]
        open_ones = f"{', '.join(guessed)}: open" if given.shapes else "open"
        open_ones += " in config.pbtxt, so guessed, and small: write what your users send"
        if all(tensor.optional for tensor in config.input):
            open_ones = "all inputs are optional: leave out those that your users do not send"
        below: list[DraftEntry | Remark] = [
            DraftEntry(flow(name), str(given.shapes.get(name, dims)))
            for name, dims in shapes.items()
        ]
        if any(path.startswith("input") for path, _, _ in batch_in_dims(config)):
            below.append(
                Remark("the first of these dimensions may be the batch once more: `tune lint`")
            )
        if {*inputs_of_any_length(config, may_batch=True)} & {*shapes}:
            below.append(Remark("one length for all: batches form here that do not in production;"))
            below.append(Remark("several: [{dims: [64], share: 70%}, {dims: [256], share: 30%}]"))
        why = open_ones if guessed else ""
        yield DraftEntry("shapes", remark=why, below=tuple(below), column=COLUMN)
    if sizes := sorted(shape_tensors(config)):
        yield Remark(
            f"{', '.join(sizes)}: sizes (is_shape_tensor), so random values end in errors:"
        )
        yield Remark("give requests by a file, inputs: {kind: file, file: requests.json}")
    strings = (t for t in inputs_sent(config) if enum_name(t, "data_type") == "TYPE_STRING")
    texts = [flow(tensor.name) for tensor in strings]
    if texts:
        yield Remark(f"random strings for {', '.join(texts)}: some models reject them")
    if named := [
        flow(tensor.name) for tensor in inputs_sent(config) if _has_meaning(tensor, config)
    ]:
        yield Remark(
            f"random values for {', '.join(named)}: if a setting, a length, a key, a file,"
        )
        yield Remark("give real ones, inputs: {kind: file, file: requests.json}")


def _has_meaning(tensor: Any, config: Any) -> bool:
    """Whether a tensor is probably a number that the code acts on, or the bytes of a file."""
    kind, dims = enum_name(tensor, "data_type"), list(tensor.dims)
    referring = dims == [-1] and is_named(tensor, _REFERRING, config)
    one = dims == [1] or is_setting(tensor, config) or referring
    number = kind.startswith(("TYPE_INT", "TYPE_UINT")) and one
    return (number and not tensor.is_shape_tensor) or (kind == "TYPE_UINT8" and dims == [-1])


def shared_bounds(models: Mapping[str, DraftedModel], slo: Slo) -> dict[str, Slo]:
    """The latency bound of each model that a request passes, one after the other."""
    named = [n for n, p in models.items() if p.calls or not is_ensemble(p.config)]
    return dict.fromkeys(named, replace(slo, bound=slo.bound / len(named)))


def models_entry(
    models: Mapping[str, DraftedModel],
    machine: Machine,
    bounds: Mapping[str, Slo],
    known: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> DraftEntry:
    """The ``models`` section: the space of each model, unless ``known`` has one.

    ``bounds``: the latency bound of each model with fields to search; an ensemble has none.
    """
    below = []
    for name, bound in bounds.items():
        part = models[name]
        if part.config.backend in LLM_BACKENDS:
            below.append(DraftEntry(flow(name), "{}", "a language model: loaded, not searched"))
            continue
        entries: list[DraftEntry | Remark] = []
        if part.calls or part.unnamed:
            entries.append(DraftEntry("calls", flow(part.calls), "by its own code"))
        if part.unnamed:
            text = "calls models by names that are made at run time: list them all"
            entries.append(Remark(f"{', '.join(part.unnamed)} {text}"))
        if not is_ensemble(part.config):
            given = known.get(name, {})
            fields = [*space_of(part, machine, bound, given, alone=len(models) == 1)]
            entries.append(_space(given, fields, part.bounds))
        below.append(DraftEntry(flow(name), below=tuple(entries)))
    together = "searched together, under one load"
    return DraftEntry("models", remark=together, below=tuple(below), column=COLUMN)


def tail_of(machine: Machine) -> Iterator[DraftEntry | Remark]:
    """The budget, and a remark on the machine from which ranges follow."""
    budget, first = f"{{trials: {TRIALS}, time: {BUDGET_S // 60}m}}", "whichever comes first"
    yield DraftEntry("budget", budget, first, column=COLUMN)
    yield DraftEntry("confirm", "{min_gain: 2%}", "the winner must prove itself again", column=26)
    here = f"{count_text(machine.cores, 'core')}, {count_text(machine.gpus, 'GPU')}"
    yield Remark(f"Machine: {here}.")
