"""Whether the winner still answers what the current config answers."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.bench.protocol import Bench
from tuner.load.probes.answers import Answers, differences
from tuner.space.candidate import Candidate


@dataclass(frozen=True)
class Comparison:
    """``changed``: the winner must not be written; ``sentence`` says what was seen."""

    changed: bool
    sentence: str


def same_answers(
    bench: Bench, current: Candidate, winner: Candidate, tolerance: float
) -> Comparison:
    """Asks both, each on a fresh server.

    The current config is asked again before the winner is blamed: a model that does not even
    agree with itself cannot be compared.

    Raises:
        TrialError: One of them cannot be served, or died when asked.
    """
    expected, given = (_answers(bench, candidate) for candidate in (current, winner))
    if reason := expected.none_because or given.none_because:
        return Comparison(False, f"Answers were not compared: {reason}.")
    found = differences(expected, given, tolerance)
    if not found:
        same = f"Answers to {len(expected.alone)} requests are the current config's"
        within = f"floats within {tolerance:g}" if tolerance else "exactly"
        return Comparison(False, f"{same} ({within}).")
    own = differences(expected, _answers(bench, current), tolerance)
    if own:
        sentence = "Answers were not compared: the current config's own differ from run to run"
        return Comparison(False, f"{sentence} ({own[0]}).")
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Comparison(True, f"It changes answers: {found[0]}{more}.")


def _answers(bench: Bench, candidate: Candidate) -> Answers:
    bench.deploy(candidate, fresh=True)
    return bench.answers()
