"""Interim analyses: how often rounds are looked at, and how much of the error each look spends.

The rounds of a confirmation are looked at twice: when as many as the spec says are over and, if
that is inconclusive, after as many again. Those of a check are looked at once more. All looks at
all finalists share one error (Bonferroni), so that the chance of any wrong "better" is the stated
one. After three rounds, Student's t with two degrees of freedom proves little but large gains,
whatever its share of the error; so the first look of a confirmation gets a small one. Source: Lan
and DeMets, Discrete sequential boundaries for clinical trials (1983), on spending error unevenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.score.ratio import ERROR

ANALYSES = 2
#: Share of the error that the first look spends.
FIRST_ANALYSIS = 0.16
#: Each look: after how many times the spec's rounds, and what share of the error it spends.
Looks = tuple[tuple[int, float], ...]
LOOKS: Looks = ((1, FIRST_ANALYSIS), (ANALYSES, 1.0 - FIRST_ANALYSIS))
#: Those of a check. The last is for noisy machines: with servers 2 % apart, six rounds leave one
#: unchanged night in six inconclusive, twelve hardly any.
CHECK_LOOKS: Looks = ((1, 0.3), (2, 0.3), (4, 0.4))


@dataclass(frozen=True)
class InterimAnalyses:
    """Of one comparison.

    Attributes:
        rounds: At the first look.
        tests: Number of candidates that may be called better.
        looks: The first one first.
    """

    rounds: int
    tests: int = 1
    looks: Looks = LOOKS

    def error(self, rounds_done: int) -> float:
        """The two-sided error of the interval that is looked at after this many rounds."""
        due = (share for times, share in self.looks if rounds_done <= times * self.rounds)
        return ERROR * next(due, self.looks[-1][1]) / self.tests
