"""Values of `ModelConfig` fields: as specs write them, as protobuf holds them, as text.

A field's value travels as `FieldValue`; protobuf wants enum numbers and exact types. A message
as a whole has the value True when it is present. Parameters are text in Triton: numbers and
booleans given for them become text.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from tuner.errors import SpecError
from tuner.spec.mistakes import meant_or_listed
from tuner.spec.units import bare_text

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

#: A value as the spec writes it. None: not set; for a message, True is present and None absent.
FieldValue = bool | int | float | str | tuple[int, ...] | tuple[str, ...] | None


def is_list(field: FieldDescriptor) -> bool:
    repeated = getattr(field, "is_repeated", None)  # younger protobufs deprecate ``label``
    return bool(getattr(field, "label") == 3 if repeated is None else repeated)  # noqa: B009


def type_name(field: FieldDescriptor) -> str:
    """The type in the user's words, with an article."""
    if field.message_type is not None:
        return "a list of messages" if is_list(field) else "a message (true, or unset)"
    name = {
        field.CPPTYPE_INT32: "whole number",
        field.CPPTYPE_INT64: "whole number",
        field.CPPTYPE_UINT32: "whole number, 0 or more",
        field.CPPTYPE_UINT64: "whole number, 0 or more",
        field.CPPTYPE_FLOAT: "number",
        field.CPPTYPE_DOUBLE: "number",
        field.CPPTYPE_BOOL: "boolean",
        field.CPPTYPE_STRING: "text",
    }.get(field.cpp_type)
    if name is None:
        name = f"name ({', '.join(_enum_names(field))})"
    return f"a list of {name}s" if is_list(field) else f"a {name}".replace("a text", "text")


def to_wire(path: str, field: FieldDescriptor, value: FieldValue, parameter: bool = False) -> Any:
    """What protobuf takes for ``value``; a list for repeated scalars, True for a message.

    Args:
        parameter: The leaf is the text of a `ModelParameter`.

    Raises:
        SpecError: The value has the wrong type or is out of range.
    """
    if field.message_type is not None:
        if value is not True:
            raise _mismatch(path, field, value)
        return True
    if is_list(field):
        if not isinstance(value, tuple | list):
            raise _mismatch(path, field, value)
        return [_scalar_to_wire(path, field, item) for item in value]
    if parameter and isinstance(value, bool | int | float):
        return bare_text(value)
    return _scalar_to_wire(path, field, value)


def from_wire(field: FieldDescriptor, value: Any) -> FieldValue:
    """The `FieldValue` of what protobuf holds; an empty list reads as None."""
    if is_list(field):
        return tuple(_scalar_from_wire(field, item) for item in value) or None
    scalar: bool | int | float | str = _scalar_from_wire(field, value)
    return scalar


def from_words(field: FieldDescriptor, words: str) -> Any:
    """The wire value that ``words`` in a path mean; None when they mean none."""
    if field.cpp_type == field.CPPTYPE_STRING:
        return words
    if field.cpp_type == field.CPPTYPE_BOOL:
        return {"true": True, "false": False}.get(words)
    if field.cpp_type == field.CPPTYPE_ENUM:
        value = _enum(field).values_by_name.get(words)
        return value.number if value else None
    try:
        return _in_range(field, int(words))
    except ValueError:
        return None


def literal_words(field: FieldDescriptor, value: Any) -> str:
    """The opposite of `from_words`."""
    if field.cpp_type == field.CPPTYPE_STRING:
        return str(value)
    return literal(field, value)


def literal(field: FieldDescriptor, value: Any) -> str:
    """One wire value in protobuf's text format."""
    if field.cpp_type == field.CPPTYPE_STRING:
        from google.protobuf import text_encoding

        return f'"{text_encoding.CEscape(value, as_utf8=True)}"'
    if field.cpp_type == field.CPPTYPE_BOOL:
        return "true" if value else "false"
    if field.cpp_type == field.CPPTYPE_ENUM:
        return str(_enum(field).values_by_number[value].name)
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return repr(_shortest_float32(value))
    return str(value)


def _scalar_to_wire(path: str, field: FieldDescriptor, value: object) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_BOOL and isinstance(value, bool):
        return value
    if kind == field.CPPTYPE_STRING and isinstance(value, str):
        return value
    if kind == field.CPPTYPE_ENUM and isinstance(value, str):
        return _enum_number(path, field, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(path, field, value)
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE) and math.isfinite(value):
        return float(value)
    if isinstance(value, int):
        checked = _in_range(field, value)
        if checked is not None:
            return checked
    raise _mismatch(path, field, value)


def _scalar_from_wire(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_ENUM:
        known = _enum(field).values_by_number.get(value)
        return known.name if known else str(value)
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return _shortest_float32(value)
    return value


def _in_range(field: FieldDescriptor, value: int) -> int | None:
    bounds = {
        field.CPPTYPE_INT32: (-(2**31), 2**31),
        field.CPPTYPE_INT64: (-(2**63), 2**63),
        field.CPPTYPE_UINT32: (0, 2**32),
        field.CPPTYPE_UINT64: (0, 2**64),
    }.get(field.cpp_type)
    return value if bounds and bounds[0] <= value < bounds[1] else None


def _shortest_float32(value: float) -> float:
    """The shortest decimal that is the same 32-bit float: 0.1, not 0.10000000149011612."""
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if struct.pack("f", short) == struct.pack("f", value):
            return short
    return value


def _enum(field: FieldDescriptor) -> EnumDescriptor:
    assert field.enum_type is not None
    return field.enum_type


def _enum_names(field: FieldDescriptor) -> list[str]:
    return [value.name for value in _enum(field).values]


def _enum_number(path: str, field: FieldDescriptor, name: str) -> int:
    known = _enum(field).values_by_name.get(name)
    if known is None:
        names = _enum_names(field)
        hint = meant_or_listed(name, names, "known are")
        raise SpecError(f"{path}: {name!r} is not a value of {field.name}", hint)
    return int(known.number)


def _mismatch(path: str, field: FieldDescriptor, value: object) -> SpecError:
    quoted = f": write {value} without quotes" if value in ("off", "on") else ""
    return SpecError(f"{path} is {type_name(field)}; {value!r} does not fit{quoted}")
