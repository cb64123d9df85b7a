"""How a run or a check ended, with its exit code."""

from __future__ import annotations

from enum import Enum
from typing import Self


class _Ending(Enum):
    exit_code: int

    def __new__(cls, value: str, exit_code: int) -> Self:
        member = object.__new__(cls)
        member._value_, member.exit_code = value, exit_code
        return member


class Status(_Ending):
    """How a run ended."""

    IMPROVED = "improved", 0
    KEPT = "kept", 0
    INFEASIBLE = "infeasible", 10
    NOT_KNOWN = "not known", 11
    INTERRUPTED = "interrupted", 130
    FAILED = "failed", 1


class CheckStatus(_Ending):
    """How a check ended."""

    FINE = "fine", 0
    WORSE = "worse", 0  # reported, but not a failure
    ACCEPTED = "accepted", 0  # the new baseline
    MISSED = "slo missed", 10
    INCONCLUSIVE = "inconclusive", 11
    REGRESSION = "regression", 12
    INTERRUPTED = "interrupted", 130
    FAILED = "failed", 1
