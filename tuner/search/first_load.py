"""The first load for a config about which nothing is known yet."""

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

#: A search without an incumbent begins with this share of the rate at which the server saturates,
#: or of the one-at-a-time rate where the former is not known. Of a config whose first calls were
#: timed, it begins with what these let expect, but no more than the last share.
FIRST_SHARE, FIRST_SHARE_ALONE, MOST_SHARE = 0.8, 0.6, 0.93
#: To saturate it, as many at once as it answers one by one in this time, within these limits.
IN_FLIGHT_S, FEWEST_AT_ONCE, MOST_AT_ONCE = 1.0, 4, 256
#: A slow model is asked this many, so that all of its instances are busy, or as many as even a
#: single one answers while a look lasts.
ENOUGH_AT_ONCE = 16
#: It was saturated if that many at once took longer than one by itself by this factor.
QUEUED = 1.5
#: Share of the one-at-a-time rate at which requests are mostly alone.
ALONE_SHARE = 0.3
#: First concurrency of such a search in a closed loop where no latency is bounded.
FIRST_CONCURRENCY = 2.0


@dataclass(frozen=True)
class First:
    """The first level of a search.

    Attributes:
        lowest: If this level fails, no lower one is worth measuring.
        most: Most requests per second that the config answers, as far as was seen.
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
    """Finds the first load of a capacity search when nothing is known of the deployed config.

    ``bound``: the tightest upper bound on a latency. Where one request alone takes longer, only a
    load under which requests are mostly alone is worth measuring. ``likely_per_s``: its capacity by
    its first calls; infinite where these were not timed.
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
            many = ENOUGH_AT_ONCE  # there are many instances: it will not take long
            rate = bench.many_at_once(many, seed)
        seen += f"; with {many} at once it answers {digits(rate, 4)}/s"
        most = rate if _queued(many, rate, latency_s) else math.inf
        first = First(_first(rate, likely_per_s), most=most)
    note(f"{seen}; the first load is {digits(plan.levels.nearest(first.level), 4)}/s")
    return first


def first_of(seen: Saturated, likely_per_s: float = math.inf) -> First:
    """The same, by what a config answered when it was saturated."""
    most = math.inf if seen.at_most_per_s is None else seen.at_most_per_s
    return First(_first(seen.answered_per_s, likely_per_s), most=most)


def _first(answered_per_s: float, likely_per_s: float) -> float:
    likely = FIRST_SHARE * answered_per_s if math.isinf(likely_per_s) else likely_per_s
    return min(likely, MOST_SHARE * answered_per_s)


def at_once(latency_s: float) -> int:
    """Requests in flight: what a fast model answers in `IN_FLIGHT_S`, fewer for a slow one."""
    slow = min(ENOUGH_AT_ONCE, int(LOOK_S / latency_s))
    return min(max(round(IN_FLIGHT_S / latency_s), slow, FEWEST_AT_ONCE), MOST_AT_ONCE)


def _queued(many: int, rate_per_s: float, latency_s: float) -> bool:
    """Whether that many requests at once had to wait for each other."""
    return many / rate_per_s > QUEUED * latency_s


def _first_clients(
    latency_s: float, bound: Slo | None, seen: str, note: Callable[[str], None]
) -> First:
    """The number of clients that wait no longer than the bound even if served one by one."""
    if bound is None:
        return First(FIRST_CONCURRENCY)
    fit = bound.bound / 1e6 / latency_s
    if fit < 1.0:
        note(f"{seen}: more than {bound} allows, with any number of clients")
        return First(1.0, lowest=True)
    first = max(1.0, float(math.floor(FIRST_SHARE * fit)))
    note(f"{seen}; the first load is {digits(first)} client{'s' * (first > 1)}")
    return First(first)


def _duration(seconds: float) -> str:
    return f"{digits(seconds * 1e3, 3)} ms" if seconds < 1.0 else f"{digits(seconds, 3)} s"
