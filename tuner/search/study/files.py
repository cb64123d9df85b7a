"""What a run's files hold: a worker asks, and the run answers between two of its own trials.

A run that nobody asks does not read them: models may be large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.search.study.record import StudyRecord

#: Fact about a run: `_ASKED`, then a hash by file, see `tuner.modelconfig.content`.
_FILES = "files"
_ASKED = "asked"


def answer(record: StudyRecord, files: Callable[[], Mapping[str, str]]) -> None:
    """The run's part: reads its files if a worker has asked."""
    if record.fact(_FILES) == _ASKED:
        record.set_fact(_FILES, dict(files()))


def ask(
    record: StudyRecord, wait: Callable[[], None], note: Callable[[str], None]
) -> Mapping[str, str] | None:
    """A worker's part: the run's answer; None where its search ends before.

    ``wait`` is called between two looks.
    """
    while record.searching:
        known = record.fact(_FILES)
        if isinstance(known, dict):
            return known
        if known != _ASKED:
            record.set_fact(_FILES, _ASKED)
            note("asked the run what its models' files hold: it looks when its trial is over")
        wait()
    return None


def forget(record: StudyRecord) -> None:
    """Before a run begins or goes on: its files may have changed since it was asked."""
    record.set_fact(_FILES, None)
