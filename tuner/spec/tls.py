"""TLS to a server that somebody else runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tuner.spec.fields import SpecFile, Strict


class Tls(Strict):
    """TLS to a remote server; `{}` where authorities that everybody knows vouch for it."""

    ca_file: SpecFile | None = Field(
        None,
        description="PEM file of the authorities that vouch for the server; default: the system's, "
        "and for gRPC its own",
    )
    cert_file: SpecFile | None = Field(
        None, description="PEM file of tune's own certificate, where the server asks for one"
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
