"""The server of a spec: who starts it and with what, TLS to it, and its variables.

Variables that the spec adds to the server's environment may be secrets. After a value is read, only
`resolve` returns it, to the code that starts the server; elsewhere it is shown and stored as
``***``. A value need not be in the spec: ``NAME: {from: VARIABLE}`` takes it from tune's
environment.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from tuner.errors import EnvironmentNotReadyError
from tuner.hiding import HIDDEN
from tuner.spec.fields import (
    Cpus,
    Duration,
    Flag,
    Natural,
    Program,
    SpaceSpec,
    SpecFile,
    Strict,
    gpu_numbers,
)
from tuner.spec.mistakes import listed
from tuner.spec.units import Bytes, Seconds


@dataclass(frozen=True)
class ServerVariable:
    """A value that the spec gives, or the name of a variable of tune's environment to take."""

    given: str | None = field(default=None, repr=False)
    taken_from: str | None = None

    def redacted(self) -> str | dict[str, str]:
        """The variable without its value, as it may be stored and printed."""
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


_FROM = {
    "type": "object",
    "properties": {"from": {"type": "string"}},
    "required": ["from"],
    "additionalProperties": False,
}
EnvironmentValue = Annotated[
    ServerVariable,
    BeforeValidator(_variable),
    PlainSerializer(ServerVariable.redacted),
    WithJsonSchema({"anyOf": [{"type": "string"}, _FROM]}),
]


class Tls(Strict):
    """TLS to a remote server; `{}` if a public certificate authority signed its certificate."""

    ca_file: SpecFile | None = Field(
        None,
        description="PEM file of the certificate authorities of the server; default: those of the "
        "system, and for gRPC those of its library",
    )
    cert_file: SpecFile | None = Field(
        None, description="PEM file of the client certificate, if the server requires one"
    )
    key_file: SpecFile | None = Field(None, description="PEM file of its key; default: cert_file")
    services: tuple[Literal["http", "grpc", "metrics"], ...] = Field(
        ("http", "grpc", "metrics"),
        min_length=1,
        description="endpoints that have TLS; tritonserver by itself has it for gRPC only",
    )

    @property
    def ca_key_and_cert(self) -> tuple[Path | None, ...]:
        return self.ca_file, self.key_file or self.cert_file, self.cert_file


_Variable = Annotated[str, Field(pattern=r"^[^=\x00]+$")]


def _address(text: str) -> str:
    if text and not re.fullmatch(r"[^\s/:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", text):
        advice = "; leave out http:// and paths" if "/" in text else ""
        raise ValueError(f"'{text}' is not host:port{advice}")
    return text


_Address = Annotated[str, AfterValidator(_address)]


class ServerMode(Enum):
    LOCAL = "local"
    DOCKER = "docker"
    REMOTE = "remote"


@dataclass(frozen=True)
class ModeFacts:
    """The properties of a server mode.

    Attributes:
        fields: The fields of ``server`` that this mode has and others may lack.
        needed: The fields that must be given, with what they mean.
        managed: tune starts and ends the servers.
    """

    fields: tuple[str, ...]
    needed: Mapping[str, str] = field(default_factory=dict)
    managed: bool = True


MODES = {
    ServerMode.LOCAL: ModeFacts(("binary", "args", "environment", "gpus", "cpus")),
    ServerMode.DOCKER: ModeFacts(
        ("args", "environment", "gpus", "cpus", "image", "mounts", "shm_size"),
        needed={"image": "the image's name"},
    ),
    ServerMode.REMOTE: ModeFacts(
        ("http", "grpc", "metrics", "tls", "headers_from_env"),
        needed={"http": "its host:port", "grpc": "its host:port"},
        managed=False,
    ),
}

#: Arguments of tritonserver that only tune sets, or that are not allowed, such as further ports.
_RESERVED_ARGUMENTS = (
    "--model-repository",
    "--model-store",
    "--model-control-mode",
    *(
        argument
        for service in ("http", "grpc", "metrics")
        for argument in (f"--{service}-address", f"--{service}-port", f"--allow-{service}")
    ),
    "--allow-sagemaker",
    "--allow-vertex-ai",
    "--grpc-restricted-protocol",
    "--http-restricted-api",
)


def is_reserved_argument(name: str) -> bool:
    """Whether only tune may set an argument; tritonserver also accepts its abbreviations."""
    return name.startswith("--") and any(
        argument.startswith(name) for argument in _RESERVED_ARGUMENTS
    )


