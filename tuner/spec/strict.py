"""What all models of a spec have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Unknown keys are errors: a mistyped knob must never be ignored silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)
