"""The benchmarks of the claims: they run, and say of one known truth what is true."""

from __future__ import annotations

import adverse
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
    rounds = proof.rounds(SERVER, ratio, 0.01, 0)
    assert rounds.better is better
    assert rounds.holds


def test_only_who_is_often_late_at_low_loads_is_said_to_miss() -> None:
    _, *rows = adverse.low_loads(4)
    assert [missed for *_, missed in rows][::4] == ["0 of 4", "4 of 4"]


def test_equal_config_at_a_listed_load_is_not_called_better() -> None:
    race = adverse.raced(SERVER, SERVER, 0.03, 0, listed=True)
    assert not race.better
    assert len({p.level for c in (race.current, *race.finalists) for p in c.points}) == 1


def test_credited_load_is_near_the_truth_and_meets_the_slo_in_the_long_run() -> None:
    claim = proof.claim(SERVER, 3, 0.0, 0)
    assert claim.credited is not None
    assert 0.8 <= claim.credited <= 1.0
    assert claim.late <= ALLOWED


def test_a_share_is_marked_where_chance_does_not_explain_that_it_misses_its_limit() -> None:
    assert str(proof.share([True] * 5 + [False] * 95, most=0.025)) == "5.0%"
    assert str(proof.share([True] * 10 + [False] * 90, most=0.025)) == "10.0% !"


def test_a_config_made_faster_has_all_its_service_times_shortened() -> None:
    fields = fields_of(candidate(0.25))
    times = {name: float(str(fields[f"parameters.{name}"])) for name in COSTS}
    assert times == pytest.approx({name: ms / 1.25 for name, ms in COSTS.items()})
