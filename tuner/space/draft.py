"""The commented spec that `tune init MODEL` writes: bounds from the model and the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.base import unragged_inputs
from tuner.modelconfig.ensembles import answers_many_times
from tuner.modelconfig.schema import enum_name
from tuner.modelconfig.traps import batch_in_dims
from tuner.space.build import LLM_BACKENDS, refuse_unmeasurable
from tuner.space.draft_instances import Machine, any_on_gpu
from tuner.space.draft_sequences import sequence_arrivals_lines
from tuner.space.draft_server import CACHE, cache_of_server, server_section, variable_lines
from tuner.space.draft_slos import EXAMPLE, EXAMPLE_OF_MANY, latency_bound, slo_lines
from tuner.space.draft_space import DraftedModel, space_of
from tuner.space.draft_text import COLUMN, DraftEntry, Remark, flow, remarks, written
from tuner.space.sequences import takes_sequences
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.slo import Slo
from tuner.spec.units import count_text

GOODPUT = "maximize goodput"
#: The budget of a draft.
TRIALS, BUDGET_S = 30, 1200
#: The size used for a dimension that config.pbtxt leaves open, or less, so that an input has at
#: most this many elements: nobody should send megabytes in each request without asking for it.
OPEN_DIMENSION, MOST_ELEMENTS = 128, 1 << 16
_EVERY_LINE = "Every line may be changed; docs/spec.md has them all,"
_LOCAL = MappingProxyType({"mode": "local"})


@dataclass(frozen=True)
class Given:
    """What a draft takes over from elsewhere, in the spec's own words; what is empty it guesses.

    Attributes:
        command: What drafted it, for the first line.
        file: Of requests, relative to the spec.
        sequences: The file holds sequences.
        shapes: Of random requests.
        space: Path to its values.
        left: What could not be taken over, a line each.
    """

    command: str
    slos: tuple[str, ...]
    objective: str = GOODPUT
    arrivals: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 1
    file: str = ""
    sequences: bool = False
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    space: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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
        models: The model by its name, then those of its steps, those that its code calls, and
            theirs.
        repository: Path as it is to appear in the spec.
        slos: At least one of them on a latency; without any, an example.
        given: What is known already, and takes the place of the draft's own guesses.
        server: The spec's section, where nothing is given.
        why: A remark beside it.

    Raises:
        SpecError: No SLO is on a latency, or this search is not for such a kind of model; the
            hint says what is.
    """
    model, drafted = next(iter(models.items()))
    for name in answering(models, model):
        refuse_unmeasurable(name, models[name].config)
    many = answers_many_times(model, {name: part.config for name, part in models.items()})
    slos = slos or (EXAMPLE_OF_MANY if many else EXAMPLE,)
    bound = latency_bound((*given.slos, *slos) if given else slos)
    if is_ensemble(drafted.config) and len(models) == 1:
        hint = "put the models of its steps into the repository: they are what is searched"
        raise SpecError(f"{model} is an ensemble, and none of its models is there", hint)
    place = [DraftEntry("model", flow(model)), DraftEntry("repository", flow(repository))]
    place += [] if write_to == CONFIG_NAME else [DraftEntry("write_to", write_to)]
    given = given or Given(f"tune init {model}", slos)
    models = _with_rows(models, given.batch_size)
    drafted = models[model]
    searched: list[DraftEntry | Remark]
    known, on_cpu = given.space, (p for p in models.values() if not any_on_gpu(p.config, machine))
    names = dict.fromkeys(name for part in on_cpu for name in part.variables)
    variables = variable_lines(names, server, machine.cores)
    if len(models) > 1 or drafted.unnamed:
        place.append(server_section(server, why, variables))
        known_of = {model: known} if known else {}
        searched = [models_entry(models, machine, shared_bounds(models, bound), known_of)]
        searched += [] if many else cache_of_server(variables)
    else:
        place.append(server_section(server, why, []))
        cached = not many and not takes_sequences(drafted.config)
        fields = [*space_of(drafted, machine, bound, known, alone=True), *variables]
        fields += CACHE if cached else ()
        searched = [_space(known, fields)]
    draft = [*_head(place, given), _workload(models, given), *searched, *tail_of(machine)]
    return "\n".join(written(draft)) + "\n"


def _with_rows(models: Mapping[str, DraftedModel], rows: int) -> dict[str, DraftedModel]:
    """The models, which take batches of at least one request of so many rows."""
    return {
        name: replace(part, least_batch=max(part.least_batch, rows), rows=rows)
        for name, part in models.items()
    }


def answering(models: Mapping[str, DraftedModel], model: str) -> list[str]:
    """The model, and the steps of ensembles among those that its requests go through."""
    names = [model]
    for name in names:  # grows
        steps = (step.model_name for step in models[name].config.ensemble_scheduling.step)
        names += [step for step in steps if step in models and step not in names]
    return names


def open_shapes(config: Any) -> dict[str, list[int]]:
    """A guess for each input whose shape config.pbtxt leaves open, by name, but optional ones.

    The guess is the same for each open dimension, and small enough for `MOST_ELEMENTS`.
    """
    return {
        tensor.name: _guess(list(tensor.dims))
        for tensor in config.input
        if any(d < 0 for d in tensor.dims) and not tensor.optional
    }


