"""Every candidate a spec allows: which values go together, how many there are, which are equal.

Two candidates that Triton cannot tell apart have one key, so that nothing is measured twice:
without dynamic batching there are no delay and no preferred sizes; a batch of at most one needs
no batcher; preferring just `max_batch_size` is Triton's own default (its core fills that in).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tuner.modelconfig.base import Base
from tuner.modelconfig.path import get
from tuner.modelconfig.rules import Violation, violations
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.conditions import Condition, conditions_of
from tuner.space.parameters import Parameter, RangeParameter
from tuner.spec.paths import CACHE_ENABLE, CACHE_SIZE, DYNAMIC_BATCHING, MAX_BATCH_SIZE, is_inside

#: Up to this many candidates `Space.size` asks Triton's rules about each.
COUNTED_ONE_BY_ONE = 2000
#: Draws before `Space.sample` gives up finding one that Triton would load.
MOST_DRAWS = 200

#: Values by parameter path; a parameter that means nothing beside the others is left out.
Values = Mapping[str, FieldValue]


@dataclass(frozen=True)
class Size:
    """Number of candidates; not ``exact`` when Triton's rules may exclude some of them."""

    count: int
    exact: bool


@dataclass(frozen=True)
class Space:
    """What the search may try.

    Attributes:
        parameters: What others depend on comes first.
        config: The model's, as its file has it and as the server completes it.
        server_args: Of the spec, without those that the candidates bring themselves.
        current: The model as it is; it need not lie in the space.
    """

    parameters: tuple[Parameter, ...]
    config: Base = field(repr=False)
    server_args: tuple[str, ...] = ()
    current: Candidate = field(default_factory=Candidate)

    @property
    def base(self) -> Any:
        """Triton's ModelConfig message of the model as it runs now."""
        return self.config.completed

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.parameters)

    @property
    def restarts(self) -> bool:
        """Some candidates need a server started with other arguments."""
        return CACHE_SIZE in self.paths

    @property
    def batcher_implied(self) -> bool:
        """A field inside ``dynamic_batching`` is searched, but not whether there is any."""
        paths = self.paths
        return DYNAMIC_BATCHING not in paths and any(is_inside(p, DYNAMIC_BATCHING) for p in paths)

    def narrow(self, parameter: Parameter, chosen: Values) -> Parameter | None:
        """``parameter`` with the values that are left beside ``chosen``; None: means nothing.

        ``chosen`` holds the parameters before it. A parameter may be left without any value.
        """
        left: Parameter | None = parameter
        for condition in self._conditions[parameter.path]:
            if left is not None:
                left = condition.narrow(left, self._beside(condition, chosen))
        return left

    def candidate(self, values: Values) -> Candidate:
        """The candidate with these values, in the one form that all its equals share.

        Values of parameters that mean nothing beside the others are ignored. Preferred sizes
        above max_batch_size are dropped, which may lead outside the space: ask `contains`.
        """
        chosen: dict[str, FieldValue] = {}
        for parameter in self.parameters:
            narrowed = self.narrow(parameter, chosen)
            if narrowed is None:
                continue
            value = values.get(parameter.path)
            for condition in self._conditions[parameter.path]:
                value = condition.fit(value, narrowed, self._beside(condition, chosen))
            chosen[parameter.path] = value
        return self._assemble(chosen)

    def values(self, candidate: Candidate) -> dict[str, FieldValue]:
        """Value of each parameter that means something in ``candidate``."""
        chosen: dict[str, FieldValue] = {}
        for parameter in self.parameters:
            if self.narrow(parameter, chosen) is None:
                continue
            if parameter.path == CACHE_SIZE:
                chosen[CACHE_SIZE] = candidate.cache_bytes
            else:
                chosen[parameter.path] = candidate.of("").get(parameter.path)
        return chosen

    def contains(self, candidate: Candidate) -> bool:
        """It has only values of the spec, in canonical form. Triton's rules are not asked."""
        values = self.values(candidate)
        for parameter in self.parameters:
            if parameter.path in values:
                narrowed = self.narrow(parameter, values)
                if narrowed is None or values[parameter.path] not in narrowed:
                    return False
        return self.candidate(values) == candidate

    def canonical(self, candidate: Candidate) -> Candidate:
        """Its equal in the space; the candidate itself when there is none.

        Only the current config can differ from its equal: a file may say what Triton assumes.
        """
        values = self.values(candidate)
        batching = candidate.of("").get(DYNAMIC_BATCHING) is True
        if self.batcher_implied and not batching and self._max_batch_size(values) > 1:
            return candidate
        equal = self.candidate(values)
        return equal if self.contains(equal) else candidate

    def message(self, candidate: Candidate) -> Any:
        """The model's config with the candidate's fields (a new ModelConfig message)."""
        return self.config.message(candidate.of(""))

    def alike(self, one: Candidate, other: Candidate) -> bool:
        """Whether Triton is given the same: what a file leaves out has its default."""
        same_cache = one.cache_bytes == other.cache_bytes
        return same_cache and bool(self.message(one) == self.message(other))

    def violations(self, candidate: Candidate) -> list[Violation]:
        """Why Triton would refuse the candidate; such a one never reaches a server."""
        completes = self.config.completes
        broken = violations(self.message(candidate), completes=completes)
        return [*broken, *self.config.violations(candidate.of(""))]

    def size(self) -> Size:
        """Conditions between parameters are counted exactly; Triton's rules in small spaces."""
        count = self._count(0, {})
        if count > COUNTED_ONE_BY_ONE:
            return Size(count, exact=False)
        return Size(sum(1 for _ in self.enumerate()), exact=True)

    def enumerate(self) -> Iterator[Candidate]:
        """Each candidate that Triton would load, once; the server's arguments change last."""
        return (c for c in self.combinations() if not self.violations(c))

    def combinations(self) -> Iterator[Candidate]:
        """Each candidate of the space, once, those that Triton would refuse included."""
        return (self._assemble(values) for values in self._walk(0, {}))

    def sample(self, rng: random.Random) -> Candidate | None:
        """A random candidate that Triton would load; None when none was found."""
        for _ in range(MOST_DRAWS):
            candidate = self.draw(rng)
            if candidate is not None and not self.violations(candidate):
                return candidate
        return None

    def draw(self, rng: random.Random) -> Candidate | None:
        """A random candidate; None when the values drawn first leave none for the others."""
        chosen: dict[str, FieldValue] = {}
        for parameter in self.parameters:
            narrowed = self.narrow(parameter, chosen)
            if narrowed is not None and not narrowed.count:
                return None
            if narrowed is not None:
                chosen[parameter.path] = narrowed.draw(rng)
        return self._assemble(chosen)

    def coarse(self, points: int) -> Space:
        """The same with at most ``points`` values of each range: for a grid."""
        parameters = tuple(
            p.coarse(points) if isinstance(p, RangeParameter) else p for p in self.parameters
        )
        return replace(self, parameters=parameters)

    def _max_batch_size(self, chosen: Values) -> int:
        value = chosen.get(MAX_BATCH_SIZE, self.base.max_batch_size)
        return value if isinstance(value, int) else 0

    @cached_property
    def _conditions(self) -> Mapping[str, tuple[Condition, ...]]:
        return {path: conditions_of(path, self.paths) for path in self.paths}

    @cached_property
    def _parents(self) -> Mapping[str, FieldValue]:
        """What fields depend on, with the model's value where it is not searched."""
        parents = {c.parent for conditions in self._conditions.values() for c in conditions}
        return {p: None if p in self.paths else get(self.base, p) for p in parents}

    def _beside(self, condition: Condition, chosen: Values) -> FieldValue:
        return chosen.get(condition.parent, self._parents[condition.parent])

    def _assemble(self, chosen: Values) -> Candidate:
        fields = {path: value for path, value in chosen.items() if path != CACHE_SIZE}
        size = chosen.get(CACHE_SIZE)
        cache_bytes = size if isinstance(size, int) else None
        if CACHE_SIZE in chosen:
            fields[CACHE_ENABLE] = None if cache_bytes is None else True
        if self.batcher_implied:
            fields[DYNAMIC_BATCHING] = True if self._max_batch_size(chosen) > 1 else None
        return Candidate.of_models({"": fields}, cache_bytes)

    def _walk(self, index: int, chosen: Values) -> Iterator[Values]:
        if index == len(self.parameters):
            yield chosen
            return
        parameter = self.parameters[index]
        narrowed = self.narrow(parameter, chosen)
        if narrowed is None:
            yield from self._walk(index + 1, chosen)
            return
        for value in narrowed:
            yield from self._walk(index + 1, {**chosen, parameter.path: value})

    def _count(self, index: int, chosen: Values) -> int:
        if index == len(self.parameters):
            return 1
        parameter = self.parameters[index]
        narrowed = self.narrow(parameter, chosen)
        if narrowed is None:
            return self._count(index + 1, chosen)
        if parameter.path not in self._parents:
            return narrowed.count * self._count(index + 1, chosen)
        return sum(self._count(index + 1, {**chosen, parameter.path: v}) for v in narrowed)
