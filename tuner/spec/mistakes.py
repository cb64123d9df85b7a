"""What is wrong with a spec, where, and which word would have been valid."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import ErrorDetails

from tuner.errors import SpecError, shortened
from tuner.plain import plain

#: Where a value is in the spec: keys and indexes from the top.
Location = tuple[str | int, ...]
#: Most mistakes of one file to report; nobody reads more before fixing some.
MOST_SHOWN = 100
_LONGEST_LINE = 500


@dataclass(frozen=True)
class Finding:
    """A mistake by its place in the spec.

    Attributes:
        key: Points at the key rather than its value.
        absent: Nothing is written there.
        meant: The known key that an unknown one probably stands for.
        described: The part of a spec whose description helps, where the message does not say what
            to write.
    """

    location: Location
    message: str
    key: bool = False
    absent: bool = False
    meant: str = ""
    described: str = ""


@dataclass(frozen=True)
class Mistake:
    """A mistake by its place in the file; line and column count from 1."""

    file: str
    line: int
    column: int
    where: str
    message: str
    described: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return plain(f"{self.place}: {text}")


class SpecMistakesError(SpecError):
    """Every mistake of specs, up to `MOST_SHOWN`; the message has a line for each."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        found = sorted(mistakes, key=lambda m: (m.file, m.line, m.column))
        self.mistakes = tuple(found[:MOST_SHOWN])
        lines = shown(map(str, self.mistakes), len(found))
        parts = dict.fromkeys(m.described for m in self.mistakes if m.described)
        hint = "docs/spec.md, under Fields, and tune schema describe the keys of "
        super().__init__(lines, hint + " and ".join(parts) if parts else "")


def shown(first: Iterable[str], count: int) -> str:
    """A line for each of the first mistakes, and how many of the ``count`` follow."""
    more = [f"and {count - MOST_SHOWN:,} more"] if count > MOST_SHOWN else []
    return "\n".join([*(shortened(line, _LONGEST_LINE) for line in first), *more])


def dotted(location: Location) -> str:
    """``workload.arrivals.rate[0]``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def reason_of(detail: ErrorDetails) -> str:
    """What Pydantic found, without its name for an error of ours."""
    return str(detail.get("ctx", {}).get("error", detail["msg"]))


#: No field, metric or model that Triton knows has a longer name.
_LONGEST = 255


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """``did you mean A or B?``, whatever the case; empty when nothing known is close."""
    return _question(_closest(name, {word.lower(): word for word in known}, most))


def closest(name: str, known: Iterable[str]) -> str:
    """The known word that is meant, whatever the case; empty when none is close."""
    return next(iter(_closest(name, {word.lower(): word for word in known}, most=1)), "")


#: Names in a message: all of so many; of more, the first ones and how many follow.
_MOST_NAMES, _FIRST_NAMES = 16, 8


def listed(names: Iterable[object], joint: str = ", ") -> str:
    """``a, b, c``; of more names than anybody reads, ``a, b, c and 97 more``."""
    texts = [*map(str, names)]
    if len(texts) <= _MOST_NAMES:
        return joint.join(texts)
    return f"{joint.join(texts[:_FIRST_NAMES])} and {len(texts) - _FIRST_NAMES:,} more"


def meant_or_listed(name: str, known: Iterable[str], start: str = "it has") -> str:
    """``did you mean a?``, or else what is known: ``it has a, b, c and 97 more``."""
    known = [*known]
    return did_you_mean(name, known) or f"{start} {listed(known) or 'none'}"


def path_meant(path: Path, kind: Callable[[Path], bool] = Path.is_dir) -> str:
    """``did you mean A?`` of a path that is not there: of one whose part or ending is another."""
    wrong = path
    with suppress(OSError, ValueError):  # may not be read; no file has such a name
        while not wrong.parent.is_dir() and wrong != wrong.parent:
            wrong = wrong.parent
        rest = path.relative_to(wrong)
        beside = sorted(wrong.parent.iterdir(), key=lambda p: (p.suffix == wrong.suffix, p.name))
        written = {p.stem.lower(): str(p / rest) for p in beside if kind(p / rest)}
        return _question(_closest(wrong.stem, written, most=1))
    return ""


def _question(meant: Sequence[str]) -> str:
    return f"did you mean {' or '.join(meant)}?" if meant else ""


def _closest(name: str, written: Mapping[str, str], most: int) -> list[str]:
    """``written``: what may be meant, by what is compared."""
    typed = name.lower() if len(name) <= _LONGEST else ""  # of megabytes it would take seconds
    close = difflib.get_close_matches(typed, written, n=most + 2, cutoff=0.6)
    # Swapped letters first: difflib thinks "lint" as close to "inti" as "init".
    close = sorted(close, key=lambda word: sorted(word) != sorted(typed))[:most]
    return [written[word] for word in close]


def in_brackets(word: str, options: Iterable[str]) -> str:
    """`` (did you mean x?)`` to end a message with, or nothing."""
    near = did_you_mean(word, options, most=1)
    return f" ({near})" if near else ""
