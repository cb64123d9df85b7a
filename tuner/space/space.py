"""The search space: all candidates that a spec allows, their number, and which are equal.

The space of a run is the product of the spaces of its models and of its server: a field depends on
fields of the same model only, with one exception: where the size of the server's cache is searched,
the models that receive requests directly use the cache. A candidate that Triton would refuse, for
one model or between models, is in the space but is never tried. Two candidates that Triton treats
alike (`tuner.space.conditions`, `Space.sizes_without_effect`) have the same key, so that none is
measured twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tuner.modelconfig.path import get
from tuner.modelconfig.queues import policy_of_queue, queue_policies, timeouts_within_delay
from tuner.modelconfig.rules import Rule, Violation
from tuner.modelconfig.served import Served
from tuner.space.candidate import CACHE, Candidate, FieldValue
from tuner.space.conditions import Condition, conditions_of, least_batch
from tuner.space.parameters import SERVER, Knob, Parameter, RangeParameter, up_to
from tuner.space.walk import Values, Walk
from tuner.spec.paths import (
    CACHE_ENABLE,
    DELAY,
    DIRECT,
    DYNAMIC_BATCHING,
    MAX_BATCH_SIZE,
    OLDEST,
    is_inside,
    is_scheduling,
)

#: Up to this many candidates, `Space.size` applies Triton's rules to each.
COUNTED_ONE_BY_ONE = 2000
#: Most draws of `Space.sample` for a candidate that Triton would load.
MOST_DRAWS = 200


@dataclass(frozen=True)
class Size:
    """Number of candidates; not ``exact`` where Triton's rules may exclude some of them."""

    count: int
    exact: bool


