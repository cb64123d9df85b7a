"""A check for other programs: OpenMetrics, and the JSON of github-action-benchmark.

Sources: the specification of OpenMetrics 1.0; that action's README on `customBiggerIsBetter`.
"""

from __future__ import annotations

import json
from datetime import datetime
from statistics import geometric_mean

from tuner.run.checks import CheckFacts
from tuner.run.status import CheckStatus


def open_metrics(check: CheckFacts) -> str:
    """Gauges alone, without times: the node exporter, which reads no OpenMetrics, reads these."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry, own = CollectorRegistry(), {"model": check.model, "spec": check.spec_path}

    def gauge(name: str, told: str, *values: tuple[dict[str, str], float | None]) -> None:
        labels = [*own, *(values[0][0] if values else ())]
        family = Gauge(f"tune_check_{name}", told, labels, registry=registry)
        for more, value in values:
            if value is not None:
                family.labels(**own, **more).set(value)

    started = datetime.fromisoformat(check.checked_at).timestamp()
    ended = [({"status": s.value}, float(s is check.status)) for s in CheckStatus]
    gauge("status", "1 for how the last check ended.", *ended)
    gauge("exit_code", "Exit code of the last check.", ({}, check.exit_code))
    gauge("timestamp_seconds", "When the last check began, in Unix time.", ({}, started))
    value = ({"compared": check.compared}, _mean(check))
    gauge("value", "What is compared, mean of the rounds, in its base unit.", value)
    bounds = ("estimate", "low", "high")
    ratios = [({"bound": b}, getattr(check.ratio, b, None)) for b in bounds]
    gauge("ratio", "Times better than the accepted result, with its interval.", *ratios)
    gauge("fail_ratio", "Ratio below which a loss fails.", ({}, 1.0 - check.fail))
    worst = [slo.worst for slo in check.slo]
    margins = [({"slo": w.expression, "stream": w.stream}, w.margin) for w in worst]
    gauge("slo_margin", "Share of the SLO's bound that is left, below 0: missed.", *margins)
    return generate_latest(registry).decode() + "# EOF\n"


def benchmark(check: CheckFacts) -> str:
    """What was compared, if more of it is better, and the accepted result's share; as JSON."""
    facts = {"extra": f"{check.status.value}: {' '.join(check.reasons)}"}
    found, mean = [], _mean(check)
    if check.compared in ("capacity", "throughput") and mean is not None:
        spread = f"{min(check.values):g} to {max(check.values):g}"
        name = f"{check.model}: {check.compared}"
        found.append({"name": name, "unit": "infer/s", "value": mean, "range": spread, **facts})
    if (ratio := check.ratio) is not None:
        name = f"{check.model}: against the accepted result"
        spread = f"{ratio.low:.1%} to {ratio.high:.1%}"
        value = 100.0 * ratio.estimate
        found.append({"name": name, "unit": "%", "value": value, "range": spread, **facts})
    return json.dumps(found, indent=2) + "\n"


def _mean(check: CheckFacts) -> float | None:
    return geometric_mean(check.values) if check.values and min(check.values) > 0.0 else None
