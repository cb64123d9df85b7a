"""Interim analyses: how often rounds are looked at, and how much of the error each look spends.

The rounds are looked at twice: when as many as the spec says are over and, if that is inconclusive,
after as many again. All looks at all finalists share one error (Bonferroni), so that the chance of
any wrong "better" is the stated one. After three rounds, Student's t with two degrees of freedom
proves little but large gains, whatever its share of the error; so the first look gets a small one.
Source: Lan and DeMets, Discrete sequential boundaries for clinical trials (1983), on spending an
error unevenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.score.ratio import ERROR

ANALYSES = 2
#: Share of the error that the first look spends.
FIRST_ANALYSIS = 0.16
#: A check is looked at when this many times `check.rounds` are over; and the share of the error
#: that each look spends. The last look is for noisy machines: with servers 2 % apart, six rounds
#: leave one unchanged night in six inconclusive, twelve hardly any.
CHECK_LOOKS = ((1, 0.3), (2, 0.3), (4, 0.4))


@dataclass(frozen=True)
class InterimAnalyses:
    """Of one comparison.

    Attributes:
        rounds: At the first look; `ANALYSES` times as many at the last.
        tests: Number of candidates that may be called better.
        first: The first look's share of the error.
    """

    rounds: int
    tests: int = 1
    first: float = FIRST_ANALYSIS

    def error(self, rounds_done: int) -> float:
        """The two-sided error of the interval that is looked at after this many rounds."""
        share = self.first if rounds_done <= self.rounds else 1.0 - self.first
        return ERROR * share / self.tests
