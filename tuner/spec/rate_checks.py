"""Whether the rates of a spec can be sent."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.spec.arrivals import ClosedArrivals
from tuner.spec.fields import known
from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec
from tuner.spec.units import digits

#: No load generator sends more requests per second; lists of their times would fill the memory.
MOST_PER_S = 1e6


def check_rates(spec: Spec) -> Iterator[Finding]:
    """Rates that a load generator may send."""
    arrivals, objective = spec.workload.arrivals, spec.objective
    rates = dict[Location, float | None]()
    if not isinstance(arrivals, ClosedArrivals):
        rates[("workload", "arrivals", "max_rate")] = arrivals.max_rate
        for index, rate in enumerate(arrivals.rate or ()):
            rates[("workload", "arrivals", "rate", index)] = rate
        rates[("check", "at")] = spec.check.at
    if objective.at_rate:
        rates[("objective",)] = objective.at_level
    for name, stream in known(spec.streams.items()):
        rates[("streams", name, "rate")] = stream.rate
    for where, level in rates.items():
        if level is not None and level > MOST_PER_S:
            text = f"no load generator sends {digits(level)}/s: write at most {digits(MOST_PER_S)}"
            yield Finding(where, text)
