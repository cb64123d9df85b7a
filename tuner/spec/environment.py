"""Variables that the spec adds to the server's environment, which may be secrets.

Once a value in the spec is read, it never becomes text again: it is shown and stored as ``***``,
and only `resolve` returns it, to the code that starts the server. Better still is a value that is
not in the spec: ``NAME: {from: VARIABLE}`` takes it from tune's environment.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from tuner.errors import EnvironmentNotReadyError
from tuner.hiding import HIDDEN


@dataclass(frozen=True)
class ServerVariable:
    """A value that the spec gives, or the name of a variable of tune's environment to take."""

    given: str | None = field(default=None, repr=False)
    taken_from: str | None = None

    @property
    def is_hidden(self) -> bool:
        """The spec is a stored one, and its value was not stored."""
        return self.given == HIDDEN

    def shown(self) -> str | dict[str, str]:
        """What may be stored and printed of it."""
        return HIDDEN if self.taken_from is None else {"from": self.taken_from}


def _variable(value: Any) -> ServerVariable:
    if isinstance(value, ServerVariable):
        return value
    if isinstance(value, str):
        return ServerVariable(given=value)
    if not isinstance(value, dict):
        raise ValueError("text is expected: put the value in quotes")  # noqa: TRY004
    name = value.get("from")
    if set(value) != {"from"} or not isinstance(name, str) or not re.fullmatch(r"[^=\0]+", name):
        raise ValueError("text or {from: VARIABLE} is expected")
    return ServerVariable(taken_from=name)


EnvironmentValue = Annotated[
    ServerVariable,
    BeforeValidator(_variable),
    PlainSerializer(ServerVariable.shown),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"from": {"type": "string"}},
                    "required": ["from"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


def resolve(
    variables: Mapping[str, ServerVariable], environment: Mapping[str, str]
) -> dict[str, str]:
    """The values, for the server's process alone.

    Raises:
        EnvironmentNotReadyError: ``environment`` lacks a variable that one is taken from.
    """
    sources = {name: v.taken_from for name, v in variables.items() if v.taken_from is not None}
    missing = sorted({source for source in sources.values() if source not in environment})
    if missing:
        raise EnvironmentNotReadyError(
            f"server.environment takes values from variables not set: {', '.join(missing)}",
            "set them where tune is started",
        )
    given = {name: v.given for name, v in variables.items() if v.given is not None}
    return {**given, **{name: environment[source] for name, source in sources.items()}}


def given_check(variables: Mapping[str, ServerVariable]) -> str:
    """Changes when a value written in the spec does, and does not tell what it is; "" without any.

    With a plain hash of a password, anybody who knows the rest of the input could try passwords.
    This one is slow and has 16 bits: it misses one change in 65,536, and one guess in 65,536 fits
    it, so that nobody learns from it which guess is right. Values taken from tune's environment are
    left out: credentials change from day to day.
    """
    given = {name: v.given for name, v in sorted(variables.items()) if v.given is not None}
    if not given:
        return ""
    text = json.dumps(given).encode()
    return hashlib.scrypt(text, salt=b"server.environment", n=2**14, r=8, p=1, dklen=2).hex()
