"""The measurements of a proof, each made once: a resumed proof reuses the stored ones.

Config, seed and load identify a measurement. Rounds, looks, soaks and simpler configs use different
seeds.
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
    """The bench of a proof, with the stored measurements.

    Attributes:
        record: Receives each new measurement, to store it.
        stored: The measurements that an earlier part of the run stored.
        note: Receives a sentence when a server died and another one is started.
    """

    bench: Bench
    record: Callable[[Repeat], None] = lambda _: None
    stored: Sequence[Repeat] = ()
    note: Callable[[str], None] = lambda _: None
    _memo: dict[tuple[str, int, float, bool], Point] = field(init=False)

    def __post_init__(self) -> None:
        self._memo = {
            _key(
                row.candidate_key, row.point.measurement.seed, row.point.level, row.role
            ): row.point
            for row in self.stored
        }

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
        """Calls ``use`` with a function that measures levels on one fresh server.

        If the server dies, another one is started and ``use`` is called again. No server starts
        while all measurements are stored ones.

        Args:
            number: The number of the round or the soak.
            use: Receives the measuring function, from a level to its point.
            soak_s: Shortest length of each measurement, a soak; None where these are no soaks.
            look_s: Shortest length of each measurement, a look, with the level as the number of
                requests in flight; no SLO is judged. None where these are no looks.

        Returns:
            The result of ``use``.

        Raises:
            ServerGoneError: The server died at each attempt.
            TrialError: The config could not be served, or a load gave no result.
        """
        rows: list[Repeat] = []
        served = False

        def measure(level: float) -> Point:
            nonlocal served
            known = self._memo.get(_key(candidate.key, seed, level, role))
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
                    rows.clear()  # measurements on a server that died do not count
                    served = False
                    return use(measure)
        except ServerGoneError:
            rows.clear()
            raise
        finally:
            for row in rows:
                self.record(row)
        raise AssertionError("the last attempt returns or raises")


def _key(candidate_key: str, seed: int, level: float, role: Role) -> tuple[str, int, float, bool]:
    return candidate_key, seed, level, role is Role.SOAK
