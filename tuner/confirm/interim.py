"""Interim analyses: after which rounds a comparison is looked at, and what error each look spends.

The rounds of a confirmation are looked at once as many as the spec says are over, and then after
each further one until there are twice as many. All looks at all candidates share one error
(Bonferroni), so that the chance of any wrong "better" is the stated one. After three rounds,
Student's t with two degrees of freedom proves little but large gains, whatever its share of the
error; so later looks get more. Source: Lan and DeMets, Discrete sequential boundaries for clinical
trials (1983), on spending error unevenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.score.ratio import ERROR

#: A comparison has at most this many times the rounds of its first look.
MOST = 2


@dataclass(frozen=True)
class InterimAnalyses:
    """The looks at the rounds of one comparison.

    Attributes:
        looks: The number of rounds that are over and the share of the error spent, in order.
        tests: Number of candidates that may be called better.
    """

    looks: tuple[tuple[int, float], ...]
    tests: int = 1

    @classmethod
    def of_confirmation(cls, rounds: int, tests: int = 1) -> InterimAnalyses:
        """For 3 rounds, looks after 3, 4, 5 and 6, spending 12, 16, 24 and 48 % of the error."""
        parts = {rounds + later: 1.0 / (rounds + 1 - later) for later in range(rounds + 1)}
        whole = sum(parts.values())
        return cls(tuple((done, part / whole) for done, part in parts.items()), tests)

    @property
    def most_rounds(self) -> int:
        return self.looks[-1][0]

    def due(self, rounds_done: int) -> bool:
        """Whether the rounds are to be looked at now."""
        return any(rounds_done == done for done, _ in self.looks)

    def error(self, rounds_done: int) -> float:
        """The two-sided error of the interval that is looked at after this many rounds."""
        due = (share for done, share in self.looks if rounds_done <= done)
        return ERROR * next(due, self.looks[-1][1]) / self.tests
