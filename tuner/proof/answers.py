"""Whether a config answers what the current one does: a faster wrong answer is no gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.bench.protocol import Bench
from tuner.load.probes.answers import ConfigAnswers, differences
from tuner.space.candidate import Candidate
from tuner.spec.labels import labelled


@dataclass(frozen=True)
class AnswersCompared:
    """``changed``: the winner must not be written; ``sentence`` says what was seen."""

    changed: bool
    sentence: str


def same_answers(
    bench: Bench, current: Candidate, winner: Candidate, tolerance: float
) -> AnswersCompared:
    """Asks both, each on a fresh server, and the current config again before the winner is blamed.

    Raises:
        TrialError: One of them cannot be served, or died when asked.
    """
    expected, given = (_answers(bench, candidate) for candidate in (current, winner))
    reasons = {n: e.none_because or given[n].none_because for n, e in expected.items()}
    to = {name: f" to {name}" if len(given) > 1 else "" for name in given}
    not_compared = [
        f"Answers{to[name]} were not compared: {why}." for name, why in reasons.items() if why
    ]
    expected = {name: answers for name, answers in expected.items() if not reasons[name]}
    if not expected:
        return AnswersCompared(False, " ".join(not_compared))
    found = _differences(expected, given, tolerance)
    if not found:
        asked = sum(len(answers.alone) for answers in expected.values())
        every = f"all {asked} sample requests" if asked > 1 else "the sample request"
        same = f"Answers match the current config's on {every}"
        within = f"floats within {tolerance:g}" if tolerance else "exactly"
        return AnswersCompared(False, " ".join([f"{same} ({within}).", *not_compared]))
    own = _differences(expected, _answers(bench, current), tolerance)
    if own:
        sentence = "Answers were not compared: the current config's own differ from run to run"
        return AnswersCompared(False, f"{sentence} ({own[0]}).")
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return AnswersCompared(True, f"It changes answers: {found[0]}{more}.")


def _differences(
    expected: Mapping[str, ConfigAnswers], given: Mapping[str, ConfigAnswers], tolerance: float
) -> list[str]:
    """The differences of every stream that can be compared."""
    return [
        labelled(name, text, given)
        for name, answers in expected.items()
        for text in differences(answers, given[name], tolerance)
    ]


def _answers(bench: Bench, candidate: Candidate) -> Mapping[str, ConfigAnswers]:
    bench.deploy(candidate, fresh=True)
    return bench.answers()
