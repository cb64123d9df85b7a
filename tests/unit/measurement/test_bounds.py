"""Which SLOs a measurement is made for, where requests have a first response and a last one."""

from __future__ import annotations

from builders.measurements import latency_slo

from tuner.measurement.window import bounds_of
from tuner.score.judge import tail_slo, tightest_latency
from tuner.spec.slo import Slo


def slos(*texts: str) -> list[Slo]:
    return [Slo.parse(text) for text in texts]


def test_of_two_kinds_of_latency_it_is_made_for_that_of_the_hardest_slo() -> None:
    given = slos("p90_first_response <= 100ms", "p99_last_response <= 2s", "error_rate <= 0%")
    assert bounds_of(given) == (given[1],)
    given = slos("p99_first_response <= 100ms", "p99_last_response <= 2s")
    assert bounds_of(given) == (latency_slo(0.99, 0.1, until_first=True),)
    assert tail_slo(given) == given[0]


def test_streams_can_differ_in_kind() -> None:
    first, last = slos("p99_first_response <= 1s", "p99_latency <= 1s")
    given = [first.about("speech"), last.about("plain")]
    assert bounds_of(given) == (
        latency_slo(0.99, 1.0, "speech", until_first=True),
        latency_slo(0.99, 1.0, "plain"),
    )


def test_slo_on_the_first_response_ignores_the_time_of_the_full_one() -> None:
    first, last = slos("p99_first_response <= 100ms", "p99_last_response <= 2s")
    assert tightest_latency([first, last]) == last
    assert tightest_latency([first]) is None
