"""Who asks: a stream of requests for one of the served models."""

from __future__ import annotations

from pydantic import Field

from tuner.spec.fields import Count
from tuner.spec.slo import Slo
from tuner.spec.units import Percent, Rate
from tuner.spec.workload import Requests


class StreamSpec(Requests):
    """A stream of requests for one model, with its own part of the load and its own SLOs."""

    model: str = Field(description="the model that is asked: one of models")
    share: Percent | None = Field(
        None,
        description="share of the load, whose level is the requests per second of all streams with "
        "a share; default: all of it, where no other stream has a part",
    )
    rate: Rate | None = Field(
        None,
        description="instead of a share: a constant background, outside the objective; its SLOs "
        "count",
    )
    priority: Count | None = Field(
        None,
        exclude_if=lambda level: level is None,
        description="of its requests, 1 is the highest; the model's dynamic batcher needs as many "
        "priority_levels; default: the model's default_priority_level",
    )
    slo: tuple[Slo, ...] = Field((), description="what the answers to this stream must meet")
