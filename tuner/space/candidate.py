"""A candidate: values for fields of the models' configs, and for the start of the server.

The start of the server has the size of its response cache and environment variables. The size is a
server argument (`--cache-config=local,size=BYTES`, one buffer for all models), the use of the cache
a field of each model (`response_cache.enable`). The space has one parameter for both,
`response_cache.size`, which is no field of ModelConfig.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from tuner.facts import Facts
from tuner.modelconfig.values import FieldValue
from tuner.space.parameters import SERVER, Knob
from tuner.spec.fields import Choice
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_SIZE, is_scheduling, variable_of, variable_path
from tuner.spec.runtimes import VARIABLES, thread_count
from tuner.spec.units import parse_bytes

__all__ = ["CACHE", "Candidate", "FieldValue", "ServerStart"]

#: The size of the server's response cache in bytes.
CACHE = Knob(SERVER, CACHE_SIZE)


def _cache_bytes(args: Any) -> int | None:
    rest, size = split_args(args)
    if rest:
        raise ValueError(f"no candidate has the server argument {rest[0]!r}")
    return size


def _threads(given: dict[str, int | None]) -> dict[str, int | None]:
    """Variables with their numbers of threads; a stored run may set no other variables."""
    if strange := [name for name in given if name not in VARIABLES]:
        raise ValueError(f"no candidate sets the variable {strange[0]!r}")
    return {name: thread_count(count) for name, count in given.items()}


@dataclass(frozen=True)
class ServerStart:
    """The settings of a server's start: a candidate with other settings needs a new server.

    Attributes:
        cache_bytes: Size of the response cache that the search chose; None: no cache.
        environment: The searched variables, with their numbers of threads; None: not set.
    """

    cache_bytes: int | None = None
    environment: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def args(self) -> tuple[str, ...]:
        """Extra tritonserver arguments (``--cache-config=local,size=67108864``)."""
        return server_args(self.cache_bytes)

    @property
    def variables(self) -> dict[str, str | None]:
        """The searched variables as text, for a process; None: removed from its environment."""
        return {n: None if count is None else str(count) for n, count in self.environment.items()}


@dataclass(frozen=True)
class _Stored:
    """A candidate in files: the fields of each model, and the settings of the server's start."""

    models: dict[str, dict[str, FieldValue]]
    server_args: Annotated[
        int | None,
        BeforeValidator(_cache_bytes),
        WithJsonSchema({"type": "array", "items": {"type": "string"}}),
    ] = None
    environment: Annotated[dict[str, int | None], AfterValidator(_threads)] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class Candidate(Facts):
    """One point of the space.

    Attributes:
        values: The chosen value of each knob. The size of the response cache is included only with
            a cache, an environment variable wherever it is searched.
    """

    unknown = "ignore"

    values: Mapping[Knob, FieldValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        there = [(k, v) for k, v in self.values.items() if k != CACHE or v is not None]
        chosen = sorted(there, key=lambda item: (item[0].owner, item[0].path))
        object.__setattr__(self, "values", MappingProxyType(dict(chosen)))

    @classmethod
    def of_models(
        cls,
        models: Mapping[str, Mapping[str, FieldValue]],
        cache_bytes: int | None = None,
        environment: Mapping[str, int | None] = MappingProxyType({}),
    ) -> Candidate:
        """The candidate with these fields, by the model's name and the ModelConfig path."""
        fields = {Knob(o, path): v for o, values in models.items() for path, v in values.items()}
        variables = {variable(name): count for name, count in environment.items()}
        return cls({**fields, CACHE: cache_bytes, **variables})

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def read(stored: _Stored) -> Candidate:
            return cls.of_models(stored.models, stored.server_args, stored.environment)

        return core_schema.no_info_after_validator_function(
            read,
            handler.generate_schema(_Stored),
            serialization=core_schema.plain_serializer_function_ser_schema(_stored),
        )

    def of(self, owner: str) -> Mapping[str, FieldValue]:
        """The values of the model ``owner``, by the ModelConfig path."""
        return self.models.get(owner, {})

    @property
    def fields(self) -> Mapping[Knob, FieldValue]:
        return {knob: v for knob, v in self.values.items() if knob.owner != SERVER}

    @cached_property
    def models(self) -> Mapping[str, Mapping[str, FieldValue]]:
        """The values by the model's name and the ModelConfig path, for models with any."""
        fields: dict[str, dict[str, FieldValue]] = {}
        for knob, value in self.values.items():
            if knob.owner != SERVER:
                fields.setdefault(knob.owner, {})[knob.path] = value
        return fields

    def title(self, knob: Knob) -> str:
        """The name of a knob for users: only its path where one model is searched."""
        return str(knob) if len(self.models) > 1 else knob.path

    @cached_property
    def start(self) -> ServerStart:
        """The settings of the server's start."""
        size, variables = self.values.get(CACHE), dict[str, int | None]()
        for knob, value in self.values.items():
            if knob.owner == SERVER and (name := variable_of(knob.path)):
                variables[name] = value if isinstance(value, int) else None
        return ServerStart(size if isinstance(size, int) else None, variables)

    @property
    def cache_bytes(self) -> int | None:
        """Size of the server's response cache that the search chose; None: no cache."""
        return self.start.cache_bytes

    @property
    def server_args(self) -> tuple[str, ...]:
        """Extra tritonserver arguments (``--cache-config=local,size=67108864``)."""
        return self.start.args

    @cached_property
    def key(self) -> str:
        """The same for equal candidates, across runs and machines (16 hex digits)."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.key)

    def differences(self, other: Candidate) -> int:
        """The number of knobs in which the two differ; the size of the cache is one knob."""
        return sum(1 for _ in self.changed(other))

    def changed(self, other: Candidate) -> Iterator[Knob]:
        knobs = sorted(self.values.keys() | other.values.keys())
        return (knob for knob in knobs if self.values.get(knob) != other.values.get(knob))


def _stored(candidate: Candidate) -> dict[str, Any]:
    models = {owner: dict(fields) for owner, fields in candidate.models.items()}
    stored: dict[str, Any] = {"models": models, "server_args": list(candidate.server_args)}
    if candidate.start.environment:
        stored["environment"] = dict(candidate.start.environment)
    return stored


_FLAG = "--cache-config"
_OLD_FLAG = "--response-cache-byte-size"


def variable(name: str) -> Knob:
    """The knob of an environment variable of the server."""
    return Knob(SERVER, variable_path(name))


def server_args(size: int | None) -> tuple[str, ...]:
    """The server arguments for a cache of ``size`` bytes; empty for None, no cache."""
    return () if size is None else (f"{_FLAG}=local,size={size}",)


def list_sizes(spec: Spec) -> tuple[int, ...]:
    """The sizes of the cache that the spec lists, in bytes; empty if the cache is not searched."""
    sizes = spec.server.space.get(CACHE_SIZE)
    if not isinstance(sizes, Choice):
        return ()
    return tuple(
        parse_bytes(s) for s in sizes.choice if isinstance(s, (str, int)) and s is not False
    )


def split_args(args: Sequence[str]) -> tuple[tuple[str, ...], int | None]:
    """Server arguments without those of the cache, and the size of the local cache.

    Raises:
        ValueError: The cache is not a local one of a stated size, so its size cannot be searched.
    """
    rest: list[str] = []
    size: int | None = None
    pending = list(args)
    while pending:
        arg = pending.pop(0)
        flag, joined, value = arg.partition("=")
        if flag not in (_FLAG, _OLD_FLAG):
            rest.append(arg)
            continue
        setting = value if joined or not pending else pending.pop(0)
        match = re.fullmatch(r"\d+" if flag == _OLD_FLAG else r"local,size=\d+", setting)
        if match is None:
            raise ValueError(f"{flag} {setting} is not a local cache of a stated size")
        size = int(setting.removeprefix("local,size="))
    return tuple(rest), size


def service_key(candidate: Candidate) -> tuple[tuple[Knob, Any], ...]:
    """The values on which service times depend: all but scheduling and the cache."""
    return tuple(
        (k, v) for k, v in candidate.values.items() if k != CACHE and not is_scheduling(k.path)
    )