class ServerSpec(Strict):
    """The real tritonserver: who starts it, and with what."""

    mode: ServerMode = Field(
        ServerMode.LOCAL,
        description="local starts a tritonserver program, docker a container; remote uses a "
        "server that runs already, in explicit model control",
    )
    binary: Program | None = Field(
        None,
        description="local: tritonserver to run; default: the first of $TUNE_TRITONSERVER, PATH, "
        "/opt/tritonserver/bin, the wheel",
    )
    args: tuple[str, ...] = Field(
        (), description="local and docker: further tritonserver arguments, passed unchanged"
    )
    environment: dict[_Variable, EnvironmentValue] = Field(
        default_factory=dict,
        description="local and docker: variables added to the server's environment; "
        "NAME: {from: VARIABLE} takes the value from tune's own and stores it nowhere",
    )
    image: str | None = Field(None, description="docker: the image, e.g. NVIDIA's tritonserver")
    gpus: Annotated[Literal["all", "none"] | tuple[Natural, ...], BeforeValidator(gpu_numbers)] = (
        Field("all", description="local and docker: GPUs the server may see: all, none or numbers")
    )
    cpus: Cpus = Field(
        None,
        description="local and docker: CPUs the server may use, such as 0-5; default: all, or all "
        "but a quarter of this machine's where its load generator needs much; all: no limit",
    )
    mounts: dict[str, str] = Field(
        default_factory=dict, description="docker: host path to container path, read-only"
    )
    shm_size: Bytes = Field(
        Bytes(1 << 30), description="docker: size of /dev/shm (each Python instance needs some)"
    )
    http: _Address | None = Field(None, description="remote: host:port of the HTTP endpoint")
    grpc: _Address | None = Field(None, description="remote: host:port of the gRPC endpoint")
    metrics: _Address | None = Field(None, description="remote: host:port of the metrics endpoint")
    tls: Tls | None = Field(None, description="remote: how its endpoints are reached over TLS")
    headers_from_env: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], _Variable] = Field(
        default_factory=dict,
        description="remote: headers that each request carries, such as authorization, and the "
        "variable of tune's environment that each value is taken from; no value is ever stored",
    )
    load_timeout: Duration = Field(
        Seconds(120.0), description="a model that takes longer to load counts as hung"
    )
    unload_first: Flag = Field(
        False,
        description="unload a model before reloading it, where two copies do not fit in memory, or "
        "need what one alone can hold; a run that finds this out does so by itself",
    )
    space: SpaceSpec = Field(
        default_factory=dict,
        description="response_cache.size: the sizes to try for the cache that all models share; "
        "environment.NAME: the numbers of threads to try for a variable, such as OMP_NUM_THREADS",
    )

    @property
    def managed(self) -> bool:
        return MODES[self.mode].managed

    @property
    def urls(self) -> list[str]:
        """The endpoints of a remote server."""
        there = {"http": self.http, "grpc": self.grpc, "metrics": self.metrics}
        schemes = {name: name.replace("metrics", "http") for name in there}
        schemes |= {name: f"{schemes[name]}s" for name in (self.tls.services if self.tls else ())}
        return [f"{schemes[name]}://{at}" for name, at in there.items() if at is not None]


def resolve(
    variables: Mapping[str, ServerVariable], environment: Mapping[str, str]
) -> dict[str, str]:
    """The values of the variables, for the server's process only.

    Raises:
        EnvironmentNotReadyError: ``environment`` lacks a variable from which a value is taken.
    """
    sources = {name: v.taken_from for name, v in variables.items() if v.taken_from is not None}
    missing = sorted({source for source in sources.values() if source not in environment})
    if missing:
        raise EnvironmentNotReadyError(
            f"server.environment takes values from variables not set: {listed(missing)}",
            "set them where tune is started",
        )
    given = {name: v.given for name, v in variables.items() if v.given is not None}
    return {**given, **{name: environment[source] for name, source in sources.items()}}


def given_check(variables: Mapping[str, ServerVariable]) -> str:
    """A check value that changes with the secret values in the spec; "" without any.

    A plain hash of a password would allow a dictionary attack. This check value is slow to compute
    and has 16 bits: it misses one change in 65,536, and one wrong guess in 65,536 matches it, so a
    match does not confirm a guess. Values taken from tune's environment are left out, as
    credentials may change daily.
    """
    given = {name: v.given for name, v in sorted(variables.items()) if v.given is not None}
    if not given:
        return ""
    text = json.dumps(given).encode()
    return hashlib.scrypt(text, salt=b"server.environment", n=2**14, r=8, p=1, dklen=2).hex()
