"""What disturbed a measurement.

Thresholds are shares of the whole machine: at capacity the server gets what others leave, so a
share taken from it moves the capacity by about that share.
"""

from __future__ import annotations

from tuner.measurement.measurement import HostUse, Measurement
from tuner.spec.digits import digits

#: Other processes' share of all cores, in percent. Housekeeping stays well below; with this much
#: the capacity may have moved by as much as the usual ``min_gain``.
OTHER_CPU_PERCENT = 5.0
#: Steal time: share of all cores the hypervisor gave to other guests, in percent. It comes in
#: slices of milliseconds and so shows in p99 before it shows in throughput.
STOLEN_CPU_PERCENT = 2.0

#: How the sentence about a GPU that throttles begins. It is no excuse where a load is to last.
THROTTLED = "A GPU's clocks were held down"


def disturbances(measurement: Measurement) -> tuple[str, ...]:
    """One sentence for each thing beside the load that spoilt the measurement.

    What could not be read (``None``) disturbs nothing. The load average and the frequency
    governor do not count: the first rises with our own load, the second stays as it is, and
    `tune doctor` speaks of it.
    """
    host = measurement.host
    said = (_others(host), stolen_from(host), _throttled(host))
    return tuple(sentence for sentence in said if sentence)


def _others(host: HostUse) -> str:
    share = host.other_cpu_percent
    if share is None or share <= OTHER_CPU_PERCENT:
        return ""
    return (
        f"Other processes took {digits(share, 2)} % of the machine's CPU meanwhile "
        f"(up to {OTHER_CPU_PERCENT:.0f} % is quiet)."
    )


def stolen_from(host: HostUse) -> str:
    """The steal time of a measurement, as a sentence; empty where there was little."""
    share = host.stolen_cpu_percent
    if share is None or share <= STOLEN_CPU_PERCENT:
        return ""
    return (
        f"The hypervisor gave {share:.1f} % of the machine's CPU to other guests meanwhile "
        f"(up to {STOLEN_CPU_PERCENT:.0f} % is quiet)."
    )


def _throttled(host: HostUse) -> str:
    if not host.gpu_throttled:
        return ""
    clock = "" if host.gpu_clock_mhz is None else f", down to {host.gpu_clock_mhz:.0f} MHz"
    return f"{THROTTLED} by heat or power meanwhile{clock}."
