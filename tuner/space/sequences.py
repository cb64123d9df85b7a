"""Models that take sequences of requests, and the load that fits them."""

from __future__ import annotations

from tuner.spec.arrivals import SequenceArrivals
from tuner.spec.model import Spec
from tuner.spec.units import digits

#: Arrivals for drafts, and for messages of mistakes.
EXAMPLE = "{kind: sequences, length: 20, interval: 100ms}"
#: What to do where a request of a sequence may have several answers.
DECOUPLED = (
    "tune measures sequences with one answer a request: where that is so, leave decoupled out of "
    "config.pbtxt"
)


def sequence_note(spec: Spec) -> str:
    """The rate of one sequence, and whether order is checked, in words; empty without sequences."""
    arrivals = spec.workload.arrivals
    if not isinstance(arrivals, SequenceArrivals):
        return ""
    one = digits(1.0 / float(arrivals.interval))
    checked = f"their order is checked in {arrivals.count_output}"
    if arrivals.count_output is None:
        checked = "their order is kept, not checked: no count_output is named"
    return f"each sequence at once is {one}/s; {checked}"
