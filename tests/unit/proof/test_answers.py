"""Whether a config answers what the current one does, on an emulated bench.

What is told of it is in `golden/told/answers.txt`.
"""

from __future__ import annotations

from builders.emulated import saying
from builders.told_probes import CURRENT, DECOUPLED, STREAMS, WINNER, compare


def test_the_same_answers_cost_two_deployments() -> None:
    result, deployed = compare([saying(1.0)], saying(1.0001))
    assert not result.changed
    assert deployed == [CURRENT, WINNER]


def test_other_answers_are_a_change_once_the_current_config_agrees_with_itself() -> None:
    result, deployed = compare([saying(1.0), saying(1.0)], saying(2.0))
    assert result.changed
    assert deployed == [CURRENT, WINNER, CURRENT]


def test_a_model_that_does_not_agree_with_itself_or_cannot_be_asked_is_not_compared() -> None:
    assert not compare([saying(1.0), saying(3.0)], saying(2.0))[0].changed
    assert not compare([DECOUPLED], saying(2.0))[0].changed


def test_the_answers_of_every_stream_are_compared() -> None:
    assert compare([STREAMS, STREAMS], {**STREAMS, "head": saying(2.0)})[0].changed
    assert not compare([STREAMS], STREAMS)[0].changed
