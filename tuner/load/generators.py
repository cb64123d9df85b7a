"""Which load generator measures a run. Decided once: two generators are two definitions of latency.

perf_analyzer measures wherever it can: it is NVIDIA's own, well maintained, and what others use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.load.generator import Demand, LoadGenerator
from tuner.load.perf_analyzer import limits

if TYPE_CHECKING:
    from tuner.load.setup import Setup


@dataclass(frozen=True)
class GeneratorKind:
    """A way to send requests and measure their latencies.

    Attributes:
        cannot: Why it cannot measure a run with these streams; empty where it can.
    """

    name: str
    title: str
    cannot: Callable[[Sequence[Demand]], str]
    make: Callable[[Setup], LoadGenerator]


def _perf_analyzer(setup: Setup) -> LoadGenerator:
    from tuner.load.perf_analyzer.generator import PerfAnalyzer

    return PerfAnalyzer(**vars(setup))


def _own_client(setup: Setup) -> LoadGenerator:
    from tuner.load.client.generator import OpenClient

    return OpenClient(**vars(setup))


PERF_ANALYZER = GeneratorKind(
    "perf_analyzer",
    "perf_analyzer",
    limits.why_not,
    _perf_analyzer,
)
OWN_CLIENT = GeneratorKind("tune", "tune's own client", lambda _: "", _own_client)
#: The first that can measure a run does; the last one always can.
GENERATORS = (PERF_ANALYZER, OWN_CLIENT)


@dataclass(frozen=True)
class Choice:
    """Which generator measures, and why none of those before it; empty for the first."""

    kind: GeneratorKind
    why: str = ""


def choose(demands: Sequence[Demand]) -> Choice:
    """Chooses the generator for a run with these streams."""
    reasons: list[str] = []
    for kind in GENERATORS:
        reason = kind.cannot(demands)
        if not reason:
            break
        reasons.append(reason)
    return Choice(kind, "; ".join(reasons))


def title_of(name: str | None) -> str:
    """What users read for a name in a file; an unknown name is returned as it is."""
    return {kind.name: kind.title for kind in GENERATORS}.get(name or "", str(name))


def may_reject(config: Any) -> bool:
    """Whether a queue policy of a ``ModelConfig`` can refuse requests."""
    batching = config.dynamic_batching
    policies = (batching.default_queue_policy, *batching.priority_queue_policy.values())
    return any(
        policy.max_queue_size > 0
        or (policy.default_timeout_microseconds > 0 and policy.timeout_action == policy.REJECT)
        for policy in policies
    )
