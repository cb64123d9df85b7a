"""Messages of many cases, each in a separate directory."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from builders.golden import table_of

from tuner.errors import TunerError
from tuner.reason import Reason
from tuner.sentences import sentence

#: Runs in a directory: raises, or returns its messages.
Case = Callable[[Path], Any]


def messages_of(cases: Mapping[str, Case]) -> str:
    """A table of what each case says or is refused with, with its exit code."""
    return table_of({name: said(case, name) for name, case in cases.items()})


def said(case: Case, name: str) -> str:
    here = Path.cwd() / name.replace("/", " ")
    here.mkdir()
    with chdir(here):
        text = refusal(case, here).replace(str(here), "HERE")
    text = text.replace(sys.executable, "python")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "TIME", text)
    text = re.sub(r"x{50,}", "xx...", text)  # how many remain of a cut text depends on the path
    lines = re.sub(r"/proc/\d+/", "/proc/PID/", text).splitlines()
    if len(lines) > 60:
        lines[3:-4] = [f"... and {len(lines) - 7} such lines ..."]
    return "\n".join(lines)


def refusal(case: Case, here: Path) -> str:
    """The error as the terminal shows it, or what was said without one, a line for each part."""
    try:
        messages = case(here)
    except TunerError as error:
        hint = f"\nnext: {error.hint}" if error.hint else ""
        return f"{error.message}{hint}\n({error.exit_code})"
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    parts = [messages] if isinstance(messages, str | Reason) else messages
    return "\n".join(sentence(part) if isinstance(part, Reason) else part for part in parts)