@dataclass(frozen=True)
class Space:
    """The search space of a run.

    Attributes:
        parameters: Those of the server, then of each model; parents come first.
        targets: Names of the models that receive requests directly.
        server_args: The server arguments of the spec, without those that candidates set.
        one_row: Names of the models that receive only requests of one row, and only from clients.
        rows: Rows of the largest request, where above 1, by the model's name.
        current: The current config; it may be outside the space.
    """

    parameters: tuple[Parameter, ...]
    served: Served = field(repr=False)
    targets: tuple[str, ...] = ()
    server_args: tuple[str, ...] = ()
    one_row: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    current: Candidate = field(default_factory=Candidate)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.parameters)

    @property
    def restarts(self) -> bool:
        """Whether some candidates need a server with another start."""
        return any(p.knob.owner == SERVER for p in self.parameters)

    @property
    def caches(self) -> bool:
        """Whether the size of the response cache is searched."""
        return any(p.knob == CACHE for p in self.parameters)

    def with_caches_up_to(self, memory_bytes: int) -> Space:
        """The space without cache sizes above ``memory_bytes``; `SpecError` if none is left."""
        kept = (up_to(p, memory_bytes) if p.knob == CACHE else p for p in self.parameters)
        return replace(self, parameters=tuple(kept))

    def narrow(self, parameter: Parameter, chosen: Values) -> Parameter | None:
        """``parameter`` with the values allowed beside ``chosen``; None: it has no effect.

        ``chosen`` has the values of the parameters before it. There may be no value left.
        """
        left: Parameter | None = parameter
        for parent, condition in self._conditions[parameter.knob]:
            if left is not None:
                left = condition.narrow(left, self._value(parent, chosen))
        return left

    def candidate(self, values: Values) -> Candidate:
        """The candidate with these values, in canonical form.

        Values of parameters without an effect beside the others are ignored. Preferred sizes above
        max_batch_size are dropped, after which the candidate may be outside the space: see
        `contains`.
        """
        chosen: dict[Knob, FieldValue] = {}
        for parameter in self.parameters:
            narrowed = self.narrow(parameter, chosen)
            if narrowed is None:
                continue
            value = values.get(parameter.knob)
            for parent, condition in self._conditions[parameter.knob]:
                value = condition.fit(value, narrowed, self._value(parent, chosen))
            chosen[parameter.knob] = value
        return self._assemble(chosen)

    def values(self, candidate: Candidate) -> dict[Knob, FieldValue]:
        """The value of each parameter that has an effect in ``candidate``."""
        chosen: dict[Knob, FieldValue] = {}
        for parameter in self.parameters:
            if self.narrow(parameter, chosen) is not None:
                chosen[parameter.knob] = candidate.values.get(parameter.knob)
        return chosen

    def contains(self, candidate: Candidate) -> bool:
        """Whether its values are in the spec, in canonical form, whatever Triton's rules say."""
        values = self.values(candidate)
        for parameter in self.parameters:
            if parameter.knob in values:
                narrowed = self.narrow(parameter, values)
                if narrowed is None or values[parameter.knob] not in narrowed:
                    return False
        return self.candidate(values) == candidate

    def leaves(self, candidate: Candidate) -> bool:
        """Whether the candidate keeps parameters with a single value, such as a queue policy."""
        values = self.values(candidate)
        return all(p.count > 1 or values[p.knob] in p for p in self.parameters if p.knob in values)

    def canonical(self, candidate: Candidate) -> Candidate:
        """The equal candidate in canonical form, if it is in the space; else the given one.

        Only the current config can differ from its canonical form: a file may state defaults.
        """
        values = self.values(candidate)
        for batcher, size in self.implied_batchers:
            if candidate.values.get(batcher) is not True and self._is_batched(size, values):
                return candidate
        equal = self.candidate(values)
        return equal if self.contains(equal) else candidate

    def configs(self, candidate: Candidate) -> dict[str, Any]:
        """The config of each model with the candidate's fields, by label, as new messages."""
        return dict(self.served.configs(candidate.models))

    def queue_delay_us(self, candidate: Candidate) -> float:
        """Microseconds by which batchers, one after the other, delay a request that is alone."""
        delays = 0.0
        for config in self.configs(candidate).values():
            sequences = config.sequence_batching
            for batcher in (config.dynamic_batching, sequences.oldest, sequences.direct):
                delays += batcher.max_queue_delay_microseconds
        return delays

    @property
    def only_schedules(self) -> bool:
        """Whether no parameter changes the time that a request takes outside of queues."""
        caches = ("response_cache", CACHE_ENABLE)
        return all(
            p.knob != CACHE and is_scheduling(p.path) and p.path not in caches
            for p in self.parameters
        )

    def alike(self, one: Candidate, other: Candidate) -> bool:
        """Whether Triton treats two candidates alike, with defaults for omitted fields."""
        return one.start == other.start and self._in_effect(one) == self._in_effect(other)

    def _in_effect(self, candidate: Candidate) -> dict[str, Any]:
        """The configs; without a batcher and with requests of one row, all batches are of one."""
        configs = self.configs(candidate)
        for config in (configs[model] for model in self.one_row):
            if config.max_batch_size and config.WhichOneof("scheduling_choice") is None:
                config.max_batch_size = 1
        return configs

    def violations(self, candidate: Candidate) -> list[Violation]:
        """Why the candidate must not be deployed; empty if it may.

        Triton would refuse the config, or reject requests: those larger than its batches or, unlike
        the current config, those that time out within a queue delay.
        """
        broken = self.served.violations(candidate.models)
        for model, rows in self.rows.items():
            base = self.served.models[model].base.completed.max_batch_size
            size = candidate.of(model).get(MAX_BATCH_SIZE, base)
            if isinstance(size, int) and 0 < size < rows:
                text = f"max_batch_size {size}: requests have {rows} rows"
                broken.append(Violation(Rule.MAX_BATCH_SIZE, MAX_BATCH_SIZE, text, owner=model))
        for model, known in self._queues.items():
            broken += [
                Violation(Rule.TIMEOUT_WITHIN_DELAY, path, text, owner=model)
                for path, text in self._timeouts_within_delay(model, candidate)
                if (path, text) not in known
            ]
        return broken

    def paths_of(self, owner: str) -> list[str]:
        """The searched fields of a model, or of `SERVER`."""
        return [p.path for p in self.parameters if p.knob.owner == owner]

    @cached_property
    def _queues(self) -> Mapping[str, frozenset[tuple[str, str]]]:
        """Violations of the current config, by model, where timeouts or delays are searched."""
        queues = {}
        for name, model in self.served.models.items():
            paths = self.paths_of(name)
            policies = any("queue_policy" in path for path in paths)
            if policies or (DELAY in paths and any(queue_policies(model.base.completed))):
                queues[name] = frozenset(self._timeouts_within_delay(name, self.current))
        return queues

    def _timeouts_within_delay(self, model: str, candidate: Candidate) -> Iterator[tuple[str, str]]:
        return timeouts_within_delay(self.served.models[model].base.message(candidate.of(model)))

    def size(self) -> Size:
        """The number of candidates: exact in small spaces, else without Triton's rules."""
        count = self._walk.count()
        if count > COUNTED_ONE_BY_ONE:
            return Size(count, exact=False)
        return Size(sum(1 for _ in self.enumerate()), exact=True)

    def enumerate(self) -> Iterator[Candidate]:
        """Each candidate that Triton would load, once; server settings change last."""
        return (c for c in self.steps() if c is not None and not self.violations(c))

    def steps(self) -> Iterator[Candidate | None]:
        """Each candidate, once, those that Triton would refuse included; None for steps without.

        A limited number of steps takes a limited time in any space.
        """
        for values in self._walk.steps():
            candidate = None if values is None else self._assemble(values)
            yield candidate if candidate and _has(candidate, values or {}) else None

    def sample(self, rng: random.Random, known: Candidate | None = None) -> Candidate | None:
        """A random candidate that Triton would load; None where no draw gave one.

        With many models, a random draw seldom satisfies all rules. So further draws change one
        model at a time: of the best draw, or of ``known``, a candidate that Triton would load.
        """
        owners = [*dict.fromkeys(p.knob.owner for p in self.parameters)]
        best: Values | None = None
        fewest, values = math.inf, self._drawn(rng)
        for _ in range(MOST_DRAWS):
            if values is not None:
                candidate = self._assemble(values)
                refused = len(self.violations(candidate))
                if not refused:
                    return candidate
                if best is None and known is not None:
                    best, fewest = self.values(known), 0
                if refused <= fewest:
                    best, fewest = values, refused
            again = None if best is None else rng.choice(owners)
            values = self._drawn(rng, best or {}, again)
        return None

    def draw(self, rng: random.Random) -> Candidate | None:
        """A random candidate; None where the first values leave none for other parameters."""
        values = self._drawn(rng)
        return None if values is None else self._assemble(values)

    def _drawn(
        self, rng: random.Random, kept: Values | None = None, owner: str | None = None
    ) -> dict[Knob, FieldValue] | None:
        """Random values of all parameters, or of ``owner``'s beside ``kept``; None as in `draw`."""
        chosen = {k: v for k, v in (kept or {}).items() if k.owner != owner}
        for parameter in self.parameters:
            if owner not in (None, parameter.knob.owner):
                continue
            narrowed = self.narrow(parameter, chosen)
            if narrowed is not None and not narrowed.count:
                return None
            if narrowed is not None:
                chosen[parameter.knob] = narrowed.draw(rng)
        return chosen

    def coarse(self, points: int) -> Space:
        """The space with at most ``points`` values of each range, for a grid."""
        parts = (p.coarse(points) if isinstance(p, RangeParameter) else p for p in self.parameters)
        return replace(self, parameters=tuple(parts))

    @cached_property
    def implied_batchers(self) -> tuple[tuple[Knob, Knob], ...]:
        """The batcher and max_batch_size of each model for which fields inside
        ``dynamic_batching`` are searched, but not that message itself.
        """
        searched = {p.knob for p in self.parameters}
        inside = (k.owner for k in searched if is_inside(k.path, DYNAMIC_BATCHING))
        knobs = ((Knob(o, DYNAMIC_BATCHING), Knob(o, MAX_BATCH_SIZE)) for o in sorted({*inside}))
        return tuple((batcher, size) for batcher, size in knobs if batcher not in searched)

    @cached_property
    def _direct_by_name(self) -> tuple[str, ...]:
        """Models whose configs state the direct strategy for sequences."""
        models = self.served.models.items()
        return tuple(n for n, m in models if get(m.base.completed, DIRECT) is not None)

    @cached_property
    def _conditions(self) -> Mapping[Knob, tuple[tuple[Knob, Condition], ...]]:
        """The conditions of each parameter, with the knob of the parent in the same model."""
        conditions: dict[Knob, tuple[tuple[Knob, Condition], ...]] = {}
        for knob in (p.knob for p in self.parameters):
            searched, least = self.paths_of(knob.owner), self._least_batches.get(knob.owner, 2)
            known = () if knob.owner == SERVER else conditions_of(knob.path, searched, least)
            conditions[knob] = tuple((Knob(knob.owner, c.parent), c) for c in known)
        return conditions

    @cached_property
    def _least_batches(self) -> Mapping[str, int]:
        """The result of `least_batch` for each model, by its name."""
        batches = {}
        for name, model in self.served.models.items():
            queued = bool(policy_of_queue(model.base.completed))
            batches[name] = least_batch(self.paths_of(name), queued=queued)
        return batches

    @cached_property
    def _parents(self) -> Mapping[Knob, FieldValue]:
        """The parents of conditions, with the value in the model's config; None if searched."""
        searched = {p.knob for p in self.parameters}
        parents = {parent for conditions in self._conditions.values() for parent, _ in conditions}
        parents |= {size for _, size in self.implied_batchers}
        return {
            p: None if p in searched else get(self.served.models[p.owner].base.completed, p.path)
            for p in parents
        }

    def _value(self, knob: Knob, chosen: Values) -> FieldValue:
        return chosen[knob] if knob in chosen else self._parents[knob]

    def _is_batched(self, max_batch_size: Knob, chosen: Values) -> bool:
        owner, value = max_batch_size.owner, self._value(max_batch_size, chosen)
        return isinstance(value, int) and value >= self._least_batches[owner]

    def _assemble(self, chosen: Values) -> Candidate:
        values = dict(chosen)
        if CACHE in chosen:
            enabled = None if chosen[CACHE] is None else True
            values |= {Knob(label, CACHE_ENABLE): enabled for label in self.targets}
        for batcher, size in self.implied_batchers:
            values[batcher] = True if self._is_batched(size, chosen) else None
        for owner in self._direct_by_name:
            set_ones = (k.path for k, v in chosen.items() if k.owner == owner and v is not None)
            if any(path == OLDEST or is_inside(path, OLDEST) for path in set_ones):
                values[Knob(owner, DIRECT)] = None  # the strategies exclude each other
        for batcher, size, kept in self.sizes_without_effect:
            if values.get(batcher) is None:
                values[size] = kept
        return Candidate(values)

    @cached_property
    def sizes_without_effect(self) -> tuple[tuple[Knob, Knob, int], ...]:
        """The batcher and max_batch_size of models whose sizes have no effect without a batcher.

        The third value is the size in canonical form: the config's, else the largest.
        """
        searched, without_effect = {p.knob: p for p in self.parameters}, []
        for model in self.one_row:
            batcher, size = Knob(model, DYNAMIC_BATCHING), Knob(model, MAX_BATCH_SIZE)
            base = self.served.models[model].base.completed
            off = (batcher, size) not in self.implied_batchers
            if batcher in searched:
                off = None in searched[batcher]
            elif base.WhichOneof("scheduling_choice"):
                off = False
            sizes = [v for v in searched.get(size, ()) if isinstance(v, int) and v > 0]
            if off and sizes:
                stands = base.max_batch_size if base.max_batch_size in sizes else max(sizes)
                without_effect.append((batcher, size, stands))
        return tuple(without_effect)

    @cached_property
    def _walk(self) -> Walk:
        without_effect = (knob for sizes in self.sizes_without_effect for knob in sizes[:2])
        deciding = {*self._parents, *without_effect}
        return Walk.over(self.parameters, deciding, self.narrow, self._stands)

    def _stands(self, values: Values) -> bool:
        """Whether values are in canonical form, among those that Triton treats alike."""
        return _has(self._assemble(values), values)


def _has(candidate: Candidate, values: Values) -> bool:
    return all(candidate.values.get(knob) == value for knob, value in values.items())
