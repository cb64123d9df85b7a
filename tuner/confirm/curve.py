"""How the latency rises around the load that a config is credited with.

A capacity says where an SLO begins to be missed, not how far from that a service should stay. So
after a soak that held, its server gets a few short loads below and above the claim, which decide
nothing. A load is left out where a short window shows nothing: it holds too few requests for the
percentile, or a queue that grows would not show in it. That leaves out all loads of slow models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.bench.protocol import Bench
from tuner.confirm.rounds import Row
from tuner.errors import TrialError
from tuner.measurement.window import Window
from tuner.run.confirmation import LoadCurve, Role, Soaked
from tuner.score.judge import tail_slo
from tuner.score.late_share import measured_late_share
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.spec.units import digits

#: Of the credited load, ascending: what an overload leaves behind must not be in the next one.
SHARES = (0.7, 0.8, 0.9, 1.0, 1.05)
#: How long each lasts, and load before it; the server has just been warmed by the soak.
LASTS_S, SETTLING_S = 5.0, 0.5


def measure_curve(
    bench: Bench,
    candidate: Candidate,
    credited: float,
    slos: Sequence[Slo],
    window_at: Callable[[float], Window],
    seed: int,
    record: Callable[[Row], None],
) -> LoadCurve:
    """Puts short loads on the server that is there; one that gives no result ends it.

    Args:
        bench: With the config on a server that sustained the credited load.
        candidate: The config.
        credited: Requests per second.
        slos: One of them is on the tail of the latency.
        window_at: Requests per second to the window that a verdict needs.
        seed: Of the arrivals at every load.
        record: Stores a row at once.
    """
    points, short, left_out = [], list[str](), list[str]()
    for order, share in enumerate(SHARES):
        level = share * credited
        rate, window = f"{digits(level, 4)}/s", window_at(level)
        if window.duration_s > LASTS_S:
            short.append(rate)
            continue
        try:
            point = bench.once(level, seed, window)
        except TrialError as error:
            left_out.append(f"{rate} and above ({error.message.rstrip('.')})")
            break
        record(Row(0, order, Role.CURVE, candidate, point))
        late = measured_late_share(point.measurement, slos)
        points.append(Soaked(point.measurement, point.slo, late))
        if point.measurement.backlog and share != SHARES[-1]:
            left_out.append(f"above {rate} (requests were still unanswered after it)")
            break
    if short:
        left_out.insert(0, f"{', '.join(short)} ({LASTS_S:.0f} s are too short for a verdict)")
    slo = tail_slo(slos)
    return LoadCurve("latency" if slo is None else slo.metric.name, tuple(points), tuple(left_out))
