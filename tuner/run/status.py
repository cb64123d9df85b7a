"""How a run or a check ended."""

from enum import Enum


class Status(Enum):
    """How a run ended."""

    IMPROVED = "improved"
    KEPT = "kept"
    INFEASIBLE = "infeasible"
    UNCONFIRMED = "unconfirmed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class CheckStatus(Enum):
    """How a check ended."""

    FINE = "fine"
    WORSE = "worse"  # told, no failure
    ACCEPTED = "accepted"  # the new baseline
    MISSED = "slo missed"
    INCONCLUSIVE = "inconclusive"
    REGRESSION = "regression"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
