"""Sequences on a real server, by a model that counts the requests of each by its correlation id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.load_bench import Bench, serving_all
from builders.model_files import write_model
from builders.sequence_model import sequence_code, sequence_config, write_sequence_model

from tuner.load.client.calls import GrpcCalls, asking
from tuner.load.client.job import Answers, Outcome
from tuner.load.client.process import Loop
from tuner.load.generators import TUNE_CLIENT
from tuner.load.setup import StreamRequests
from tuner.load.streams_load import StreamsLoad
from tuner.load.traffic.encoding import build
from tuner.load.traffic.sequences.pace import SequenceIds, counted_in, first_id
from tuner.load.traffic.sequences.sender import SequenceSender, SequenceSettings
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import Installation

pytestmark = [pytest.mark.integration, pytest.mark.long]

SHORT = Window(duration_s=1.0, warmup_s=0.3, deadline_s=60.0, tail_s=0.5)
PACE = {"kind": "sequences", "length": 3, "longest": 8, "interval": "50ms"}
#: A busy machine may be silent for more than the second that is the default.
IDLE = "max_sequence_idle_microseconds: 30000000"
OLDEST = f"{IDLE} oldest {{ max_candidate_sequences: 64 }}"
MODELS = {
    "direct": (f"{IDLE} direct {{ }}", "TYPE_UINT64"),
    "oldest": (OLDEST, "TYPE_INT32"),
    "named": (OLDEST, "TYPE_STRING"),
    "forgetful": ("max_sequence_idle_microseconds: 20000 direct { }", "TYPE_UINT64"),
}


#: Fails a request that says of which sequence it is.
PLAIN = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if request.correlation_id():
            return pb.InferenceResponse(error=pb.TritonError("marked as one of a sequence"))
        return pb.InferenceResponse([pb.Tensor("y", np.zeros((1, 1), dtype=np.float32))])
"""
PLAIN_CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
"""


@pytest.fixture(scope="module")
def sequences(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("sequences")
    for name, (strategy, ids) in MODELS.items():
        write_sequence_model(directory / "repository", name, strategy, ids)
    write_model(directory / "repository" / "plain", PLAIN_CONFIG, PLAIN)
    checking = sequence_code(0.002).replace("x.flat[0] < 0", "x.flat[0] != count")
    write_model(
        directory / "repository" / "checking", sequence_config("checking", OLDEST), checking
    )
    with serving_all(program, directory, [*MODELS, "plain", "checking"]) as bench:
        yield bench


def load_of(bench: Bench, model: str, **more: Any) -> StreamsLoad:
    arrivals = {**PACE, "count_output": "count", **more.pop("arrivals", {})}
    return bench.generator(model, TUNE_CLIENT, arrivals=arrivals, **more)


def at(rate: float) -> LoadPoint:
    return LoadPoint(Arrivals.SEQUENCES, rate)


def left_open(bench: Bench, model: str) -> float | None:
    """How many sequences the model itself knows that have not ended."""
    (question,) = load_of(bench, model).setup.streams[0].questions(1)
    with asking(bench.server.endpoints) as method:
        return counted_in(method.future(question, timeout=10.0).result(), "open")


@pytest.mark.parametrize("rate", [20.0, 60.0, 160.0])
@pytest.mark.parametrize("model", ["direct", "oldest", "named"])
def test_all_answers_are_in_order_and_each_sequence_is_ended(
    sequences: Bench, model: str, rate: float
) -> None:
    measurement = load_of(sequences, model).measure(at(rate), SHORT, 1)
    assert measurement.failed_count == 0, measurement.warning_texts
    assert measurement.due_per_s == pytest.approx(rate, abs=1 + 0.1 * rate)
    assert left_open(sequences, model) == 0


def test_more_sequences_than_slots_wait_and_are_all_ended(sequences: Bench) -> None:
    """The direct strategy has eight slots here: a ninth sequence waits until one ends."""
    pace = {"length": 10, "longest": 10}
    measurement = load_of(sequences, "direct", arrivals=pace).measure(at(400.0), SHORT, 1)
    assert measurement.failed_count == 0
    assert measurement.p50_latency_us > 50e3
    assert left_open(sequences, "direct") == 0


def test_sequences_of_a_file_are_sent_as_they_stand_there(sequences: Bench, tmp_path: Path) -> None:
    """The model fails a request whose input is not its place in its sequence."""
    path = tmp_path / "inputs.json"
    data = [[{"x": [float(k)] * 4} for k in range(1, length + 1)] for length in (4, 1, 7)]
    path.write_text(json.dumps({"data": data}))
    arrivals = {"length": None, "longest": None}
    more = {"arrivals": arrivals, "inputs": {"kind": "file", "file": str(path)}}
    measurement = load_of(sequences, "checking", **more).measure(at(80.0), SHORT, 1)
    assert measurement.failed_count == 0, measurement.warnings
    assert measurement.completed_count > 60  # of 80


def test_rest_of_a_sequence_after_a_failure_is_not_sent_and_fails_too(
    sequences: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"data": [{"x": [1.0] * 4}] * 7 + [{"x": [-1.0] * 4}]}))
    load = load_of(sequences, "oldest", inputs={"kind": "file", "file": str(path)})
    measurement = load.measure(at(80.0), SHORT, 1)
    assert measurement.completed_count > 20
    assert 10 < measurement.failed_count < 60
    (said,) = [text for text in measurement.warning_texts if "failed" in text]
    assert "negative input" in said
    assert left_open(sequences, "oldest") == 0


def test_sequence_that_the_server_forgot_is_reported(sequences: Bench) -> None:
    """It drops one that is idle for 20 ms, though only where another waits for its slot."""
    pace = {"length": 10, "longest": 10, "interval": "200ms"}
    measurement = load_of(sequences, "forgetful", arrivals=pace).measure(at(100.0), SHORT, 1)
    assert measurement.failed_count > 0
    assert any("max_sequence_idle_microseconds" in text for text in measurement.warning_texts)


def test_model_without_sequences_gets_no_sequence_flags_beside_one_with_them(
    sequences: Bench,
) -> None:
    requests = {name: StreamRequests(name, share=0.5) for name in ("direct", "plain")}
    load = sequences.streams(requests, arrivals={**PACE, "count_output": "count"})
    measurement = load.measure(at(80.0), SHORT, 1)
    assert measurement.failed_count == 0, measurement.warning_texts
    assert measurement.streams["plain"].due_per_s == 40.0  # and all were answered, if late
    assert measurement.sequences_at_once == 2
    assert load.seconds_for(20, 30.0) is not None
    assert left_open(sequences, "direct") == 0


def test_each_probe_is_a_separate_sequence(sequences: Bench) -> None:
    load = load_of(sequences, "direct")
    load.await_first_answers(30.0, print)
    assert load.seconds_for(20, 30.0) is not None
    assert load.seconds_alone(30.0) is not None
    measurement = load.measure(LoadPoint(Arrivals.CLOSED, 8), SHORT, 1)
    assert measurement.failed_count == 0
    assert measurement.completed_count > 50
    assert left_open(sequences, "direct") == 0


def test_an_overload_has_more_sequences_at_once_for_a_while(sequences: Bench) -> None:
    window = Window(duration_s=1.0, warmup_s=1.0, deadline_s=60.0, tail_s=1.0, slice_s=0.25)
    measurement = load_of(sequences, "oldest").measure(LoadPoint(Arrivals.STEP, 100.0), window, 1)
    assert measurement.failed_count == 0
    assert measurement.due_per_s == pytest.approx(120, abs=5)


class HastySender(SequenceSender):
    """Waits for no answer: the mistake that is planted."""

    def _ask(self, course: Any, report: Any, **marks: bool) -> None:
        super()._ask(course, report, **marks)
        course.waiting = False


class OvertakingCalls:
    """Holds every third request back, so that what is sent behind it overtakes it."""

    def __init__(self, calls: GrpcCalls) -> None:
        self.calls, self.count = calls, 0

    def ask(self, request: bytes, answered: Any) -> None:
        self.count += 1
        wait_s = 0.0 if self.count % 3 else 0.1
        asyncio.get_running_loop().call_later(wait_s, self.calls.ask, request, answered)


@pytest.mark.parametrize(("sender", "wrong"), [(SequenceSender, False), (HastySender, True)])
def test_wrong_order_planted_in_the_client_is_detected(
    sequences: Bench, sender: type[SequenceSender], wrong: bool
) -> None:
    (stream,) = load_of(sequences, "oldest").setup.streams
    requests = build(stream.shapes[0].inputs.first(1), stream.form, 1)

    async def sent() -> Answers:
        calls = GrpcCalls(sequences.server.endpoints.grpc, None, {})
        await calls.connect()
        numbers = np.tile(np.arange(2), 10)
        settings = SequenceSettings(first_id(), "count")
        sending = sender(OvertakingCalls(calls), settings, numbers, [SequenceIds.NUMBERS])
        answers = await Loop(sending.send, requests, 3.0, due_s=np.arange(20) * 0.01).run()
        await sending.end()
        await calls.close()
        return answers

    answers = asyncio.run(sent())
    failed = int((answers.outcomes == Outcome.FAILED).sum())
    assert (failed > 0) is wrong, answers.failure
    assert ("out of order: the model counted" in answers.failure) is wrong
