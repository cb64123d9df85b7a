"""The commented spec that `tune init MODEL` writes: bounds from the model and the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.base import turns_on_batching, unragged_inputs
from tuner.modelconfig.ensembles import answers_many_times
from tuner.modelconfig.schema import enum_name
from tuner.modelconfig.traps import batch_in_dims, fixed_batch
from tuner.space.build import LLM_BACKENDS, refuse_unmeasurable
from tuner.space.draft_instances import Machine, any_on_gpu, instances
from tuner.space.draft_queue import longest_delay_us, queue_lines
from tuner.space.draft_sequences import sequence_arrivals_lines, sequence_space_lines
from tuner.space.draft_server import CACHE_LINES, cache_of_server, server_lines, variable_lines
from tuner.space.draft_slos import EXAMPLE, EXAMPLE_OF_MANY, latency_bound, slo_lines
from tuner.space.draft_text import flow, remark
from tuner.space.draft_variants import variants
from tuner.space.experts import EXPERTS, UNKNOWN, Expert
from tuner.space.sequences import takes_sequences
from tuner.spec.paths import (
    CONFIG_NAME,
    DELAY,
    MAX_BATCH_SIZE,
)
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


@dataclass(frozen=True)
class DraftedModel:
    """The drafted model, or one that is served with it: a step of it, or one that its code calls.

    Attributes:
        completes: The server may complete the config when it loads the model.
        calls: Models that its code names.
        unnamed: Where in its code it calls others, by names that are made at run time.
        least_batch: The batches it must take at the least, for its own warm-up samples and the
            ensembles it is a step of.
        why_least: A remark where that is for a warm-up sample.
        rows: Of a request.
        threads: A remark for each runtime whose threads its code leaves open; for CPUs.
        variables: What limits these in the server's environment.
        versions: Numbers of the version directories that there are.
    """

    config: Any
    completes: bool = False
    calls: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    least_batch: int = 0
    why_least: str = ""
    rows: int = 1
    threads: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()

    def fills(self, largest: int) -> bool:
        """Whether no two requests fit into a batch of the largest size."""
        return 1 < self.rows <= largest < 2 * self.rows


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
    for name in _answering(models, model):
        refuse_unmeasurable(name, models[name].config)
    many = answers_many_times(model, {name: part.config for name, part in models.items()})
    slos = slos or (EXAMPLE_OF_MANY if many else EXAMPLE,)
    bound = latency_bound((*given.slos, *slos) if given else slos)
    if is_ensemble(drafted.config) and len(models) == 1:
        hint = "put the models of its steps into the repository: they are what is searched"
        raise SpecError(f"{model} is an ensemble, and none of its models is there", hint)
    place = [f"model: {flow(model)}", f"repository: {flow(repository)}"]
    place += [] if write_to == CONFIG_NAME else [f"write_to: {write_to}"]
    given = given or Given(f"tune init {model}", slos)
    rows = given.batch_size
    models = {
        name: replace(part, least_batch=max(part.least_batch, rows), rows=rows)
        for name, part in models.items()
    }
    drafted = models[model]
    known, on_cpu = given.space, (p for p in models.values() if not any_on_gpu(p.config, machine))
    names = dict.fromkeys(name for part in on_cpu for name in part.variables)
    variables = variable_lines(names, server, machine.cores)
    if len(models) > 1 or drafted.unnamed:
        place += server_lines(server, why, variables)
        searched = _models(models, machine, bound, {model: known} if known else {})
        searched += [] if many else cache_of_server(variables)
    else:
        place += server_lines(server, why, [])
        cached = not many and not takes_sequences(drafted.config)
        fields = [*_space(drafted, machine, bound, known, alone=True), *variables]
        fields += CACHE_LINES if cached else ()
        fields = [*_given_space(known, fields)] if known else fields
        searched = ["space:", *(f"  {line}" for line in fields)]
    lines = [*_head(place, given), *_workload(models, given), *searched, *_tail(machine)]
    return "\n".join(lines) + "\n"


def _answering(models: Mapping[str, DraftedModel], model: str) -> list[str]:
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


def _head(place: list[str], given: Given) -> list[str]:
    best = "          # highest load that meets every SLO" if given.objective == GOODPUT else ""
    return [
        "# yaml-language-server: $schema=tune.schema.json",
        remark(f"Drafted by `{given.command}`. {_EVERY_LINE}"),
        "# and `tune schema > tune.schema.json` lets your editor complete and check them.",
        *(["# Not carried over:"] if given.left else []),
        *(remark(f"  {line}") for line in given.left),
        *place,
        "slo:                                 # what your users need: change this first",
        *slo_lines(given.slos, BUDGET_S / TRIALS),
        f"objective: {given.objective}{best}",
    ]


def _given_space(given: Mapping[str, Mapping[str, Any]], drafted: list[str]) -> Iterator[str]:
    """What is given, and, commented out, what the draft would search beside it."""
    for path, values in given.items():
        yield f"{flow(path)}: {flow(values)}"
    more = [line for line in drafted if not line.startswith("#")]
    more = [line for line in more if line.split(":", 1)[0] not in given]
    if more:
        yield "# Worth searching as well:"
        yield from (f"#   {line}" for line in more)


def _workload(models: Mapping[str, DraftedModel], given: Given) -> Iterator[str]:
    config = next(iter(models.values())).config
    yield "workload:"
    if any(takes_sequences(part.config) for part in models.values()):
        yield from sequence_arrivals_lines(of_file=given.sequences)
    elif given.arrivals:
        yield f"  arrivals: {flow(given.arrivals)}"
    else:
        yield "  arrivals: {kind: poisson}          # requests come on their own clock, as users do"
    if given.batch_size > 1:
        yield f"  batch_size: {given.batch_size}"
    if given.file:
        yield f"  inputs: {flow({'kind': 'file', 'file': given.file})}"
        return
    yield "  inputs:"
    yield "    kind: random                     # file: your own requests in perf_analyzer's JSON"
    yield "    unique: 2000"
    if shapes := open_shapes(config):
        guessed = [name for name in shapes if name not in given.shapes]
        open_ones = f"{', '.join(guessed)}: open" if given.shapes else "open"
        open_ones += " in config.pbtxt, so guessed, and small: write what your users send"
        yield f"    shapes:{f'                          {remark(open_ones)}' if guessed else ''}"
        yield from (f"      {flow(n)}: {given.shapes.get(n, dims)}" for n, dims in shapes.items())
        if any(path.startswith("input") for path, _, _ in batch_in_dims(config)):
            yield "      # the first of these dimensions may be the batch once more: `tune lint`"
        if unragged_inputs(config, may_batch=True):
            yield "      # one length for all: batches form here that do not in production;"
            yield "      # several: [{dims: [64], share: 70%}, {dims: [256], share: 30%}]"
    texts = [flow(t.name) for t in config.input if enum_name(t, "data_type") == "TYPE_STRING"]
    if texts:
        yield f"    # random strings for {', '.join(texts)}: some models reject them"


def _models(
    models: Mapping[str, DraftedModel],
    machine: Machine,
    slo: Slo,
    known: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> list[str]:
    """What is searched of each, where it is not ``known``; an ensemble has nothing of its own."""
    named = {n: p for n, p in models.items() if p.calls or not is_ensemble(p.config)}
    shared = replace(slo, bound=slo.bound / len(named))
    lines = [
        "models:                              # searched together, under the load on the whole"
    ]
    for name, part in named.items():
        if part.config.backend in LLM_BACKENDS:
            lines.append(f"  {flow(name)}: {{}}     # a language model: loaded, not searched")
            continue
        lines.append(f"  {flow(name)}:")
        if part.calls or part.unnamed:
            lines.append(f"    calls: {flow(part.calls)}     # by its own code")
        if part.unnamed:
            text = "calls models by names that are made at run time: list them all"
            lines.append("    " + remark(f"{', '.join(part.unnamed)} {text}"))
        if not is_ensemble(part.config):
            given = known.get(name, {})
            fields = [*_space(part, machine, shared, given, alone=len(models) == 1)]
            fields = [*_given_space(given, fields)] if given else fields
            lines += ["    space:", *(f"      {line}" for line in fields)]
    return lines


def _space(
    part: DraftedModel,
    machine: Machine,
    slo: Slo,
    known: Mapping[str, Mapping[str, Any]],
    *,
    alone: bool,
) -> Iterator[str]:
    """Beside what is ``known``; of several, not ``alone``, finer fields would make it too large."""
    config, expert = part.config, EXPERTS.get(part.config.backend, UNKNOWN)
    yield from map(remark, expert.remarks)
    on_gpu = any_on_gpu(config, machine)
    yield from () if on_gpu else map(remark, part.threads)
    most = math.inf if on_gpu else max(machine.cores, 2)
    for path, values in (expert.on_gpu if on_gpu else expert.on_cpu).items():
        yield _choice(path, values, most)
    yield from instances(config, machine)
    fixed = next(fixed_batch(config), None)
    if fixed is not None:
        yield remark(f"{fixed[1]}, so sizes are not searched.")
        yield remark(f"To batch, {fixed[2]}.")
    elif why := why_unbatched(config, completes=part.completes):
        yield f"# {why}."
        yield "# If the model can batch, say so in config.pbtxt and draft again: it gains most."
    elif config.max_batch_size:
        yield from _batching(part, expert, slo, known, alone=alone)
    else:
        yield from _completed_batching(expert.sizes if alone else (), slo)
    yield from variants(part.versions)
    if rare := (expert.rare_on_gpu if on_gpu else expert.rare_on_cpu) if alone else {}:
        yield "# Few models gain from these:"
        for path, given in rare.items():
            yield f"#   {_choice(path, given.values, most)}     # {given.why}"


def _choice(path: str, values: Sequence[Any], most: float) -> str:
    fit = [value for value in values if not str(value).isdecimal() or int(value) <= most]
    return f"{path}: {{choice: {flow(fit)}}}"


def why_unbatched(config: Any, *, completes: bool) -> str:
    """Why nothing about a model's batches is searched; empty where it is."""
    if config.max_batch_size > 1 or (completes and not config.max_batch_size):
        return ""
    return f"max_batch_size is {config.max_batch_size}: Triton sends requests one by one"


