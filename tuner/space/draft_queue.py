"""The longest delay that `tune init` drafts from the SLO, and the queue timeout it proposes."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.modelconfig.queues import IDLE_WAIT_US
from tuner.space.draft_text import DraftEntry, Remark
from tuner.spec.paths import QUEUE_TIMEOUT
from tuner.spec.slo import Slo

#: Longest delay worth trying, microseconds, where somebody waits for the answer and in batch jobs;
#: and never more than half of the latency allowed.
MOST_DELAY_US = {"interactive": 10_000, "batch": 200_000}
#: From this SLO on, requests are those of a batch job.
_BATCH_JOB_US = 1_000_000
_IDLE_WAIT = f"{IDLE_WAIT_US / 1e6:g} s beside an idle instance"


def delays(path: str, slo: Slo) -> DraftEntry:
    """The values of a delay."""
    work = "batch" if slo.bound >= _BATCH_JOB_US else "interactive"
    longest_us = max(200, min(MOST_DELAY_US[work], round(slo.bound / 2)))
    remark = f"{work} work, by the SLO: up to {longest_us / 1e3:g} ms" * (work == "batch")
    return DraftEntry(path, f"{{int: [50, {longest_us}], log: true, or: 0}}", remark)


def queue_timeout_us(slo: Slo) -> int:
    """Half of what an SLO on the latency allows; the rest is for the work itself."""
    return max(1, round(slo.bound / 2))


def queue_lines(slo: Slo, *, has_policy: bool) -> Iterator[DraftEntry | Remark]:
    """The line of the space with its effect; empty where its delay exceeds the SLO.

    Args:
        has_policy: The config has a timeout, a limit or priorities, which candidates keep.
    """
    timeout_us = queue_timeout_us(slo)
    if has_policy:
        yield Remark(
            "Queue timeouts, limits and priorities of config.pbtxt stay: with any of them, requests"
        )
        yield Remark(f"may wait {_IDLE_WAIT} at light load. A timeout beside a")
        yield Remark("delay harms the batcher of servers older than core#509 (server#8870).")
        return
    if timeout_us < IDLE_WAIT_US:
        yield Remark(
            "Queue timeouts, limits and priorities are left out: with any of them, requests may"
        )
        yield Remark(f"wait {_IDLE_WAIT} at light load, more than half of this SLO.")
        return
    yield Remark(
        "Requests that come faster than they are served wait without end, until all are late."
    )
    yield Remark(
        f"The last line refuses those that waited {timeout_us / 1e3:g} ms, half of the SLO, so"
    )
    yield Remark(
        "that the others stay in time; the report shows its effect under an overload: keep it"
    )
    yield Remark(f"only if it helped, since requests may then wait {_IDLE_WAIT}")
    yield Remark(
        "at light load. What is refused is an error: allow some, as error_rate <= 1%. With a"
    )
    yield Remark(
        "queue delay it harms the batcher of servers older than core#509 (server#8870): search"
    )
    yield Remark("only one of the two there.")
    yield DraftEntry(QUEUE_TIMEOUT, f"{{choice: [{timeout_us}]}}", mark="# ")
