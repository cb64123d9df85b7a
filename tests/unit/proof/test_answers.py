"""Whether a config answers what the current one does, on an emulated bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from builders.candidates import candidate_of
from builders.emulated import FreshBench, saying

from tuner.load.probes.answers import ConfigAnswers
from tuner.proof.answers import AnswersCompared, same_answers
from tuner.space.candidate import Candidate

CURRENT = candidate_of({"instance_group.count": 1})
WINNER = candidate_of({"instance_group.count": 2})


class Speaking(FreshBench):
    """Each candidate has its answers, one deployment after another."""

    def __init__(self, answers: Mapping[Candidate, list[ConfigAnswers]]) -> None:
        super().__init__(lambda _: 100.0)
        self._answers: dict[Candidate, Iterator[ConfigAnswers]] = {
            candidate: iter(given) for candidate, given in answers.items()
        }

    def answers(self) -> Mapping[str, ConfigAnswers]:
        return {"": next(self._answers[self.candidate])}


def compare(
    current: list[ConfigAnswers], winner: ConfigAnswers
) -> tuple[AnswersCompared, list[Candidate]]:
    bench = Speaking({CURRENT: current, WINNER: [winner]})
    return same_answers(bench, CURRENT, WINNER, 1e-3), [c for c, _ in bench.deployed]


def test_the_same_answers_cost_two_deployments() -> None:
    result, deployed = compare([saying(1.0)], saying(1.0001))
    assert not result.changed
    assert (
        result.sentence == "Answers to 1 requests are the current config's (floats within 0.001)."
    )
    assert deployed == [CURRENT, WINNER]


def test_other_answers_are_a_change_once_the_current_config_agrees_with_itself() -> None:
    result, deployed = compare([saying(1.0), saying(1.0)], saying(2.0))
    assert result.changed
    assert "It changes answers: input 0 asked alone: output y differs by up to 1" in result.sentence
    assert deployed == [CURRENT, WINNER, CURRENT]


def test_a_model_that_does_not_agree_with_itself_is_not_compared() -> None:
    result, _ = compare([saying(1.0), saying(3.0)], saying(2.0))
    assert not result.changed
    assert "the current config's own differ from run to run (input 0" in result.sentence


def test_a_model_that_cannot_be_asked_is_not_compared() -> None:
    result, _ = compare([ConfigAnswers(none_because="it is decoupled")], saying(2.0))
    assert result == AnswersCompared(False, "Answers were not compared: it is decoupled.")


def test_the_first_difference_is_told_with_how_many_more_there_are() -> None:
    current, winner = (
        ConfigAnswers(alone=tuple(saying(v).alone[0] for v in values))
        for values in ((1.0, 2.0, 3.0), (1.0, 5.0, 6.0))
    )
    result, _ = compare([current, current], winner)
    assert result.sentence.startswith("It changes answers: input 1 asked alone: ")
    assert result.sentence.endswith(", and 1 more.")
    one, _ = compare([saying(1.0), saying(1.0)], saying(2.0))
    assert "more" not in one.sentence


def test_the_answers_of_every_stream_are_compared_and_told_with_its_name() -> None:
    class Streams(FreshBench):
        def answers(self) -> Mapping[str, ConfigAnswers]:
            own = saying(2.0 if self.candidate == WINNER else 1.0)
            return {
                "text": saying(1.0),
                "head": own,
                "chat": ConfigAnswers(none_because="it is decoupled"),
            }

    result = same_answers(Streams(lambda _: 100.0), CURRENT, WINNER, 1e-3)
    assert result.changed
    assert result.sentence.startswith("It changes answers: head: input 0 asked alone: output y")
    same = same_answers(Streams(lambda _: 100.0), CURRENT, CURRENT, 1e-3)
    assert same.sentence == (
        "Answers to 2 requests are the current config's (floats within 0.001). "
        "Answers to chat were not compared: it is decoupled."
    )
