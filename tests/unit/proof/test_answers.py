"""Whether a config answers what the current one does, on an emulated bench.

What is told of it is in `golden/messages/answers.txt`.
"""

from __future__ import annotations

from builders.emulated import saying
from builders.messages_probes import CURRENT, DECOUPLED, STREAMS, WINNER, compare

from tuner.reason import Reason, ReasonKind


def is_change(reason: Reason) -> bool:
    return reason.kind is ReasonKind.ANSWERS_CHANGED


def test_the_same_answers_cost_two_deployments() -> None:
    result, deployed = compare([saying(1.0)], saying(1.0001))
    assert not is_change(result)
    assert deployed == [CURRENT, WINNER]


def test_other_answers_are_a_change_once_the_current_config_agrees_with_itself() -> None:
    result, deployed = compare([saying(1.0), saying(1.0)], saying(2.0))
    assert is_change(result)
    assert deployed == [CURRENT, WINNER, CURRENT]


def test_outputs_of_a_nondeterministic_or_failing_model_are_not_compared() -> None:
    assert not is_change(compare([saying(1.0), saying(3.0)], saying(2.0))[0])
    assert not is_change(compare([DECOUPLED], saying(2.0))[0])


def test_the_answers_of_every_stream_are_compared() -> None:
    assert is_change(compare([STREAMS, STREAMS], {**STREAMS, "head": saying(2.0)})[0])
    assert not is_change(compare([STREAMS], STREAMS)[0])
