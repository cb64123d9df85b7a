"""What the tables of sentences share: facts by their types, and the sentences of causes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tuner.reason import Fact, Reason, ReasonKind

Facts = Mapping[str, Fact]
#: A sentence, or what makes one of a reason and its facts.
Sentences = Mapping[ReasonKind, str | Callable[[Reason, Facts], str]]


def number(facts: Facts, name: str) -> float:
    value = facts[name]
    assert not isinstance(value, str)
    return value


def count(facts: Facts, name: str) -> int:
    return int(number(facts, name))


def cause(reason: Reason) -> str:
    """The sentence of the first cause."""
    return causes(reason)[0]


def causes(reason: Reason) -> list[str]:
    """The sentence of each cause."""
    from tuner.sentences import sentence

    return list(map(sentence, reason.causes))


def cause_clauses(reason: Reason) -> list[str]:
    """The clause of each cause."""
    from tuner.sentences import clause

    return list(map(clause, reason.causes))


def joined(parts: Sequence[str]) -> str:
    """Several whole sentences."""
    return " ".join(parts)