def _completed_batching(sizes: tuple[int, ...], slo: Slo) -> Iterator[str]:
    yield "# config.pbtxt leaves max_batch_size to the server, which completes it when it loads the"
    yield "# model. A run asks it first, and searches this only where the model batches:"
    yield f"{DELAY}: {{int: [50, {longest_delay_us(slo)}], log: true, or: 0}}"
    if sizes:
        yield f"max_batch_size: {{choice: {[*sizes]}}}     # the server's default is {sizes[0]}"
    else:
        yield "# Smaller batches than the model's largest, where that is known:"
        yield "#   max_batch_size: {choice: [4, 8]}"


def _batching(
    part: DraftedModel,
    expert: Expert,
    slo: Slo,
    known: Mapping[str, Mapping[str, Any]],
    *,
    alone: bool,
) -> Iterator[str]:
    config, delay = part.config, longest_delay_us(slo)
    largest = config.max_batch_size
    above = (2 * largest,) if expert.larger and alone and not known else ()
    drafted = (largest // 4, largest // 2, largest, *above)
    sizes = [s for s in known.get(MAX_BATCH_SIZE, {}).get("choice", drafted) if s > 1]
    taken = [size for size in sizes if size >= part.least_batch]
    rows = f"No smaller size: a request has {part.rows} rows (batch_size)." * (part.rows > 1)
    if taken != sizes and (why := part.why_least or rows):
        yield f"# {why}"
    if taken:
        yield f"max_batch_size: {{choice: {taken}}}     # {largest} in config.pbtxt"
    if takes_sequences(config):
        yield from sequence_space_lines(largest, delay)
        return
    if part.fills(max(taken, default=largest)):
        yield f"# A request has {part.rows} rows and fills a batch: no delay and no preferred size"
        yield "# changes anything. Send fewer rows, or raise max_batch_size, to search these."
        return
    yield from _forming(part, expert, sizes, slo, alone=alone)


def _forming(
    part: DraftedModel, expert: Expert, sizes: Sequence[int], slo: Slo, *, alone: bool
) -> Iterator[str]:
    """What puts requests together."""
    config, delay = part.config, longest_delay_us(slo)
    if config.HasField("dynamic_batching"):
        yield "# Naming a field of dynamic_batching keeps it on. To search that too, add"
        yield "#   dynamic_batching: {choice: [off, on]}"
    elif expert.batches:
        by_itself = part.completes and turns_on_batching(config.backend, config)
        now = "the server turns it on by itself" if by_itself else "off in config.pbtxt"
        yield f"dynamic_batching: {{choice: [off, on]}}     # {now}"
    if alone:
        yield "# The config as it is now is always measured too; a run ends where it cannot be."
    yield f"{DELAY}: {{int: [50, {delay}], log: true, or: 0}}"
    if alone and expert.preferred:
        yield f"dynamic_batching.preferred_batch_size: {{subsets: {sizes}, at_most: 1, or: unset}}"
    if alone and expert.batches:
        yield from queue_lines(slo)


def _tail(machine: Machine) -> list[str]:
    return [
        f"budget: {{trials: {TRIALS}, time: {BUDGET_S // 60}m}}      # whichever comes first",
        "confirm: {min_gain: 2%}   # the winner must prove itself again",
        f"# Machine: {count_text(machine.cores, 'core')}, {count_text(machine.gpus, 'GPU')}.",
    ]
