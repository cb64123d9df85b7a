"""The cheapest way to make a server run another config of a model."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from enum import Enum

from tuner.modelconfig.schema import ModelConfig
from tuner.spec.paths import INSTANCE_GROUP


class DeploymentKind(Enum):
    """How a candidate was deployed, cheapest first."""

    UNCHANGED = "unchanged"
    IN_PLACE = "in place"  # only instances differ: Triton adds or removes some
    RELOAD = "reload"
    RESTART = "restart"


_BY_COST = tuple(DeploymentKind)


def dearest(kinds: Mapping[str, DeploymentKind]) -> DeploymentKind:
    return max(kinds.values(), key=_BY_COST.index)


def kind_of_change(before: ModelConfig | None, after: ModelConfig) -> DeploymentKind:
    """The cheapest change of a server from the requested config ``before`` to ``after``."""
    if before == after:
        return DeploymentKind.UNCHANGED
    in_place = before is not None and _without_instances(before) == _without_instances(after)
    return DeploymentKind.IN_PLACE if in_place else DeploymentKind.RELOAD


def _without_instances(config: ModelConfig) -> ModelConfig:
    rest = deepcopy(config)
    rest.ClearField(INSTANCE_GROUP)
    return rest
