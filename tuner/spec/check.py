"""The spec's word on the nightly: `check: {warn: 3%, fail: 5%, rounds: 3}`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from tuner.spec.fields import PositiveNumber, Strict
from tuner.spec.units import Percent


class Check(Strict):
    """When `tune check` calls the config in the repository worse than the accepted result."""

    at: PositiveNumber | None = Field(
        None,
        description="load at which every SLO must be met: requests per second, or clients of a "
        "closed loop; default: any load, of listed loads the one the accepted result stood",
    )
    warn: Percent = Field(Percent(0.03), description="a loss above this is told")
    fail: Percent = Field(Percent(0.05), description="a loss above this is a regression, exit 12")
    rounds: Annotated[int, Field(strict=True, ge=3)] = Field(
        3,
        description="times the config is measured, each on a fresh server; twice as often when "
        "that leaves it open, and for a result that is accepted",
    )

    @field_validator("fail")
    @classmethod
    def _fail_above_warn(cls, fail: Percent, info: ValidationInfo) -> Percent:
        warn = info.data.get("warn")
        if warn is not None and fail < warn:
            raise ValueError(
                f"{fail} is less than warn, {warn}: what fails is worse than a warning"
            )
        return fail
