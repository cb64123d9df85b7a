"""What a proof measures, each of it once: what an interrupted one has stored is not made again.

A measurement is known by its config, its seed and its load before it is made; every purpose has
seeds of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.errors import ServerGoneError
from tuner.meter.again import Attempts
from tuner.meter.protocol import Bench
from tuner.record.confirmation import Repeat, Role
from tuner.score.point import Point
from tuner.space.candidate import Candidate

Result = TypeVar("Result")


@dataclass
class MeasuredOnce:
    """The bench of a proof.

    Attributes:
        stored: What an earlier part of the run measured.
        record: Stores a measurement at once.
        note: Receives a sentence about a server that died, and was started again.
    """

    bench: Bench
    record: Callable[[Repeat], None] = lambda _: None
    stored: Sequence[Repeat] = ()
    note: Callable[[str], None] = lambda _: None
    _memo: dict[tuple[str, int, float, bool], Point] = field(init=False)

    def __post_init__(self) -> None:
        self._memo = {_key(r.candidate_key, r.point, r.role): r.point for r in self.stored}

    def on_fresh_server(
        self,
        candidate: Candidate,
        role: Role,
        number: int,
        seed: int,
        use: Callable[[Callable[[float], Point]], Result],
        *,
        soak_s: float | None = None,
        look_s: float | None = None,
    ) -> Result:
        """What ``use`` makes of loads measured on one server; once more if that server dies.

        Args:
            number: Of the round.
            use: Gets the function that measures a load; it may be called twice.
            soak_s: What it measures are soaks that last at least so long; None: measurements as
                long as those of any round.
            look_s: What it measures are looks that last at least so long, with as many requests in
                flight as the level says; they judge no SLO.

        Raises:
            TrialError: The config could not be served, or a load gave no result.
        """
        rows: list[Repeat] = []
        served = False

        def measure(level: float) -> Point:
            nonlocal served
            known = self._memo.get((candidate.key, seed, level, role is Role.SOAK))
            if known is not None:
                return known
            if not served:
                self.bench.deploy(candidate, fresh=True, in_production=role is Role.SOAK)
                served = True
            if look_s is not None:
                point = Point(self.bench.saturate(round(level), seed, look_s), ())
            elif soak_s is not None:
                point = self.bench.soak(level, seed, soak_s)
            else:
                point = self.bench.measure(level, seed)
            rows.append(Repeat(number, len(rows), role, candidate.key, point))
            return point

        try:
            for attempt in Attempts(self.note):
                with attempt:
                    rows.clear()  # those of a server that died count nowhere
                    served = False
                    return use(measure)
        except ServerGoneError:
            rows.clear()
            raise
        finally:
            for row in rows:
                self.record(row)
        raise AssertionError("the last attempt returns or raises")


def _key(candidate_key: str, point: Point, role: Role) -> tuple[str, int, float, bool]:
    return candidate_key, point.measurement.seed, point.level, role is Role.SOAK
