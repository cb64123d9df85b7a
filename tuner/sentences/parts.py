"""What the tables of sentences share: facts by their types, and sentences of reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.reason import Fact, Reason, ReasonKind

Facts = Mapping[str, Fact]
#: A sentence, or what makes one of a reason and its facts.
Sentences = Mapping[ReasonKind, str | Callable[[Reason, Facts], str]]
#: The sentence of each kind, from the tables of all modules: `tuner.sentences` fills it.
SENTENCES: dict[ReasonKind, str | Callable[[Reason, Facts], str]] = {}


def sentence(reason: Reason) -> str:
    """The sentence of a reason, with its subject."""
    text = clause(reason)
    names_itself = reason.kind is ReasonKind.BEST_OTHER_FALLS_SHORT
    return f"{reason.subject}: {text}" if reason.subject and not names_itself else text


def clause(reason: Reason) -> str:
    """The sentence of a reason, without its subject."""
    if (kept := reason.facts.get("sentence")) is not None:
        return str(kept)
    words = SENTENCES[reason.kind]
    return words if isinstance(words, str) else words(reason, reason.facts)


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
    return list(map(sentence, reason.causes))


def cause_clauses(reason: Reason) -> list[str]:
    """The clause of each cause."""
    return list(map(clause, reason.causes))
