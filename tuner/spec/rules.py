"""How rules apply to a spec with some wrong, and so unknown, values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

from tuner.spec.fields import SpaceSpec, UnknownValueError
from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec

_P = ParamSpec("_P")
_T = TypeVar("_T")

Rule = Callable[[Spec], Iterator[Finding]]


def applied(rule: Callable[_P, Iterator[_T]], *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
    """The findings of a rule, until the rule needs a value that is not known."""
    try:
        yield from rule(*args, **kwargs)
    except UnknownValueError:
        return


def _for_each(
    names: Callable[[Spec], Iterable[str]],
) -> Callable[[Callable[[Spec, str], Iterator[Finding]]], Rule]:
    """A decorator: turns a rule for one named part of a spec into a rule for all."""

    def for_all(rule: Callable[[Spec, str], Iterator[Finding]]) -> Rule:
        def rule_for_all(spec: Spec) -> Iterator[Finding]:
            for name in names(spec):
                yield from applied(rule, spec, name)

        return rule_for_all

    return for_all


for_each_stream = _for_each(lambda spec: spec.streams)
for_each_model = _for_each(lambda spec: spec.models)


def for_each_space(rule: Callable[[Location, SpaceSpec], Iterator[Finding]]) -> Rule:
    """Turns a rule for one space, with its place, into a rule for all spaces of a spec."""

    def rule_for_server(spec: Spec) -> Iterator[Finding]:
        yield from rule(("server", "space"), spec.server.space)

    @for_each_model
    def rule_for_models(spec: Spec, name: str) -> Iterator[Finding]:
        yield from rule(("models", name, "space"), spec.models[name].space)

    def rule_for_all(spec: Spec) -> Iterator[Finding]:
        yield from applied(rule_for_server, spec)
        yield from applied(rule_for_models, spec)

    return rule_for_all
