"""The first load of a config without earlier measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import LoadFailedError, ModelFailsError
from tuner.meter.protocol import Bench
from tuner.meter.rates import LOOK_S
from tuner.score.next_load import LoadPlan
from tuner.score.saturation import Saturated
from tuner.spec.slo import Slo
from tuner.spec.units import digits

#: Without an incumbent, the first load is this share of the rate when saturated, or, where that is
#: not known, of the one-at-a-time rate. Where the first calls were timed, it is the capacity that
#: they predict, but at most the last of these shares of the rate when saturated.
FIRST_SHARE, FIRST_SHARE_ALONE, MOST_SHARE = 0.8, 0.6, 0.93
#: To saturate a config: as many requests in flight as it answers one by one in this many seconds,
#: within these limits.
IN_FLIGHT_S, FEWEST_AT_ONCE, MOST_AT_ONCE = 1.0, 4, 256
#: Requests in flight for a slow model, so that all of its instances are busy, unless a single
#: instance answers fewer in `LOOK_S`.
ENOUGH_AT_ONCE = 16
#: A config is saturated if a request in flight takes longer than a single one by this factor.
QUEUED = 1.5
#: Share of the one-at-a-time rate at which most requests are alone.
ALONE_SHARE = 0.3
#: First number of clients in a closed loop without an SLO on a latency.
FIRST_CONCURRENCY = 2.0


@dataclass(frozen=True)
class First:
    """The first level of a search.

    Attributes:
        level: Requests per second of an open loop, or clients of a closed one.
        lowest: If this level fails, no lower one is worth measuring.
        most: Requests per second that the config answered when saturated; infinite if not known.
    """

    level: float
    lowest: bool = False
    most: float = math.inf


def first_level(
    bench: Bench,
    plan: LoadPlan,
    seed: int,
    note: Callable[[str], None] = lambda _: None,
    bound: Slo | None = None,
    likely_per_s: float = math.inf,
) -> First:
    """The first load for the deployed config, by requests one at a time and many at once.

    Args:
        note: Receives a sentence about the results.
        bound: The tightest upper bound on a latency. If one request alone takes longer, only a load
            at which most requests are alone is worth measuring.
        likely_per_s: The capacity by the first calls, in requests per second; infinite where these
            were not timed.

    Raises:
        LoadFailedError: Single requests gave no usable result.
        ModelFailsError: The model fails requests.
        ServerGoneError: The server died.
    """
    alone_s = bench.one_at_a_time(seed)
    latency_s = alone_s[""]
    seen = f"one request at a time takes {_duration(latency_s)}"
    if not plan.arrivals.open_loop:
        return _first_clients(latency_s, bound, seen, note)
    if bound is not None and alone_s.get(bound.stream, 0.0) * 1e6 > bound.bound:
        note(f"{seen}: more than {bound} allows, under any load")
        return First(ALONE_SHARE / latency_s, lowest=True)
    first, many = First(FIRST_SHARE_ALONE / latency_s), at_once(latency_s)
    try:
        rate = bench.many_at_once(many, seed)
    except ModelFailsError:
        raise  # a lower load would only fail more slowly
    except LoadFailedError as error:
        seen += f"; {many} at once gave no result ({error.message})"
    else:
        if many < ENOUGH_AT_ONCE and not _queued(many, rate, latency_s):
            many = ENOUGH_AT_ONCE  # many instances: so they answer fast
            rate = bench.many_at_once(many, seed)
        seen += f"; with {many} at once it answers {digits(rate, 4)}/s"
        most = rate if _queued(many, rate, latency_s) else math.inf
        first = First(_first(rate, likely_per_s), most=most)
    note(f"{seen}; the first load is {digits(plan.levels.nearest(first.level), 4)}/s")
    return first


def first_of(seen: Saturated, likely_per_s: float = math.inf) -> First:
    """The first load of an open loop, by the screening of the config."""
    most = math.inf if seen.at_most_per_s is None else seen.at_most_per_s
    return First(_first(seen.answered_per_s, likely_per_s), most=most)


def _first(answered_per_s: float, likely_per_s: float) -> float:
    likely = FIRST_SHARE * answered_per_s if math.isinf(likely_per_s) else likely_per_s
    return min(likely, MOST_SHARE * answered_per_s)


def at_once(latency_s: float) -> int:
    """Requests in flight that saturate a config, by the seconds of a single request."""
    slow = min(ENOUGH_AT_ONCE, int(LOOK_S / latency_s))
    return min(max(round(IN_FLIGHT_S / latency_s), slow, FEWEST_AT_ONCE), MOST_AT_ONCE)


def _queued(many: int, rate_per_s: float, latency_s: float) -> bool:
    """Whether ``many`` requests in flight had to wait for each other."""
    return many / rate_per_s > QUEUED * latency_s


def _first_clients(
    latency_s: float, bound: Slo | None, seen: str, note: Callable[[str], None]
) -> First:
    """The number of clients that meet the bound even if they are served one by one."""
    if bound is None:
        return First(FIRST_CONCURRENCY)
    fit = bound.within_s / latency_s
    if fit < 1.0:
        note(f"{seen}: more than {bound} allows, with any number of clients")
        return First(1.0, lowest=True)
    first = max(1.0, float(math.floor(FIRST_SHARE * fit)))
    note(f"{seen}; the first load is {digits(first)} client{'s' * (first > 1)}")
    return First(first)


def _duration(seconds: float) -> str:
    return f"{digits(seconds * 1e3, 3)} ms" if seconds < 1.0 else f"{digits(seconds, 3)} s"
