"""Quantities with units: 500ms, 20m, 64MiB, 2%.

Each quantity is a number (seconds, bytes, a share of one), read from a bare number or from text,
and written as text with its unit. ``str()`` and f-strings give the text, so use ``f"{size:d}"`` or
``f"{time:g}"`` where a program needs the number.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any, Self

from pydantic_core import CoreSchema, core_schema


def digits(value: float, most: int = 3) -> str:
    """``value`` with limited significant digits: 0.0123, 12.3; large whole numbers as 12,345."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    behind = max(0, most - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{behind}f}"
    return text.rstrip("0").rstrip(".") if behind else text


def digits_beside(value: float, limit: float, most: int = 2) -> str:
    """`digits`, with enough of them to differ from the text of an unequal ``limit``."""
    for count in range(most, 10):
        if value == limit or digits(value, count) != digits(limit, count):
            return digits(value, count)
    return digits(value, 10)


def bare_text(value: object) -> str:
    """``value`` as YAML and config.pbtxt write it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def count_text(number: int, noun: str) -> str:
    """``1 trial``, ``2,000 trials``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bytes_text(size: int) -> str:
    """``64 MiB``, with at most four significant digits."""
    return " ".join(bytes_parts(size))


def bytes_parts(size: int) -> tuple[str, str]:
    """The number and its unit: ``64``, ``MiB``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return digits(size / factor, 4), unit
    return f"{size}", "B"


_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
#: Units of sizes, in bytes.
BYTE_UNITS = {
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "KB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "KiB": Decimal(1 << 10),
    "MiB": Decimal(1 << 20),
    "GiB": Decimal(1 << 30),
}
#: Largest number in any base unit: 8 exbibytes, or 300,000 years in microseconds.
LARGEST = Decimal(1 << 63)
_MOST_DIGITS = 1000
_MAX_QUOTED = 80
_PERCENT = {"%": Decimal("0.01")}
_PER_SECOND = {"/s": Decimal(1)}
_PER_HOUR = {"/h": Decimal(1)}

#: Units of the latencies in SLOs, in microseconds.
LATENCY_UNITS: Mapping[str, Decimal] = {"us": Decimal(1), "ms": Decimal(1000), "s": Decimal(10**6)}


def quantity_pattern(units: Mapping[str, Decimal]) -> str:
    """A regular expression (ECMA and Python) for a number with one of ``units``."""
    return rf"{_NUMBER} ?({'|'.join(units)})"


def read_quantity(text: str, units: Mapping[str, Decimal]) -> Decimal | None:
    """``text`` in the base unit; None where it is no number followed by one of ``units``.

    Raises:
        ValueError: The number has too many digits, or is above `LARGEST`.
    """
    match = re.fullmatch(rf"({_NUMBER})\s*({'|'.join(units)})", text.strip())
    if match is None:
        return None
    try:
        quantity = Decimal(match[1]) * units[match[2]]
    except DecimalException:  # an exponent of ten digits
        quantity = LARGEST * 2
    if len(match[1]) > _MOST_DIGITS or quantity > LARGEST:
        raise ValueError(f"{shorten(text)} is far too large")
    return quantity


def shorten(text: str) -> str:
    """The text in quotes, cut to a length that fits in a line."""
    return f"'{text}'" if len(text) <= _MAX_QUOTED else f"'{text[:_MAX_QUOTED]}...'"


def parse_bytes(value: str | int) -> int:
    """A size such as ``64MiB``, ``64MB`` or ``67108864`` as a plain int of bytes.

    Raises:
        ValueError: Not a size; the message says what is accepted.
    """
    return int(Bytes.of(value))


class AsText(ABC):
    """A field of a spec that is written as text: `of` reads it, ``str()`` writes it."""

    @classmethod
    @abstractmethod
    def of(cls, value: object) -> Self:
        """From what YAML holds; raises ValueError."""

    @classmethod
    def of_option(cls, text: str) -> Self:
        """From an argument of the command line; a bare number has the same meaning as in a spec."""
        number = float(text) if re.fullmatch(rf"[-+]?{_NUMBER}", text.strip()) else None
        if number is None or not math.isfinite(number):
            return cls.of(text)
        return cls.of(int(number) if number.is_integer() else number)

    @classmethod
    @abstractmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of the accepted values, for editors."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.of, serialization=core_schema.to_string_ser_schema(when_used="json")
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return cls.json_schema()


class Seconds(AsText, float):
    """A duration in seconds, written 500ms, 3s, 20m, 1h."""

    @classmethod
    def of(cls, value: object) -> Self:
        """From a number of seconds or text with its unit; raises ValueError."""
        return cls(_read(value, _SECONDS, "a duration such as 500ms, 3s, 20m or 1h"))

    def __str__(self) -> str:
        if not math.isfinite(self):
            return float.__repr__(self)
        exact = _exact(self)
        for unit in ("h", "m"):
            count = exact / _SECONDS[unit]
            if count >= 1 and count == int(count):
                return f"{int(count)}{unit}"
        unit = "ms" if 0 < exact < 1 else "s"
        return f"{(exact / _SECONDS[unit]).normalize():f}{unit}"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return _json_schema({"type": "number", "minimum": 0}, _SECONDS, ["500ms", "3s", "20m"])


class Bytes(AsText, int):
    """A size in bytes, written 64MiB, 1GiB, 64MB."""

    @classmethod
    def of(cls, value: object) -> Self:
        """From a whole number of bytes or text with its unit; raises ValueError."""
        size = _read(value, BYTE_UNITS, "a size such as 64MiB, 1GiB or 64MB")
        if size != int(size):
            raise ValueError(f"{_quoted(value)} is not a whole number of bytes")
        return cls(int(size))

    def __str__(self) -> str:
        counts = {unit: Decimal(int(self)) / factor for unit, factor in BYTE_UNITS.items()}
        integers = {unit: count for unit, count in counts.items() if count == int(count)}
        unit = min(integers, key=lambda name: abs(integers[name]))
        return f"{int(integers[unit])}{unit}"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return _json_schema(
            {"type": "integer", "minimum": 0}, BYTE_UNITS, ["64MiB", "1GiB", "64MB"]
        )


class Percent(AsText, float):
    """A share 0..1, written 2%."""

    @classmethod
    def of(cls, value: object) -> Self:
        """From a share below 1 or text such as 2%; raises ValueError.

        A bare 1 or more is refused, since it may mean 1% or 100%.
        """
        if (
            isinstance(value, (int, float))
            and not isinstance(value, (bool, Percent))
            and value >= 1
        ):
            raise ValueError(f"{_quoted(value)} is ambiguous: write {value:g}% or a share below 1")
        share = _read(value, _PERCENT, "a share such as 2% or 0.02")
        if share > 1:
            raise ValueError(f"{_quoted(value)} is more than 100%")
        return cls(share)

    def __str__(self) -> str:
        if not math.isfinite(self):
            return float.__repr__(self)
        return f"{(_exact(self) * 100).normalize():f}%"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        share = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
        return _json_schema(share, _PERCENT, ["2%", 0.02])


class Price(AsText, float):
    """A price per hour, written 2.5/h."""

    @classmethod
    def of(cls, value: object) -> Self:
        """From a number or text such as 2.5/h; raises ValueError."""
        return cls(_read(value, _PER_HOUR, "a price of one hour such as 2.5 or 2.5/h"))

    def __str__(self) -> str:
        return f"{_exact(self).normalize():f}/h"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return _json_schema({"type": "number", "minimum": 0}, _PER_HOUR, ["2.5/h"])


class Rate(AsText, float):
    """Requests per second, written 20/s."""

    @classmethod
    def of(cls, value: object) -> Self:
        """From a number or text such as 20/s, above 0; raises ValueError."""
        rate = _read(value, _PER_SECOND, "a rate such as 20/s")
        if rate == 0:
            raise ValueError("a rate must be above 0")
        return cls(rate)

    def __str__(self) -> str:
        return f"{_exact(self).normalize():f}/s"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return _json_schema({"type": "number", "exclusiveMinimum": 0}, _PER_SECOND, ["20/s"])


def _exact(value: float) -> Decimal:
    """The number that its shortest text stands for: 0.1, not the nearest binary fraction."""
    return Decimal(float.__repr__(value))


def _read(value: object, units: Mapping[str, Decimal], accepted: str) -> Decimal:
    if isinstance(value, str):
        number = read_quantity(value, units)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = Decimal(repr(value + 0))  # + 0: the bare number, whatever its class
    else:
        number = None
    if number is None or not number.is_finite() or number < 0:
        raise ValueError(f"{_quoted(value)} is not {accepted}")
    if number > LARGEST:
        raise ValueError(f"{_quoted(value)} is far too large")
    return number


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return shorten(value)
    return bare_text(value)


def _json_schema(
    bare: dict[str, Any], units: Mapping[str, Decimal], examples: list[Any]
) -> dict[str, Any]:
    text = {"type": "string", "pattern": f"^{quantity_pattern(units)}$"}
    return {"anyOf": [text, bare], "examples": examples}
