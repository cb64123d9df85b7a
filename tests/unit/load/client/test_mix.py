"""Several streams in one run of our own client, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from builders.measurements import latency_slo
from builders.virtual_time import run_in_virtual_time

from tuner.errors import ModelFailsError
from tuner.load.client import process
from tuner.load.client.calls import Done
from tuner.load.client.figures import Run
from tuner.load.client.job import Answers, Outcome, merge
from tuner.load.client.process import Loop
from tuner.load.setup import (
    LoadTarget,
    Order,
    Schedule,
    ShapedInputs,
    Stream,
    StreamRequests,
    in_turn,
    schedule,
)
from tuner.load.traffic.arrivals import Times
from tuner.load.traffic.mixed_shapes.kind import MixedShapes
from tuner.load.traffic.turns import in_order
from tuner.load.traffic.wire import RequestForm
from tuner.load.validity import warnings_about
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.server import Endpoints

NOTHING: Any = None
ENDPOINTS = Endpoints("h:1", "g:1", None)
FORM = RequestForm("m", {}, batched=True, batch_size=1)
LOAD = LoadPoint(Arrivals.POISSON, 200.0)
BOUNDS = (latency_slo(0.99, 0.010, "fast"), latency_slo(0.99, 0.100, "slow"))
WINDOW = Window(duration_s=10.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.5, bounds=BOUNDS)


def stream(name: str, share: float, rate: float | None = None, batch_size: int = 1) -> Stream:
    return Stream(
        name,
        LoadTarget(ENDPOINTS),
        FORM,
        (ShapedInputs(NOTHING),),
        StreamRequests(name, batch_size=batch_size, share=share, rate_per_s=rate),
    )


FAST, SLOW = stream("fast", 0.75), stream("slow", 0.25, batch_size=4)
BESIDE = stream("beside", 0.0, 20.0)
MIX = (FAST, SLOW, BESIDE)
#: Seconds that a request of each stream takes.
TAKES_S = {b"fast": 0.004, b"slow": 0.050, b"beside": 0.020}


class Server:
    """Answers after as long as the stream takes, or as it is told."""

    def __init__(self, **outcomes: Outcome | None) -> None:
        self.outcomes = {name.encode(): outcome for name, outcome in outcomes.items()}
        self.seen: list[bytes] = []

    def send(self, request: bytes, done: Done) -> None:
        self.seen.append(request)
        name = request.split(b"-")[0]
        outcome = self.outcomes.get(name, Outcome.ANSWERED)
        if outcome is not None:
            words = "no" if outcome is Outcome.FAILED else ""
            asyncio.get_running_loop().call_later(TAKES_S[name], done, outcome, words)


def requests(streams: tuple[Stream, ...], order: Order) -> Any:
    return in_order([[f"{s.name}-{k}".encode() for k in range(7)] for s in streams], order)


def answered(
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    due_s: Times,
    order: Order,
    processes: int = 1,
) -> Answers:
    def part(first: int) -> Answers:
        async def run() -> Answers:
            every = requests(MIX, order)
            due_here_s, share = due_s[first::processes], {"first": first, "step": processes}
            return await Loop(server.send, every, WINDOW.total_s, due_s=due_here_s, **share).run()

        return run_in_virtual_time(monkeypatch, process, run())

    return merge([part(first) for first in range(processes)], open_loop=True)


def measured(monkeypatch: pytest.MonkeyPatch, server: Server, processes: int = 1) -> Measurement:
    plan = schedule(MIX, LOAD, WINDOW, 1, None)
    answers = answered(monkeypatch, server, plan.due_s, plan.order, processes)
    return Run(MIX, answers, plan, LOAD, 1).measured(WINDOW)[1]


@pytest.mark.parametrize("processes", [1, 2])
def test_every_stream_has_its_rate_and_latency_and_the_shared_ones_add_up(
    monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    mix = measured(monkeypatch, Server(), processes)
    fast, slow, beside = (mix.streams[s.name] for s in MIX)
    assert [s.load.level for s in (fast, slow, beside)] == [150.0, 50.0, 20.0]
    assert [s.due_per_s for s in (fast, slow, beside)] == [150.0, 50.0, 20.0]
    for figures, takes_s in ((fast, 0.004), (slow, 0.050), (beside, 0.020)):
        assert figures.p99_latency_us == pytest.approx(1e6 * takes_s, rel=0.05)
    assert slow.throughput_infer_per_s == pytest.approx(4 * 50.0, rel=0.02)
    assert mix.due_per_s == pytest.approx(200.0)
    assert mix.completed_count == fast.completed_count + slow.completed_count
    assert mix.requests_per_s == pytest.approx(200.0, rel=0.02)
    sums = fast.throughput_infer_per_s + slow.throughput_infer_per_s
    assert mix.throughput_infer_per_s == sums == pytest.approx(350.0, rel=0.02)
    assert mix.mean_in_flight == pytest.approx(150 * 0.004 + 50 * 0.050, rel=0.05)
    assert mix.p50_latency_us == pytest.approx(4000.0, rel=0.05)  # three of four are fast
    assert mix.p99_latency_us == pytest.approx(50_000.0, rel=0.05)
    assert mix.within_bounds is True
    assert [s.background for s in (fast, slow, beside)] == [False, False, True]
    assert mix.latencies_us is not None
    assert mix.latencies_us.size == 2000
    (warning,) = warnings_about(mix, WINDOW.bounds)
    assert warning.subject == "beside"


def test_inputs_of_each_stream_cycle_in_the_order_of_that_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    measured(monkeypatch, server)
    for one in MIX:
        prefix = one.name.encode()
        numbers = [int(r.split(b"-")[1]) for r in server.seen if r.startswith(prefix)]
        assert numbers == [k % 7 for k in range(len(numbers))]


def test_bound_of_one_stream_is_missed_by_that_stream_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TAKES_S, b"fast", 0.012)
    mix = measured(monkeypatch, Server())
    assert mix.streams["fast"].within_bounds is False
    assert mix.streams["slow"].within_bounds is True
    assert mix.streams["beside"].within_bounds is None
    assert mix.within_bounds is False


def test_a_stream_that_is_never_answered_is_late_and_no_reason_to_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mix = measured(monkeypatch, Server(slow=None))
    slow = mix.streams["slow"]
    assert (slow.completed_count, slow.unanswered_count) == (0, 500)
    assert slow.p50_latency_us > 1e6
    assert slow.within_bounds is False
    assert mix.streams["fast"].within_bounds is True
    assert mix.requests_per_s == pytest.approx(150.0, rel=0.02)


def test_refusals_count_for_the_stream_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Server):
        def send(self, request: bytes, done: Done) -> None:
            refused = request.startswith(b"slow") and len(self.seen) % 2
            self.outcomes[b"slow"] = Outcome.QUEUE_FULL if refused else Outcome.ANSWERED
            super().send(request, done)

    mix = measured(monkeypatch, Refusing())
    slow = mix.streams["slow"]
    assert slow.error_rate == pytest.approx(0.5, abs=0.1)
    assert mix.failed_count == mix.rejected_count == slow.rejected_count
    assert mix.streams["fast"].error_rate == 0.0
    assert mix.within_bounds is False


def test_a_model_that_fails_every_request_of_a_stream_fails_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ModelFailsError, match=r"\d+ requests with an error: no"):
        measured(monkeypatch, Server(slow=Outcome.FAILED))


def test_a_stream_that_had_no_turn_in_a_short_window_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = schedule(MIX, LOAD, WINDOW, 1, None)
    answers = answered(monkeypatch, Server(), plan.due_s, plan.order)
    first_s = float(plan.of(2)[plan.of(2) >= 0.5][0])  # of the background
    short = replace(WINDOW, duration_s=first_s - 0.5)
    mix = Run(MIX, answers, plan, LOAD, 1).measured(short)[1]
    assert mix.of("beside") is None
    assert mix.of("fast") is not None


def test_a_closed_loop_tells_the_streams_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client: 3 of 4 ms for each of 50 ms, in two processes that share the turns."""
    order = in_turn(MIX, 2000)

    def part(first: int) -> Answers:
        async def run() -> Answers:
            every, share = requests(MIX, order), {"first": first, "step": 2}
            return await Loop(Server().send, every, 5.0, clients=1, **share).run()

        return run_in_virtual_time(monkeypatch, process, run())

    answers = merge([part(0), part(1)], open_loop=False)
    window = replace(WINDOW, duration_s=4.0, bounds=())
    load = LoadPoint(Arrivals.CLOSED, 2.0)
    mix = Run(MIX, answers, Schedule(None, order), load, 1).measured(window)[1]
    fast, slow = mix.streams["fast"], mix.streams["slow"]
    assert fast.completed_count == pytest.approx(3 * slow.completed_count, abs=6)
    assert fast.avg_latency_us == pytest.approx(4000.0, rel=0.05)
    assert slow.avg_latency_us == pytest.approx(50_000.0, rel=0.05)
    assert mix.avg_latency_us == pytest.approx((3 * 4000.0 + 50_000.0) / 4, rel=0.1)
    assert "beside" not in mix.streams


