"""Progress that a run on another bench reports: little, so that reports take no machine time."""

from __future__ import annotations

from collections.abc import Callable

from tuner.progress.follower import Follower, again_text
from tuner.score.point import Point


class PostedEvents(Follower):
    """Posts a `RunProgress` at each change, and each note as text."""

    def __init__(self, post: Callable[[object], None]) -> None:
        super().__init__()
        self._post = post

    def note(self, text: str) -> None:
        self._post(text)

    def disturbed(self, what: str, pause_s: float) -> None:
        self._post(again_text(what, pause_s))

    def round_over(self, what: str, sustained: Point) -> None:
        del sustained
        self._update(doing=what)

    def _update(self, **changed: object) -> None:
        before = self.progress
        super()._update(**changed)
        if self.progress != before:
            self._post(self.progress)
