"""The spec's JSON Schema, for editors (yaml-language-server) and other checkers."""

from __future__ import annotations

from typing import Any

from tuner.spec.model import Spec


def json_schema() -> dict[str, Any]:
    """The schema of a spec file, JSON Schema draft 2020-12.

    It accepts every spec that `load_spec` accepts. Rules between fields (a log range that starts
    at 0, a docker server without image) are beyond it.
    """
    schema = Spec.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Spec of a tune",
    }
