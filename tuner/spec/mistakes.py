"""Mistakes in a spec: what is wrong, where, and which word was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pydantic_core import ErrorDetails

from tuner.errors import EnvironmentNotReadyError, SpecError, TunerError, shortened
from tuner.plain import plain

#: Where a value is in the spec: keys and indexes from the top.
Location = tuple[str | int, ...]
#: Most mistakes of one file to report.
MAX_LISTED = 100
_LONGEST_LINE = 500


class FindingSeverity(Enum):
    """How much a finding about a spec and its repository matters.

    REFUSED: every command ends. DOUBTED: `tune plan` ends with an error; in a run, the server
    decides. NOTED: reported as a note. MINOR: reported as a note before a run only.
    """

    REFUSED = "refused"
    DOUBTED = "doubted"
    NOTED = "noted"
    MINOR = "minor"


@dataclass(frozen=True)
class Finding:
    """The result of a check, about a place in the spec or in another file.

    Attributes:
        location: The place in the spec; empty where the finding is about no single place.
        key: The position of the finding is that of the key, not of its value.
        absent: The spec has nothing at the place.
        meant: The known key that an unknown one probably stands for.
        described: The part of a spec whose description helps, where the message does not say what
            to write.
        hint: What to do next.
        at: ``file:line:column`` in another file, instead of a location.
        environment: The machine or the repository is not ready, while the spec may be right.
    """

    location: Location
    message: str
    key: bool = False
    absent: bool = False
    meant: str = ""
    described: str = ""
    hint: str = ""
    at: str = ""
    severity: FindingSeverity = FindingSeverity.REFUSED
    environment: bool = False

    @classmethod
    def of(cls, error: TunerError, location: Location = ()) -> list[Finding]:
        """The findings of an error, one for each line of its message."""
        environment = isinstance(error, EnvironmentNotReadyError)
        return [
            cls(location, line, True, hint=error.hint, environment=environment)
            for line in error.message.splitlines()
        ]

    @property
    def sentence(self) -> str:
        """The finding without its place in the spec, as a sentence."""
        text = f"{self.at}: {self.message}" if self.at else self.message
        return f"{text} ({self.hint})" if self.hint else text


@dataclass(frozen=True)
class Mistake:
    """A mistake with its place in the file; line and column count from 1, 0: no place."""

    file: str
    line: int
    column: int
    where: str
    message: str
    described: str = ""
    hint: str = ""

    @property
    def place(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])

    def __str__(self) -> str:
        return plain(": ".join(filter(None, (self.place, self.where, self.message))))


class SpecMistakesError(SpecError):
    """Every mistake of specs, up to `MAX_LISTED`; the message has a line for each."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        in_order = sorted(mistakes, key=lambda m: (m.file, m.line, m.column))
        self.mistakes = tuple(in_order[:MAX_LISTED])
        lines, hint = lines_and_hint([(str(m), m.hint) for m in self.mistakes], len(in_order))
        parts = dict.fromkeys(m.described for m in self.mistakes if m.described)
        keys = "docs/spec.md, under Fields, and tune schema describe the keys of "
        super().__init__(
            lines, "; ".join(filter(None, (hint, keys * bool(parts) + " and ".join(parts))))
        )


class FindingsError(SpecError):
    """The findings of checks, with places in the spec but without lines and columns."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        lines = [
            (": ".join(filter(None, (f.at or dotted(f.location), f.message))), f.hint)
            for f in self.findings
        ]
        super().__init__(*lines_and_hint(lines[:MAX_LISTED], len(lines)))


def lines_and_hint(mistakes: Sequence[tuple[str, str]], count: int) -> tuple[str, str]:
    """A line for each mistake, and a hint; the hint for one of several is in that mistake's line.

    ``mistakes``: the first of ``count``, each with its hint.
    """
    hints = [hint for _, hint in mistakes if hint]
    if len({*hints}) == 1 and (len(mistakes) == 1 or len(hints) > 1):
        return listing((line for line, _ in mistakes), count), hints[0]
    return listing((f"{line} ({hint})" if hint else line for line, hint in mistakes), count), ""


def listing(first: Iterable[str], count: int) -> str:
    """A line for each of the first mistakes, and how many of the ``count`` follow."""
    more = [f"and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []
    return "\n".join([*(shortened(line, _LONGEST_LINE) for line in first), *more])


def dotted(location: Location) -> str:
    """``workload.arrivals.rate[0]``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def reason_of(detail: ErrorDetails) -> str:
    """Pydantic's message, without the prefix that it gives to errors of validators."""
    return str(detail.get("ctx", {}).get("error", detail["msg"]))


#: No field, metric or model that Triton knows has a longer name.
_LONGEST = 255


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """``did you mean A or B?``, in any case of letters; empty where no known word is close."""
    return _question(_closest(name, {word.lower(): word for word in known}, most))


def closest(name: str, known: Iterable[str]) -> str:
    """The known word that is probably meant, in any case of letters; empty where none is close."""
    return next(iter(_closest(name, {word.lower(): word for word in known}, most=1)), "")


#: Most names that a message lists in full; of more, it lists the first and the number of others.
_MOST_NAMES, _FIRST_NAMES = 16, 8


def listed(names: Iterable[object], joint: str = ", ") -> str:
    """``a, b, c``; of many names, ``a, b, c and 97 more``."""
    texts = [*map(str, names)]
    if len(texts) <= _MOST_NAMES:
        return joint.join(texts)
    return f"{joint.join(texts[:_FIRST_NAMES])} and {len(texts) - _FIRST_NAMES:,} more"


def meant_or_listed(name: str, known: Iterable[str], start: str = "known:") -> str:
    """``did you mean a?``, or else the known names: ``known: a, b, c and 97 more``."""
    known = [*known]
    return did_you_mean(name, known) or f"{start} {listed(known) or 'none'}"


def path_meant(path: Path, kind: Callable[[Path], bool] = Path.is_dir) -> str:
    """``did you mean A?`` for a missing path, of an existing path that is similar."""
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
