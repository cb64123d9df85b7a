"""Rules for searched variables of the server's environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.spec.fields import Choice, IntRange, ParameterSpec, Subsets, known
from tuner.spec.mistakes import Finding, Location
from tuner.spec.model import Spec
from tuner.spec.paths import variable_of, variable_path
from tuner.spec.rules import applied
from tuner.spec.runtimes import thread_count


def check_variables_of_remote(spec: Spec) -> Iterator[Finding]:
    """A searched variable is one of a server that tune starts."""
    for path in filter(variable_of, spec.server.space if not spec.server.managed else ()):
        text = "is a variable of the server's environment: tune cannot restart a remote server"
        yield Finding(("server", "space", path), f"{text} to change it", key=True)


def check_thread_counts(spec: Spec) -> Iterator[Finding]:
    """Values of a variable are different numbers of threads, or ``unset``."""
    for path, parameter in known(spec.server.space.items()):
        if variable_of(path):
            yield from applied(_check_thread_counts, ("server", "space", path), parameter)


def _check_thread_counts(where: Location, parameter: ParameterSpec) -> Iterator[Finding]:
    if isinstance(parameter, Subsets):
        yield Finding(where, "one number of threads is expected: {choice: [unset, 1, 2]}")
        return
    seen = set[object]()
    for key, value in _listed(parameter):
        try:
            count = thread_count(value)
        except ValueError as error:
            yield Finding((*where, *key), str(error))
            continue
        if count in seen:
            yield Finding((*where, *key), f"{value} is listed twice")
        seen.add(count)


def check_current_variables(spec: Spec) -> Iterator[Finding]:
    """The current number of threads is in the spec where a variable is searched."""
    for name, variable in known(spec.server.environment.items()):
        searched = variable_path(name) in spec.server.space
        if searched and not re.fullmatch(r"[1-9]\d*", variable.given or ""):
            text = f'is searched: write the current number of threads, such as {name}: "1", or'
            yield Finding(("server", "environment", name), f"{text} leave it out", key=True)


def _listed(parameter: IntRange | Choice) -> Iterator[tuple[Location, object]]:
    """What is written for single values, with its place."""
    if isinstance(parameter, IntRange):
        yield ("int", 0), parameter.int_[0]
        yield from [(("or",), parameter.or_)] if parameter.or_ is not None else []
    else:
        yield from ((("choice", index), value) for index, value in enumerate(parameter.choice))
