"""How a run or a check ended, its exit code, and what to do about the reasons that it gives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Self

from tuner.server.log import remedy


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
    WORSE = "worse", 0  # reported, no failure
    ACCEPTED = "accepted", 0  # the new baseline
    MISSED = "slo missed", 10
    INCONCLUSIVE = "inconclusive", 11
    REGRESSION = "regression", 12
    INTERRUPTED = "interrupted", 130
    FAILED = "failed", 1


#: Tune's own words in a reason, and what to do; a remedy repeats what the words name. What a
#: server's words mean is in `tuner.server.log`.
_REMEDIES = {
    "load generator (could not keep up|can send)": "give the load generator more cores "
    "(workload.cpus, or server.mode: remote from another machine)",
    r"([^\s(]+) lies in the repository": r"say in the spec that the model calls it: calls: [\1]",
    "input was made up of": "if the model needs real requests, give some: inputs: {kind: file, "
    "file: requests.json}",
    "one request at a time takes .* queue delay: misses": "relax that SLO, or lower "
    "max_queue_delay_microseconds",
    "one request at a time takes [^,]*(: misses|: more than)": "relax that SLO, or use a faster "
    "model or machine",
    "missed an SLO on a disturbed machine": "keep other work off this machine, or take a longer "
    "soak (confirm.soak)",
    "(does not last|not sustained in the soak): (?!.*(what lasts|could not keep up))": "list lower "
    "loads in workload.arrivals, to find one that lasts",
    "what lasts is no gain": "widen the space: the gain that was found does not last",
    "It changes answers": "raise confirm.tolerance if such differences do not matter",
    r"\(server\.load_timeout\)": "raise server.load_timeout if the model takes longer to load",
    "time (of the )?budget": "raise budget.time, or shorten workload.window",
}


def remedies(reasons: Iterable[str]) -> list[str]:
    """What to do about those whose cause is known, each once."""
    reasons = tuple(reasons)
    text = "\n".join(reasons)
    found = ((re.search(words, text), advice) for words, advice in _REMEDIES.items())
    own = [match.expand(advice) for match, advice in found if match]
    return [*own, *dict.fromkeys(filter(None, map(remedy, reasons)))]
