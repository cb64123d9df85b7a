"""Seeds are those of every run so far, so that later results have the same arrivals."""

from __future__ import annotations

from tuner.load import seeds


def test_a_run_has_the_arrivals_it_always_had() -> None:
    assert (seeds.of_search(3), seeds.of_near_miss(3)) == (3_001, 3_002)
    assert (seeds.of_rounds(3), seeds.of_soak(503_000)) == (503_000, 603_000)
    assert seeds.of_overload(3) == 703_000
    assert (seeds.of_start(5, 2), seeds.of_order(5, 2)) == (20_000_005, 2_000_000_005)
    assert seeds.of_confirmation("20260101-000000-tiny-bert") == 1_770_538_341


def test_no_two_purposes_of_a_run_draw_the_same_arrivals() -> None:
    for seed in (0, 1, 42, 999_999):
        first = seeds.of_confirmation("a run")
        drawn = [seeds.of_search(seed), seeds.of_near_miss(seed), seeds.of_overload(seed)]
        rounds = [first + number for number in range(100)]
        assert len({*drawn, *rounds, seeds.of_soak(first)}) == 104, seed


def test_arrivals_of_each_stream_are_independent_and_fit_in_the_record() -> None:
    names = [f"stream {k}" for k in range(50)]
    largest = seeds.of_order(seeds.of_soak(seeds.of_confirmation("a run")), 3)
    drawn = {seeds.of_stream(largest, name, names) for name in names}
    assert len(drawn) == 50
    assert max(drawn) < 2**62
    assert seeds.of_stream(7, "only", ["only"]) == 7
