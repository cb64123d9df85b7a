"""What to do about the reasons of a run or of a failed trial, by their kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tuner.reason import Reason, ReasonKind
from tuner.sentences.parts import count
from tuner.server.log import remedy

_MORE_CORES = (
    "give the load generator more cores (workload.cpus, or server.mode: remote from another "
    "machine)"
)
_LOAD_TIMEOUT = "raise server.load_timeout if the model takes longer to load"
_FASTER = "relax that SLO, or use a faster model or machine"
_TIME = "raise budget.time, or shorten workload.window"


def _lone_request(reason: Reason) -> str:
    delayed = "queue_delay_ms" in reason.facts
    return "relax that SLO, or lower max_queue_delay_microseconds" if delayed else _FASTER


def _not_sustained(reason: Reason) -> str:
    """The remedy for a lost soak; a load that was not sent says nothing about lower loads."""
    if any(cause.kind is ReasonKind.CLIENT_BEHIND for cause in reason.causes):
        return ""
    return "list lower loads, as in workload.arrivals: {kind: poisson, rate: [50, 100]}"


def _fewer_clients(reason: Reason) -> str:
    fit = count(reason.facts, "fitting_clients")
    return f"write at most {fit:,} clients in workload.arrivals, or a longer workload.window"


#: In the order in which reports offer them. For a server's words, see `tuner.server.log`.
REMEDIES: Mapping[ReasonKind, str | Callable[[Reason], str]] = {
    ReasonKind.CLIENT_BEHIND: _MORE_CORES,
    ReasonKind.SENDABLE_LIMIT: _MORE_CORES,
    ReasonKind.BETTER_THAN_CAN_BE_SENT: _MORE_CORES,
    ReasonKind.TOO_MANY_CLIENTS: _fewer_clients,
    ReasonKind.MODEL_NOT_LOADED: lambda reason: (
        f"say in the spec that the model calls it: calls: [{reason.facts['model']}]"
    ),
    ReasonKind.RANDOM_INPUTS: "if the model needs real requests, give some: inputs: {kind: file, "
    "file: requests.json}",
    ReasonKind.LONE_REQUEST_MISSES: _lone_request,
    ReasonKind.LONE_REQUEST_ALWAYS_MISSES: _FASTER,
    ReasonKind.MODEL_ANSWERED_ERRORS: "make the model answer these requests, or allow some errors, "
    "such as error_rate <= 1%",
    ReasonKind.DISTURBED_MISS: "keep other work off this machine, or take a longer soak "
    "(confirm.soak)",
    ReasonKind.SOAK_NOT_SUSTAINED: _not_sustained,
    ReasonKind.MEMORY_GROWS: "look for what the model stores per request, or see with a longer "
    "soak (confirm.soak) where its memory levels off",
    ReasonKind.LATENCY_GROWS: "see with a longer soak (confirm.soak) where latency levels off",
    ReasonKind.NO_LASTING_GAIN: "widen the space: the gain of the rounds does not last",
    ReasonKind.ANSWERS_CHANGED: "raise confirm.tolerance if such differences do not matter",
    ReasonKind.LOAD_TIMEOUT: _LOAD_TIMEOUT,
    ReasonKind.NO_FIRST_ANSWER: _LOAD_TIMEOUT,
    ReasonKind.OUT_OF_TIME: _TIME,
    ReasonKind.CURRENT_CONFIG_OUT_OF_TIME: _TIME,
}


def remedies(reasons: Iterable[Reason]) -> list[str]:
    """What to do about the reasons with a known cure, each cure once."""
    reasons = tuple(reasons)
    known = [r for reason in reasons for r in reason.chain() if r.kind in REMEDIES]
    known.sort(key=lambda reason: list(REMEDIES).index(reason.kind))
    advice = [_advice(reason) for reason in known]
    meant = [remedy("\n".join(reason.quotes())) for reason in reasons]
    return [*dict.fromkeys(filter(None, [*advice, *meant]))]


def _advice(reason: Reason) -> str:
    remedy = REMEDIES[reason.kind]
    return remedy if isinstance(remedy, str) else remedy(reason)