def _guess(dims: list[int]) -> list[int]:
    guess = OPEN_DIMENSION
    while guess > 1 and math.prod(guess if d < 0 else d for d in dims) > MOST_ELEMENTS:
        guess //= 2
    return [guess if d < 0 else d for d in dims]


def _head(place: list[DraftEntry], given: Given) -> Iterator[DraftEntry | Remark]:
    yield from opening(given.command, given.left)
    yield from place
    slos = tuple(slo_lines(given.slos, BUDGET_S / TRIALS))
    first = "what your users need: change this first"
    yield DraftEntry("slo", remark=first, below=slos, column=COLUMN)
    best = "highest load that meets every SLO" if given.objective == GOODPUT else ""
    yield DraftEntry("objective", given.objective, best, column=COLUMN)


def opening(command: str, left: Sequence[str]) -> Iterator[DraftEntry | Remark]:
    """What drafted it, and what could not be taken over."""
    yield from remarks(
        "yaml-language-server: $schema=tune.schema.json",
        f"Drafted by `{command}`. {_EVERY_LINE}",
        "and `tune schema > tune.schema.json` lets your editor complete and check them.",
    )
    if left:
        yield Remark("Not carried over:")
        yield from (Remark(f"  {line}") for line in left)


def _space(
    given: Mapping[str, Mapping[str, Any]], drafted: list[DraftEntry | Remark]
) -> DraftEntry:
    """What is given and, commented out, what the draft would search beside it; else the draft."""
    if not given:
        return DraftEntry("space", below=tuple(drafted))
    below: list[DraftEntry | Remark] = [
        DraftEntry(flow(path), flow(field)) for path, field in given.items()
    ]
    entries = [one for one in drafted if isinstance(one, DraftEntry) and not one.mark]
    more = [replace(one, mark="#   ") for one in entries if one.key not in given]
    below += [Remark("Worth searching as well:"), *more] if more else []
    return DraftEntry("space", below=tuple(below))


def _workload(models: Mapping[str, DraftedModel], given: Given) -> DraftEntry:
    below: list[DraftEntry | Remark] = []
    if any(takes_sequences(part.config) for part in models.values()):
        below += sequence_arrivals_lines(of_file=given.sequences)
    elif given.arrivals:
        below.append(DraftEntry("arrivals", flow(given.arrivals)))
    else:
        clock = "requests come on their own clock, as users do"
        below.append(DraftEntry("arrivals", "{kind: poisson}", clock, column=COLUMN))
    config = next(iter(models.values())).config
    return DraftEntry("workload", below=(*below, *requests_of(config, given)))


def requests_of(config: Any, given: Given) -> Iterator[DraftEntry | Remark]:
    """What requests to a model carry."""
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
        below: list[DraftEntry | Remark] = [
            DraftEntry(flow(name), str(given.shapes.get(name, dims)))
            for name, dims in shapes.items()
        ]
        if any(path.startswith("input") for path, _, _ in batch_in_dims(config)):
            below.append(
                Remark("the first of these dimensions may be the batch once more: `tune lint`")
            )
        if unragged_inputs(config, may_batch=True):
            below.append(Remark("one length for all: batches form here that do not in production;"))
            below.append(Remark("several: [{dims: [64], share: 70%}, {dims: [256], share: 30%}]"))
        why = open_ones if guessed else ""
        yield DraftEntry("shapes", remark=why, below=tuple(below), column=COLUMN)
    texts = [flow(t.name) for t in config.input if enum_name(t, "data_type") == "TYPE_STRING"]
    if texts:
        yield Remark(f"random strings for {', '.join(texts)}: some models reject them")


def shared_bounds(models: Mapping[str, DraftedModel], slo: Slo) -> dict[str, Slo]:
    """What each model may take, of those that a request goes through one after the other."""
    named = [n for n, p in models.items() if p.calls or not is_ensemble(p.config)]
    return dict.fromkeys(named, replace(slo, bound=slo.bound / len(named)))


def models_entry(
    models: Mapping[str, DraftedModel],
    machine: Machine,
    bounds: Mapping[str, Slo],
    known: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> DraftEntry:
    """What is searched of each, where it is not ``known``; an ensemble has no fields to search.

    ``bounds``: what requests to each of those with something to search may take.
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
            entries.append(_space(given, fields))
        below.append(DraftEntry(flow(name), below=tuple(entries)))
    together = "searched together, under one load"
    return DraftEntry("models", remark=together, below=tuple(below), column=COLUMN)


def tail_of(machine: Machine) -> Iterator[DraftEntry | Remark]:
    """The budget, and the machine that bounds are from."""
    budget, first = f"{{trials: {TRIALS}, time: {BUDGET_S // 60}m}}", "whichever comes first"
    yield DraftEntry("budget", budget, first, column=COLUMN)
    yield DraftEntry("confirm", "{min_gain: 2%}", "the winner must prove itself again", column=26)
    here = f"{count_text(machine.cores, 'core')}, {count_text(machine.gpus, 'GPU')}"
    yield Remark(f"Machine: {here}.")
