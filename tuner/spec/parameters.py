"""The values a spec gives to try: ranges, lists and subsets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator

from tuner.spec.fields import (
    Count,
    Flag,
    Scalar,
    Strict,
    WholeNumber,
    number_or_unset,
    pair,
    unset,
)


class IntRange(Strict):
    """A whole number between two bounds, both included; ``or`` adds one value outside them."""

    int_: Annotated[tuple[WholeNumber, WholeNumber], BeforeValidator(pair)] = Field(
        alias="int", description="lowest and highest value"
    )
    log: Flag = Field(False, description="search by ratio rather than by difference")
    step: Count = Field(1, description="distance between values")
    or_: Annotated[Literal["unset"] | int | None, BeforeValidator(number_or_unset)] = Field(
        None, alias="or", description="one more value, a choice of its own: a number or unset"
    )

    @field_validator("log")
    @classmethod
    def _log_from_one(cls, log: bool, info: ValidationInfo) -> bool:
        low, _ = info.data.get("int_", (1, 1))
        if log and low < 1:
            raise ValueError(f"ratios need a lowest value of 1 or more, not {low}: start at 1")
        return log

    @field_validator("step")
    @classmethod
    def _step_fits(cls, step: int, info: ValidationInfo) -> int:
        low, high = info.data.get("int_", (0, 0))
        if step != 1 and info.data.get("log"):
            raise ValueError("step and log: true do not go together")
        if (high - low) % step:
            nearest = high - (high - low) % step
            raise ValueError(f"steps of {step} from {low} end at {nearest}, not at {high}")
        return step

    @field_validator("or_")
    @classmethod
    def _or_outside(cls, value: str | int | None, info: ValidationInfo) -> str | int | None:
        low, high = info.data.get("int_", (0, -1))
        if isinstance(value, int) and low <= value <= high:
            raise ValueError(f"{value} is already in the range {low} to {high}")
        return value


class Choice(Strict):
    """One of the listed values; ``unset`` leaves the field out, ``off`` and ``on`` a message.

    YAML reads ``off`` and ``on`` as booleans, and so do we. Values of ``response_cache.size`` are
    False or sizes as text (``64MiB``): read them with `parse_bytes`.
    """

    choice: tuple[Scalar, ...] = Field(
        min_length=1,
        description="the values: numbers, text, off and on, unset; sizes for response_cache.size",
    )

    @field_validator("choice")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[tuple[type, Any]] = set()
        for value in values:
            if (type(value), value) in seen:
                raise ValueError(f"{value} is listed twice")
            seen.add((type(value), value))
        return values


class Subsets(Strict):
    """Every subset of the listed sizes with 1 to ``at_most`` members; ``or: unset`` adds none."""

    subsets: tuple[Count, ...] = Field(min_length=1, description="the sizes to choose from")
    at_most: Count = Field(2, description="largest number of sizes in a subset")
    or_: Annotated[Literal["unset"] | None, BeforeValidator(unset)] = Field(
        None, alias="or", description="one more value, a choice of its own: unset"
    )

    @field_validator("subsets")
    @classmethod
    def _distinct(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(sizes)) < len(sizes):
            raise ValueError("a size is listed twice")
        return sizes

    @field_validator("at_most")
    @classmethod
    def _at_most_listed(cls, at_most: int, info: ValidationInfo) -> int:
        sizes = info.data.get("subsets")
        if sizes and at_most > max(2, len(sizes)):  # the default is no mistake beside one size
            raise ValueError(f"{at_most} is more than the {len(sizes)} sizes listed")
        return at_most


ParameterSpec = IntRange | Choice | Subsets


def _parameter_kind(value: Any) -> str | None:
    if isinstance(value, ParameterSpec):
        return type(value).__name__
    keys = {"int": "IntRange", "choice": "Choice", "subsets": "Subsets"}
    found = [kind for key, kind in keys.items() if isinstance(value, dict) and key in value]
    return found[0] if found else None


#: A space as it is written: what is varied, and the values to try.
SpaceSpec = dict[
    str,
    Annotated[
        Annotated[IntRange, Tag("IntRange")]
        | Annotated[Choice, Tag("Choice")]
        | Annotated[Subsets, Tag("Subsets")],
        Discriminator(_parameter_kind),
    ],
]
