"""Enumerates and counts all combinations of values, in time proportional to those visited.

Parameters belong to owners, and depend on parameters of the same owner only. For each owner, some
parameters decide about others; for given values of these, the rest are independent of each other.
So it is known early whether given values lead to any combination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from tuner.modelconfig.values import FieldValue
from tuner.space.parameters import Knob, Parameter

#: Values by the parameter's knob, without parameters that have no effect beside the others.
Values = Mapping[Knob, FieldValue]

#: Most combinations of one owner's deciding parameters that are counted one by one.
COUNTED_CHOICES = 20_000


@dataclass(frozen=True)
class OwnerParameters:
    """The parameters of one owner, each after those that it depends on."""

    deciding: tuple[Parameter, ...]
    others: tuple[Parameter, ...]


@dataclass(frozen=True)
class Walk:
    """The combinations of a space.

    Attributes:
        parts: The parameters of each owner.
        narrow: The parameter with the values left beside those chosen before it; None: it has no
            effect there.
        stands: Whether values are in canonical form, among those that Triton treats alike.
    """

    parts: tuple[OwnerParameters, ...]
    narrow: Callable[[Parameter, Values], Parameter | None]
    stands: Callable[[Values], bool]

    @classmethod
    def over(
        cls,
        parameters: Sequence[Parameter],
        deciding: Collection[Knob],
        narrow: Callable[[Parameter, Values], Parameter | None],
        stands: Callable[[Values], bool],
    ) -> Walk:
        """The walk over ``parameters``, which are sorted by owner.

        ``deciding``: the knobs on which other parameters depend.
        """
        parts = []
        for _, group in groupby(parameters, key=attrgetter("knob.owner")):
            of_owner = tuple(group)
            first = tuple(p for p in of_owner if p.knob in deciding)
            others = tuple(p for p in of_owner if p.knob not in deciding)
            parts.append(OwnerParameters(first, others))
        return cls(tuple(parts), narrow, stands)

    def steps(self) -> Iterator[Values | None]:
        """Each combination once; None for each step that leads to none."""
        return self._of_parts(self.parts)

    def count(self) -> int:
        """The number of combinations; an upper bound beyond `COUNTED_CHOICES` of one owner."""
        return math.prod(map(self._count, self.parts))

    def _count(self, part: OwnerParameters) -> int:
        if math.prod(p.count for p in part.deciding) > COUNTED_CHOICES:
            return math.prod(p.count for p in (*part.deciding, *part.others))
        remaining = (self._left(part, chosen) for chosen in self._choices(part.deciding, {}))
        return sum(math.prod(p.count for p in left) for left in remaining if left is not None)

    def _of_parts(self, parts: Sequence[OwnerParameters]) -> Iterator[Values | None]:
        if not parts:
            yield {}
            return
        for chosen in self._choices(parts[0].deciding, {}):
            left = self._left(parts[0], chosen)
            if left is None:
                yield None
                continue
            for values in _product(left, chosen):
                for more in self._of_parts(parts[1:]):
                    yield None if more is None else {**values, **more}

    def _choices(self, parameters: Sequence[Parameter], chosen: Values) -> Iterator[Values]:
        if not parameters:
            yield chosen
            return
        narrowed = self.narrow(parameters[0], chosen)
        if narrowed is None:
            yield from self._choices(parameters[1:], chosen)
            return
        for value in narrowed:
            yield from self._choices(parameters[1:], {**chosen, parameters[0].knob: value})

    def _left(self, part: OwnerParameters, chosen: Values) -> list[Parameter] | None:
        """The other parameters with an effect; None where ``chosen`` has no combination."""
        if not self.stands(chosen):
            return None
        narrowed = (self.narrow(p, chosen) for p in part.others)
        left = [p for p in narrowed if p is not None]
        return left if all(p.count for p in left) else None


def _product(parameters: Sequence[Parameter], chosen: Values) -> Iterator[Values]:
    if not parameters:
        yield chosen
        return
    for value in parameters[0]:
        yield from _product(parameters[1:], {**chosen, parameters[0].knob: value})
