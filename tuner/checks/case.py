"""The input of every check: a spec, and the parts of its job that can be made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.checks.recordings import RecordedFigures
from tuner.load.traffic.recordings.replay import RecordedTraffic
from tuner.modelconfig.served import Served
from tuner.space.analyzer_results import ReportedConfig
from tuner.space.space import Space
from tuner.spec.fields import UnknownValueError
from tuner.spec.load import LoadedSpec
from tuner.spec.model import Spec

_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Case:
    """A spec, and the parts of its job that exist.

    A check that needs a missing part, or a value that is wrong in the spec, ends with
    `UnknownValueError`.

    Attributes:
        spec: With the options of the command line applied.
        known_models: The models that it is about: with the configs of the files or, once a server
            has loaded them, as the server completes them; None: they cannot be read.
        known_space: The space over them; None: it is wrong.
        recorded: By stream, what its file of requests holds.
        environment: Variables by which programs of this machine are found.
        traffic: The recording that the run replays; None: there is none.
        analyzed: What Model Analyzer's results that the spec names hold; None: they cannot be read,
            or it names none.
    """

    loaded: LoadedSpec
    spec: Spec
    environment: Mapping[str, str] = field(default_factory=dict)
    known_models: Served | None = None
    known_space: Space | None = None
    recorded: Mapping[str, RecordedFigures] = field(default_factory=dict)
    traffic: RecordedTraffic | None = None
    analyzed: Sequence[ReportedConfig] | None = None

    @property
    def served(self) -> Served:
        return _there(self.known_models)

    @property
    def space(self) -> Space:
        return _there(self.known_space)

    @property
    def reported(self) -> Sequence[ReportedConfig]:
        return _there(self.analyzed)


def _there(part: _Part | None) -> _Part:
    if part is None:
        raise UnknownValueError
    return part
