"""What disturbed a measurement: stalls of the machine, and other processes.

A missed SLO beside either says little about the config; neither makes a server faster.
"""

from __future__ import annotations

from tuner.load.watch.stalls import quiet_percent, shortest_s
from tuner.measurement.measurement import Measurement
from tuner.measurement.window import NO_BOUND, LatencyBound
from tuner.spec.units import digits

#: Other processes' share of all cores, in percent. At capacity the server gets what others leave,
#: so such a share moves the capacity by as much as the usual ``min_gain``. Stalls do not show it.
OTHER_CPU_PERCENT = 5.0


def disturbances(measurement: Measurement, bound: LatencyBound = NO_BOUND) -> tuple[str, ...]:
    """One sentence for each thing beside the load that spoilt the measurement.

    What could not be read (``None``) disturbs nothing. Steal time does where it shows as stalls.
    """
    host, said = measurement.host, []
    if (host.stalled_percent or 0.0) > quiet_percent(bound):
        said.append(
            f"The machine stood still for {digits(host.stalled_percent or 0.0, 2)}% of the time, "
            f"{digits(1e3 * shortest_s(bound), 2)} ms and more at a time "
            f"(up to {digits(quiet_percent(bound), 2)}% is quiet)."
        )
    if (host.other_cpu_percent or 0.0) > OTHER_CPU_PERCENT:
        said.append(
            f"Other processes took {digits(host.other_cpu_percent or 0.0, 2)}% of the machine's "
            f"CPU meanwhile (up to {OTHER_CPU_PERCENT:.0f}% is quiet)."
        )
    return tuple(said)


def taken_percent(measurement: Measurement) -> float:
    """Percent of this machine that the server and its client could not have."""
    host = measurement.host
    return (host.stalled_percent or 0.0) + (host.other_cpu_percent or 0.0)
