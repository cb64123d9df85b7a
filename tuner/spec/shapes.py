"""The shapes of random requests: one for all, or several, each with its share of the requests.

A request has one shape: where several inputs are mixed, the first entries of their lists go
together, then the second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isclose
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from tuner.spec.fields import Count, Strict
from tuner.spec.mistakes import Finding, Location
from tuner.spec.units import Percent, count_text

Dims = tuple[Count, ...]


class ShapeShare(Strict):
    """One of several shapes of an input.

    Where several inputs have such lists, these have the same shares in the same order: the first
    shapes go together in one request, then the second ones.
    """

    dims: Dims = Field(description="without the batch")
    share: Percent = Field(description="of the requests")


#: Names of the two forms in the places of pydantic's errors; no key of a spec has a NUL.
FORMS = ("\0one shape", "\0several shapes")


def _form(value: Any) -> str:
    items = value if isinstance(value, (list, tuple)) else ()
    return FORMS[any(isinstance(item, (dict, ShapeShare)) for item in items)]


#: The shape of one input, or several shapes with shares.
ShapeSpec = Annotated[
    Annotated[Dims, Tag(FORMS[0])]
    | Annotated[tuple[ShapeShare, ...], Field(min_length=1), Tag(FORMS[1])],
    Discriminator(_form),
]


@dataclass(frozen=True)
class RequestShape:
    """The shapes of the inputs of one request.

    Attributes:
        name: The name of the shape; "" where all requests have the same.
        share: The share of the requests, 0 to 1.
        dims: The dimensions of each input without the batch, by the input's name.
    """

    name: str
    share: float
    dims: Mapping[str, Sequence[int]]


def request_shapes(shapes: Mapping[str, Sequence[Any]]) -> tuple[RequestShape, ...]:
    """The shapes of requests, by the shapes of each input in the spec."""
    mixed = mixed_in(shapes)
    if not mixed:
        return (RequestShape("", 1.0, shapes),)
    named = []
    for together in zip(*mixed.values(), strict=True):
        dims = {name: entry.dims for name, entry in zip(mixed, together, strict=True)}
        name = _name(dims, alike=len({*mixed.values()}) == 1)
        named.append(RequestShape(name, float(together[0].share), {**shapes, **dims}))
    return tuple(named)


def mixed_in(shapes: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[ShapeShare]]:
    """The inputs that have several shapes."""
    return {name: shape for name, shape in shapes.items() if _form(shape) == FORMS[1]}


def _name(dims: Mapping[str, Dims], *, alike: bool) -> str:
    """The dimensions of a shape; with the inputs' names where inputs differ."""
    if alike:
        return str([*next(iter(dims.values()))])
    return ", ".join(f"{name} {[*sizes]}" for name, sizes in dims.items())


def shape_places(
    shapes: Mapping[str, Sequence[Any]], stream: str
) -> Iterator[tuple[int, str, Location]]:
    """The places of each input's dimensions, for each shape of the requests."""
    mixed = mixed_in(shapes)
    for name in shapes:
        at: Location = ("streams", stream, "inputs", "shapes", name)
        for number in range(max(map(len, mixed.values()), default=1)):
            yield number, name, (*at, number, "dims") if name in mixed else at


def check_shapes(shapes: Mapping[str, Sequence[Any]], where: Location) -> Iterator[Finding]:
    """Shares add up, numbers of dimensions are equal, and combined shapes have the same share."""
    mixed = mixed_in(shapes)
    for name, entries in mixed.items():
        yield from _check_entries(entries, (*where, name))
    for name in [*mixed][1:]:
        first, *_ = mixed
        yield from _check_together(first, mixed[first], mixed[name], (*where, name))
    dims = ([entry.dims for entry in shares] for shares in mixed.values())
    rows = [*zip(*dims, strict=False)]
    for k, row in enumerate(rows):
        if row in rows[:k]:
            yield Finding((*where, next(iter(mixed)), k, "dims"), "this shape is listed twice")


def _check_entries(entries: Sequence[ShapeShare], where: Location) -> Iterator[Finding]:
    for k, entry in enumerate(entries):
        if len(entry.dims) != len(entries[0].dims):
            text = f"{[*entry.dims]} has {len(entry.dims)} dimensions and {[*entries[0].dims]} has "
            yield Finding(
                (*where, k, "dims"), f"{text}{len(entries[0].dims)}: an input always has as many"
            )
        if entry.share == 0.0:
            yield Finding((*where, k, "share"), "no request has this shape: leave it out")
    if text := why_not_all(entry.share for entry in entries):
        yield Finding((*where, 0, "share"), text)


def why_not_all(shares: Iterable[float]) -> str:
    """Why shares do not add up to 100%; empty if they do."""
    total = fsum(shares)
    if isclose(total, 1.0, abs_tol=1e-6):
        return ""
    return f"the shares add up to {Percent(round(total, 6))}; they must add up to 100%"


def _check_together(
    first: str, leading: Sequence[ShapeShare], entries: Sequence[ShapeShare], where: Location
) -> Iterator[Finding]:
    rule = "the first ones go together in one request, then the second ones"
    if len(entries) != len(leading):
        text = f"{count_text(len(entries), 'shape')}, and {first} has {len(leading)}: {rule}"
        yield Finding(where, text)
        return
    for k, (entry, other) in enumerate(zip(entries, leading, strict=True)):
        if entry.share != other.share:
            text = f"the share here is {entry.share}, and that of {first} is {other.share}: {rule}"
            yield Finding((*where, k, "share"), text)
