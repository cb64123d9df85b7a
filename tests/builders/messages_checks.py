"""Checks on an emulated bench: how each ends, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.check_place import CLOSED, Done, Place, ToyBench, place_in
from builders.refusals import Case

from tuner.errors import (
    ClientLimitError,
    DeployRefusedError,
    InterruptedRunError,
    LoadFailedError,
)
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Measurement
from tuner.reason import Reason
from tuner.score.point import Point


class SlowClient(ToyBench):
    """Its load generator sends 50 requests a second, not one more."""

    def __init__(self, *job: Any, **bench: Any) -> None:
        super().__init__(*job, **bench)
        self.sends = 50.0


class Noisy(ToyBench):
    """Something disturbs every load."""

    def reading(self, level: float, seed: int) -> Measurement:
        return replace(
            super().reading(level, seed), disturbances=(Reason.of_text("The CPU was busy."),)
        )


class Unread(ToyBench):
    """The memory of the second server's GPU cannot be read."""

    def reading(self, level: float, seed: int) -> Measurement:
        used = None if len(self.deployed) == 2 else 1 << 30
        measurement = super().reading(level, seed)
        return replace(measurement, host=HostUse(gpu_memory_used_bytes=used))


class Losing(ToyBench):
    """No load gives a result."""

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        raise LoadFailedError("no result came")


class Hindered(ToyBench):
    """Its load generator cannot keep up with the second load."""

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        if len(self.loads) == 1 and not self.given_up:
            self.given_up.append("hindered")
            raise ClientLimitError("the load generator could not keep up")
        return super().measure(level, seed, least_s)


class Fading(ToyBench):
    """Of its capacity this lasts."""

    share = 1.0

    def __init__(self, *job: Any, **bench: Any) -> None:
        super().__init__(*job, **bench)
        self.lasting = self.share


class Faded(Fading):
    share = 0.7


class Robbed(Fading):
    """It is late in the soak, while a neighbour has the CPU."""

    share = 0.78

    def reading(self, level: float, seed: int) -> Measurement:
        measurement = super().reading(level, seed)
        return replace(
            measurement, disturbances=(Reason.of_text("a neighbour took 20 % of the CPU"),)
        )


def edited(place: Place, **facts: object) -> Place:
    """With a result that was accepted and then had these facts."""
    accepted = Path(place.check(accept=True).facts["accepted"])
    accepted.write_text(json.dumps({**json.loads(accepted.read_text()), **facts}))
    return place


def spoil(place: Place, change: tuple[str, str] | str) -> None:
    """More of the spec, or something else in place of what it says."""
    if isinstance(change, str):
        place.text += change
    else:
        assert change[0] in place.text
        place.text = place.text.replace(*change)


def case(check: Callable[[Place], Done]) -> Case:
    def ended(here: Path) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            facts = check(place_in(here, patch)).facts
        lines = (facts["status"], *facts["reasons"])
        return [re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "DATE", one) for one in lines]

    return ended


def first(*changes: tuple[str, str] | str, accept: bool = False, **bench: Any) -> Case:
    """Of a check that nothing was accepted before."""

    def check(place: Place) -> Done:
        for change in changes:
            spoil(place, change)
        return place.check(accept=accept, **bench)

    return case(check)


def then(
    change: tuple[str, str] | str = "",
    before: tuple[str, str] | str = "",
    of: Callable[..., ToyBench] = ToyBench,
    **bench: Any,
) -> Case:
    """Of a check after a result was accepted, ``before`` with this spec."""

    def check(place: Place) -> Done:
        spoil(place, before)
        place.check(accept=True, **({"capacity": 20.0} if CLOSED in place.text else {}))
        spoil(place, change)
        place.bench_of = of
        return place.check(**bench)

    return case(check)


def elsewhere(place: Place, **more: bool) -> Done:
    place.check(accept=True)
    place.gpu = "Other GPU"
    return place.check(**more)


def limited(place: Place) -> Done:
    place.bench_of = SlowClient
    place.check(accept=True)
    return place.check()


def soaked(bench: Callable[..., ToyBench]) -> Case:
    def check(place: Place) -> Done:
        later = {f"2025-01-0{day}": 1.0 for day in range(2, 8)}
        edited(place, credited=80.0, later=later, accepted_at="2025-01-01T02:00:00+00:00")
        place.bench_of = bench
        return place.check()

    return case(check)


def unread(place: Place) -> Done:
    spoil(place, ("maximize goodput", "minimize gpu_memory at 60/s"))
    place.bench_of = Unread
    return place.check(accept=True)


def checks() -> dict[str, Case]:
    """By what changed since a result was accepted, or was so from the start."""
    closed = ("{kind: poisson}", CLOSED)
    stricter = ("p99_latency <= 40ms", "p99_latency <= 10ms")
    return {
        "nothing": then(),
        "the config lost a fifth": then(capacity=80.0),
        "the config lost a little": then("check: {nights: 0.4%}\n", capacity=96.8),
        "the config may have lost something": then(capacity=95.5, servers_cv=0.08),
        "the config stands no load": then(capacity=1e-3),
        "the config is refused": first(fails=DeployRefusedError("no such backend")),
        "the config gives no result": first(fails=LoadFailedError("no result")),
        "the config gives no result any more": then(of=Losing),
        "the SLO is met at no load": then(stricter),
        "two SLOs are missed at a load": first(
            (stricter[0], f"{stricter[1]}\n  - p50_latency <= 1ms"), "check: {at: 50}\n"
        ),
        "a load is not stood": first("check: {at: 110}\n", accept=True),
        "a load is at the edge": first("check: {at: 100}\n", servers_cv=0.02),
        "clients at another load": then("check: {at: 8}\n", closed, capacity=20.0),
        "too few requests": first(accept=True, requests=20),
        "too few requests of clients": first(closed, requests=20, capacity=20.0),
        "another machine": case(elsewhere),
        "another machine, which is asked for": case(
            lambda place: elsewhere(place, any_machine=True)
        ),
        "another client": case(lambda place: edited(place, client="tune").check()),
        "the load generator is the limit": then(of=SlowClient),
        "the load generator was the limit before too": case(limited),
        "the load generator could not keep up once": then(of=Hindered, capacity=88.0),
        "a metric was not read": case(unread),
        "something disturbs": then(of=Noisy),
        "what is worse is accepted": then(accept=True, capacity=80.0),
        "the credited load holds": soaked(Fading),
        "the credited load holds no more": soaked(Faded),
        "whether the credited load holds was not seen": soaked(Robbed),
        "it is stopped": first(fails=InterruptedRunError("interrupted")),
    }
