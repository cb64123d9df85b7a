from __future__ import annotations

import random
from dataclasses import replace

import pytest
from builders.candidates import candidate_of
from builders.pages import Made
from builders.runs import BATCH, COUNT, DELAY
from scipy.stats import kruskal

from tuner.report.analysis import (
    Latency,
    _effect,
    importance,
    incumbent,
    level_text,
    pareto,
    varied_knobs,
)
from tuner.report.data import ReportData, judged_point
from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.space.parameters import Knob

P99 = Latency("p99_latency")


def with_trials(data: ReportData, trials: list[Trial]) -> ReportData:
    return replace(data, trials=tuple(trials))


def scored(number: int, fields: dict[str, int], score: float, *, feasible: bool = True) -> Trial:
    return Trial(
        number,
        candidate_of(fields),
        TrialState.MEASURED,
        score=Score(score, feasible, 0.0 if feasible else 1.0, None),
    )


def test_the_front_is_what_no_trial_beats(made: Made) -> None:
    data = made()
    places = [
        (p.measurement.throughput_infer_per_s, P99.of(p) or 0.0)
        for t in data.scored
        if (p := judged_point(t)) is not None
    ]
    beaten = {
        place
        for place in places
        if any(o != place and o[0] >= place[0] and o[1] <= place[1] for o in places)
    }
    front = pareto(places)
    assert sorted(front) == sorted({*places} - beaten)
    assert len(front) >= 2


def test_the_incumbent_never_gets_worse_and_is_feasible(made: Made) -> None:
    data = with_trials(
        made(),
        [
            scored(0, {COUNT: 1}, 50, feasible=False),
            scored(1, {COUNT: 2}, 10),
            scored(2, {COUNT: 3}, 30),
            scored(4, {COUNT: 4}, 20),
        ],
    )
    assert incumbent(data) == ((1, 10), (2, 30), (4, 30))


def test_the_field_that_decides_the_score_is_the_most_important(made: Made) -> None:
    trials = [scored(n, {COUNT: n % 2, BATCH: n % 3}, 100 * (n % 2) + n % 3) for n in range(30)]
    first, second = importance(with_trials(made(), trials))
    assert first.knob.path == COUNT
    assert first.share > 0.6
    assert second.share < 0.3


def test_a_field_without_influence_has_none(made: Made) -> None:
    trials = [scored(n, {COUNT: n % 4, BATCH: n // 4 % 4}, n // 4 % 4) for n in range(64)]
    shares = {i.knob.path: i.share for i in importance(with_trials(made(), trials))}
    assert shares[COUNT] == 0.0
    assert shares[BATCH] == pytest.approx(1.0)


def test_many_numbers_are_compared_in_quarters(made: Made) -> None:
    trials = [scored(n, {DELAY: n}, float(n)) for n in range(40)]
    (effects,) = importance(with_trials(made(), trials))
    assert effects.levels == 4
    assert effects.share > 0.85


def test_few_trials_say_nothing(made: Made) -> None:
    assert importance(made(trials=8)) == ()


def test_equal_scores_say_nothing(made: Made) -> None:
    trials = [scored(n, {COUNT: n % 2}, 7.0) for n in range(20)]
    assert importance(with_trials(made(), trials)) == ()


def test_fields_with_one_value_are_left_out(made: Made) -> None:
    trials = [scored(n, {COUNT: n % 2, BATCH: 8}, n) for n in range(20)]
    assert varied_knobs(with_trials(made(), trials)) == (Knob("m", COUNT),)


def test_values_have_labels() -> None:
    values = [None, False, True, 4, 16, (4, 8), (4, 16), "cache 1 MiB"]
    labels = [level_text(value) for value in values]
    assert labels == ["unset", "off", "on", "4", "16", "[4, 8]", "[4, 16]", "cache 1 MiB"]


@pytest.mark.parametrize("seed", range(5))
def test_the_effect_is_that_of_scipys_kruskal(seed: int) -> None:
    rng = random.Random(seed)
    groups = [[float(rng.randrange(9) + 3 * k) for _ in range(3 + k)] for k in range(2 + seed)]
    n, k = sum(map(len, groups)), len(groups)
    expected = (float(kruskal(*groups).statistic) - k + 1) / (n - k)
    assert expected > 0.0
    assert _effect(groups) == pytest.approx(expected)
