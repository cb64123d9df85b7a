"""The benchmarks of the claims: they run, and say of one known truth what is true."""

from __future__ import annotations

import proof
import pytest
from builders.candidates import fields_of
from queues import ALLOWED, SERVERS
from rounds import COSTS, candidate

SERVER = SERVERS["unbatched 6.5 ms, p99 <= 100 ms"]


@pytest.mark.parametrize(("ratio", "better"), [(1.0, False), (1.2, True)])
def test_a_config_of_a_fifth_more_capacity_is_called_better_and_an_equal_one_is_not(
    ratio: float, better: bool
) -> None:
    found = proof.rounds(SERVER, ratio, 0.01, 0)
    assert found.better is better
    assert found.holds


def test_what_is_credited_is_near_the_truth_and_holds_in_the_long_run() -> None:
    found = proof.claim(SERVER, 3, 0.0, 0)
    assert found.credited is not None
    assert 0.8 <= found.credited <= 1.0
    assert found.late <= ALLOWED


def test_a_share_is_marked_where_chance_does_not_explain_that_it_misses_its_limit() -> None:
    assert str(proof.share([True] * 5 + [False] * 95, most=0.025)) == "5.0%"
    assert str(proof.share([True] * 10 + [False] * 90, most=0.025)) == "10.0% !"


def test_a_config_made_faster_has_all_its_service_times_shortened() -> None:
    found = fields_of(candidate(0.25))
    times = {name: float(str(found[f"parameters.{name}"])) for name in COSTS}
    assert times == pytest.approx({name: ms / 1.25 for name, ms in COSTS.items()})
