"""Runs in a storage that workers may join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.facts import Facts
from tuner.record.manifest import Manifest
from tuner.record.reading import read_received
from tuner.record.storage_url import parsed_url, shown_url
from tuner.search.optuna_trial import quiet_optuna
from tuner.search.study.record import SEARCHING, fact_key
from tuner.search.study.storage import close_storage, open_storage
from tuner.spec.mistakes import listed


@dataclass(frozen=True)
class Offer(Facts):
    """What a run tells those who would measure for it.

    Attributes:
        meaning: What its spec says, see `tuner.spec.meaning`.
        trials: Its budget, with options of the command line applied.
    """

    unknown = "ignore"

    manifest: Manifest
    meaning: Mapping[str, Any]
    trials: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        Manifest.from_json(data["manifest"])  # says what is wrong with it
        return super().from_json(data)


@dataclass(frozen=True)
class _Found:
    study: str
    run: str
    searching: bool
    offer: dict[str, Any]


def find_offer(url: str, name: str) -> Offer:
    """The run of that id, or the newest run that searches in the study of that name.

    Raises:
        EnvironmentNotReadyError: There is no such storage, or it cannot be opened.
        SpecError: Nothing in it can be joined under that name.
    """
    found = _all_of(url)
    named = [f for f in found if name in (f.run, f.study)]
    open_ = sorted((f for f in named if f.searching), key=lambda f: f.run)
    if open_:
        return read_received("the run's offer", open_[-1].offer, Offer.from_json)
    if named:
        raise SpecError(
            f"the search of {max(f.run for f in named)} has ended",
            "workers help while `tune run` searches: start another run, then its workers",
        )
    there = listed(sorted({f.study for f in found} | {f.run for f in found}))
    raise SpecError(
        f"{shown_url(url)} holds no run or study called {name!r}",
        f"it holds {there}" if there else "start `tune run` with this --storage first",
    )


def _all_of(url: str) -> list[_Found]:
    _refuse_a_file_that_is_not_there(url)
    with quiet_optuna():
        storage = open_storage(url)
        try:
            studies = storage.get_all_studies()
        finally:
            close_storage(storage)
    return [found for s in studies for found in _runs_of(s.study_name, s.user_attrs)]


def _runs_of(study: str, attributes: Mapping[str, Any]) -> Iterator[_Found]:
    for value in attributes.values():
        manifest = value.get("manifest") if isinstance(value, dict) else None
        run = manifest.get("run_id") if isinstance(manifest, dict) else None
        if isinstance(run, str):
            yield _Found(study, run, bool(attributes.get(fact_key(SEARCHING, run))), value)


def _refuse_a_file_that_is_not_there(url: str) -> None:
    """Opening it would make an empty one."""
    parsed = parsed_url(url)
    if parsed is None:
        return  # opening it says what is wrong
    path = Path(parsed.database or "")
    if parsed.get_backend_name() == "sqlite" and not path.is_file():
        raise EnvironmentNotReadyError(
            f"there is no storage {path}",
            "start `tune run` with this --storage first, or check the path",
        )