LENGTHS = (ShapedInputs(NOTHING, "[64]", 0.7), ShapedInputs(NOTHING, "[256]", 0.3))
TEXTS = replace(stream("texts", 1.0), shapes=LENGTHS)
TEXTS_TAKE_S = {b"[64]": 0.004, b"[256]": 0.050}


class TextServer:
    """Answers after as long as the length takes, or as it is told."""

    def __init__(self, **outcomes: Outcome) -> None:
        self.outcomes = {f"[{name[1:]}]".encode(): outcome for name, outcome in outcomes.items()}

    def send(self, request: bytes, done: Done) -> None:
        outcome = self.outcomes.get(request, Outcome.ANSWERED)
        asyncio.get_running_loop().call_later(TEXTS_TAKE_S[request], done, outcome, "too long")


def texts(
    monkeypatch: pytest.MonkeyPatch,
    server: TextServer,
    load: LoadPoint = LOAD,
    streams: tuple[Stream, ...] = (TEXTS,),
) -> Measurement:
    plan = schedule(streams, load, WINDOW, 1, None, (MixedShapes(),))
    requests = in_order([[b"[64]"], [b"[256]"]], plan.shape_of_each())
    clients = 0 if load.arrivals.open_loop else round(load.level)

    async def run() -> Answers:
        loop = Loop(server.send, requests, WINDOW.total_s, due_s=plan.due_s, clients=clients)
        return await loop.run()

    answers = run_in_virtual_time(monkeypatch, process, run())
    return Run(streams, answers, plan, load, 1, (MixedShapes(),)).measured(
        replace(WINDOW, bounds=())
    )[1]


