"""The environment variables that a config needs, and where users set them.

A config.pbtxt cannot set environment variables, so it gets a comment about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tuner.modelconfig.base import Base
from tuner.modelconfig.edit import edit
from tuner.space.candidate import Candidate

#: Numbers of threads by the variable's name; None: the server starts without the variable.
Needed = Mapping[str, int | None]

_START = "# tune: start tritonserver with"
_COMMENT = re.compile(rf"^{_START}.*(?:\r?\n|\Z)(?:^# tune:   .*(?:\r?\n|\Z))*", re.MULTILINE)


def needed_variables(winner: Candidate, current: Candidate) -> dict[str, int | None]:
    """The variables that a config sets, and those of the current config that it must not set."""
    now = current.start.environment
    searched = winner.start.environment.items()
    return {n: count for n, count in searched if count is not None or now.get(n) is not None}


def assignments(needed: Needed) -> list[str]:
    """``NAME=VALUE`` of each variable that is set, as `docker run --env-file` takes them."""
    return [f"{name}={count}" for name, count in needed.items() if count is not None]


def places(needed: Needed) -> Iterator[str]:
    """A line for each place where the variables may be set."""
    if variables := assignments(needed):
        listed = (f'{{name: {n}, value: "{count}"}}' for n, count in needed.items() if count)
        yield f"command line  {' '.join(variables)} tritonserver ..."
        yield f"Docker        docker run {' '.join(f'-e {one}' for one in variables)} ..."
        yield f"Kubernetes    env: [{', '.join(listed)}]"
    if unset := [name for name, count in needed.items() if count is None]:
        yield f"not set       {', '.join(unset)}"


def of_spec(needed: Needed) -> str:
    """The lines for the spec, for later runs and checks."""
    given = (f'{name}: "{count}"' for name, count in needed.items() if count is not None)
    return f"server: {{environment: {{{', '.join(given)}}}}}"


def texts_of(
    winner: Candidate, current: Candidate, read: Mapping[str, tuple[str, Base]]
) -> dict[str, str]:
    """The new configs, by label: the winner's changes, and comments as of `with_variables`.

    ``read``: the text and the base of each config as the run read it.
    """
    before = {label: text for label, (text, _) in read.items()}
    after = {la: edit(text, base.changes(winner.of(la))) for la, (text, base) in read.items()}
    return with_variables(before, after, winner, current)


def with_variables(
    before: Mapping[str, str], after: Mapping[str, str], winner: Candidate, current: Candidate
) -> dict[str, str]:
    """The new configs, by label, with a comment at the end about the variables that they need.

    Configs that change get the comment; if none changes, all do. It replaces an older comment.
    """
    if not winner.start.environment:
        return dict(after)
    needed = needed_variables(winner, current)
    plain = {label: _COMMENT.sub("", text) for label, text in after.items()}
    if not needed:
        return plain
    changed = {label for label, text in after.items() if text != before[label]}
    return {
        label: _with_comment(text, needed) if label in (changed or plain) else text
        for label, text in plain.items()
    }


def _with_comment(text: str, needed: Needed) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{_START} these variables in its environment, which no config can set:"]
    lines += [f"# tune:   {place}" for place in places(needed)]
    return f"{text}{'' if text.endswith(end) or not text else end}{end.join(lines)}{end}"
