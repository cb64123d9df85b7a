"""The candidates among which a strategy chooses its next proposal."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import islice

from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import Parameter, RangeParameter
from tuner.space.space import Space

#: Most candidates of a space of which all are considered.
SMALL = 1200
#: A space with more combinations counts as large, even if Triton would load few of them.
MOST_LISTED = 50_000
#: From a large space: this many random candidates, and this many neighbors of each good one.
RANDOM, NEAR = 500, 40
#: Most random draws.
_DRAWS = 3 * RANDOM


@dataclass
class Pool:
    """Candidates of a space; a small space is listed once."""

    space: Space
    _listed: list[Candidate] | None = field(default=None, init=False)

    def draw(
        self, rng: random.Random, good: Sequence[Candidate], taken: Set[str]
    ) -> list[Candidate]:
        """Distinct candidates that are not ``taken``, with neighbors of the ``good`` ones."""
        listed = self._all_if_few()
        if listed:
            return [c for c in listed if c.key not in taken]
        by_key: dict[str, Candidate] = {}
        for candidate in good:
            for near in neighbours(self.space, candidate, rng, NEAR):
                by_key.setdefault(near.key, near)
        drawn = None
        for _ in range(_DRAWS):
            if len(by_key) >= RANDOM + NEAR * len(good):
                break
            drawn = self.space.sample(rng, drawn)
            if drawn is not None:
                by_key.setdefault(drawn.key, drawn)
        return [c for key, c in by_key.items() if key not in taken]

    def _all_if_few(self) -> list[Candidate]:
        """All candidates of a small space; empty for a large one."""
        if self._listed is None:
            size = self.space.size()
            few = size.count <= (SMALL if size.exact else MOST_LISTED)
            listed = list(islice(self.space.enumerate(), SMALL + 1)) if few else []
            self._listed = listed if len(listed) <= SMALL else []
        return self._listed


def neighbours(
    space: Space, candidate: Candidate, rng: random.Random, most: int
) -> list[Candidate]:
    """At most ``most`` candidates that differ in one parameter, in random order."""
    values = space.values(candidate)
    steps = [(p.knob, v) for p in space.parameters for v in _others(p, values.get(p.knob))]
    rng.shuffle(steps)
    by_key: dict[str, Candidate] = {}
    for knob, value in steps:
        if len(by_key) == most:
            break
        near = space.candidate({**values, knob: value})
        if near != candidate and space.contains(near) and not space.violations(near):
            by_key.setdefault(near.key, near)
    return list(by_key.values())


def _others(parameter: Parameter, now: FieldValue) -> list[FieldValue]:
    """Other values: all of a choice; of a range, those a step, a factor of 1.35 or of 2 away."""
    if not isinstance(parameter, RangeParameter):
        return list(parameter)
    if not isinstance(now, int) or now not in parameter.span:
        return list(parameter.coarse(5))
    steps = (1.35, 2.0) if parameter.log else ()
    near = {now - parameter.step, now + parameter.step}
    near |= {round(now * s) for s in steps} | {round(now / s) for s in steps}
    return [*parameter.special, *sorted(v for v in near if v in parameter.span)]