@pytest.mark.parametrize("load", [LOAD, LoadPoint(Arrivals.CLOSED, 8.0)], ids=str)
def test_each_shape_has_its_share_and_latency(
    monkeypatch: pytest.MonkeyPatch, load: LoadPoint
) -> None:
    figures = texts(monkeypatch, TextServer(), load)
    short, long = figures.shapes["[64]"], figures.shapes["[256]"]
    assert (short.load.level, long.load.level) == (0.7 * load.level, 0.3 * load.level)
    assert short.p99_latency_us == pytest.approx(4_000.0, rel=0.05)
    assert long.p50_latency_us == pytest.approx(50_000.0, rel=0.05)
    assert figures.completed_count == short.completed_count + long.completed_count
    assert long.completed_count / figures.completed_count == pytest.approx(0.3, abs=0.02)
    assert figures.streams == {}
    assert Measurement.from_json(figures.to_json()) == figures


def test_shapes_of_one_of_several_streams_are_that_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = (replace(TEXTS, requests=replace(TEXTS.requests, share=0.5)), stream("other", 0.5))
    figures = texts(monkeypatch, TextServer(), streams=halves)
    assert figures.shapes == figures.streams["other"].shapes == {}
    assert set(figures.streams["texts"].shapes) == {"[64]", "[256]"}
    assert figures.streams["texts"].shapes["[256]"].due_per_s == pytest.approx(30.0, rel=0.05)


def test_refusals_count_for_their_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = texts(monkeypatch, TextServer(_64=Outcome.QUEUE_FULL))
    assert set(figures.shapes) == {"[256]"}  # of the others none was answered
    assert figures.shapes["[256]"].failed_count == 0
    assert figures.rejected_count == pytest.approx(1400, abs=20)


def test_a_shape_that_the_model_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"^of shape \[256\]: the model answered \d+ of \d+ requests with an error: too long"
    with pytest.raises(ModelFailsError, match=message):
        texts(monkeypatch, TextServer(_256=Outcome.FAILED))
