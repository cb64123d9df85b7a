"""Compares the answers of two configs: a config that is faster but answers wrongly is no gain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tuner.errors import TrialError
from tuner.load.probes.answers import ConfigAnswers, differences, largest_differences
from tuner.meter.protocol import Bench
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.space.candidate import Candidate
from tuner.spec.labels import labelled


def same_answers(
    bench: Bench,
    current: Candidate,
    winner: Candidate,
    tolerance: float,
    by_output: Mapping[str, float] = MappingProxyType({}),
) -> Reason:
    """Sends the same requests to both configs, each on a fresh server, and compares the answers.

    Where the answers differ, the current config is sent the requests once more: if its answers
    differ between its two servers, the kind of the reason is `ANSWERS_VARY`; else it is
    `ANSWERS_CHANGED`, and the winner must not be written.

    Args:
        tolerance: The largest difference of two floats that counts as equal.
        by_output: The tolerance of single outputs, by the output's name.

    Raises:
        TrialError: A config cannot be served, or its server died during the requests.
    """
    expected, given = _answers_of_current(bench, current), _answers(bench, winner)
    reasons = {n: e.none_because or given[n].none_because for n, e in expected.items()}
    of_one = {name: {"stream": name} if len(given) > 1 else {} for name in given}
    not_compared = tuple(
        Reason(ReasonKind.ANSWERS_NOT_COMPARED, facts={**of_one[name], "why": why})
        for name, why in reasons.items()
        if why
    )
    expected = {name: answers for name, answers in expected.items() if not reasons[name]}
    if not expected:
        return Reason(ReasonKind.ANSWERS_NOT_COMPARED, causes=not_compared)
    within = (tolerance, by_output)
    differences = _differences(expected, given, *within)
    if not differences:
        count = sum(len(answers.alone) for answers in expected.values())
        same: dict[str, Fact] = {"request_count": count, "tolerance": tolerance}
        if apart := _apart(expected, given):
            same["largest_differences"] = apart
        return Reason(ReasonKind.ANSWERS_SAME, facts=same, causes=not_compared)
    varying = _differences(expected, _answers_of_current(bench, current), *within)
    if varying:
        return Reason(ReasonKind.ANSWERS_VARY, facts={"difference": varying[0]})
    changed: dict[str, Fact] = {
        "difference": differences[0],
        "other_differences": len(differences) - 1,
    }
    return Reason(ReasonKind.ANSWERS_CHANGED, facts=changed)


def _differences(
    expected: Mapping[str, ConfigAnswers],
    given: Mapping[str, ConfigAnswers],
    tolerance: float,
    by_output: Mapping[str, float],
) -> list[str]:
    """Every difference in each stream whose answers can be compared, as a sentence."""
    return [
        labelled(name, text, given)
        for name, answers in expected.items()
        for text in differences(answers, given[name], tolerance, by_output)
    ]


def _apart(expected: Mapping[str, ConfigAnswers], given: Mapping[str, ConfigAnswers]) -> str:
    """The outputs of floats that differ within the tolerance, each with its largest difference."""
    texts = [
        labelled(name, f"{output} {worst:.1g}", given)
        for name, answers in expected.items()
        for output, worst in largest_differences(answers, given[name]).items()
    ]
    return ", ".join(texts)


def _answers_of_current(bench: Bench, current: Candidate) -> Mapping[str, ConfigAnswers]:
    try:
        return _answers(bench, current)
    except TrialError as error:
        raise failed(TrialError, error.reason.of("the current config")) from error


def _answers(bench: Bench, candidate: Candidate) -> Mapping[str, ConfigAnswers]:
    bench.deploy(candidate, fresh=True)
    return bench.answers()
