"""From the responses of a decoupled model, as they come in, to what each request got."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders.effort import takes_at_most
from builders.measurements import latency_slo
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tuner.load.client.figures import Run
from tuner.load.client.job import Answers, Outcome, merge, select
from tuner.load.setup import LoadTarget, Schedule, ShapedInputs, Stream, StreamRequests
from tuner.load.traffic.decoupled.kind import Decoupled
from tuner.load.traffic.decoupled.responses import (
    Response,
    ResponseEnd,
    ResponseRecord,
    until_first,
    warnings_of,
)
from tuner.load.traffic.decoupled.streamed import numbered, response_of
from tuner.load.traffic.wire import RequestForm
from tuner.measurement.measurement import Arrivals, FailureReason, LoadPoint, Measurement
from tuner.measurement.responses import figures_of, responses_of_all
from tuner.measurement.window import Window
from tuner.reason import ReasonKind
from tuner.score.judge import Verdict, judge
from tuner.server.server import Endpoints
from tuner.spec.slo import Slo

MS = 1_000_000
SECOND = 1_000 * MS
OFFSET_NS = 7


def answers_of(outcomes: list[Outcome], sent_ns: list[int], answered_ns: list[int]) -> Answers:
    """As a `Loop` records them, which knows of no single response; on the wall clock."""
    stamps_ns = np.array([0 if ns == 0 else ns + OFFSET_NS for ns in answered_ns], np.int64)
    return Answers(
        np.arange(len(outcomes)),
        np.array(sent_ns, np.int64) + OFFSET_NS,
        stamps_ns,
        np.array(outcomes, np.int8),
        100 * SECOND,
        *(0.1, 0.1, "", ""),
    )


def receive_all(record: ResponseRecord, responses: list[Response]) -> list[ResponseEnd]:
    return [ending for r in responses if (ending := record.receive(r)) is not None]


#: Of each request: how many responses it gets, the pauses before each, and how it ends.
_REQUEST = st.tuples(
    st.lists(st.integers(1, 50), max_size=5),
    st.sampled_from(["marked", "empty final", "error", "none", "twice"]),
)


def sent_back(number: int, pauses_ms: list[int], end: str) -> list[Response]:
    """What a server sends for one request, by its end: see `_REQUEST`."""
    moments = (np.cumsum([number + 1, *pauses_ms]) * MS).tolist()
    responses = [Response(number, at) for at in moments[1:]]
    last = moments[-1] + MS
    match end:
        case "marked" if responses:
            responses[-1] = replace(responses[-1], final=True)
        case "marked" | "empty final":
            responses.append(Response(number, last, final=True, empty=True))
        case "error":
            responses.append(Response(number, last, empty=True, error="broken"))
            responses.append(Response(number, last + MS, final=True, empty=True))
        case "twice":
            responses.append(Response(number, last, final=True, empty=True))
            responses.append(Response(number, last + MS))
    return responses


@given(st.lists(_REQUEST, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_each_request_gets_what_was_sent_for_it_however_they_are_mixed(
    requests: list[tuple[list[int], str]], chance: Any
) -> None:
    record = ResponseRecord()
    by_request = [sent_back(record.add_request(), pauses, end) for pauses, end in requests]
    turns = [number for number, responses in enumerate(by_request) for _ in responses]
    chance.shuffle(turns)
    iterators = [iter(responses) for responses in by_request]
    endings = receive_all(record, [next(iterators[number]) for number in turns])
    endings += record.silent(10 * SECOND, 5 * SECOND)
    assert max(Counter(ending.number for ending in endings).values(), default=0) <= 1
    outcomes = {ending.number: ending.outcome for ending in endings}
    outcome_list = [outcomes.get(k, Outcome.UNANSWERED) for k in range(len(by_request))]
    answers = record.account(
        answers_of(
            outcome_list,
            [0] * len(by_request),
            [20 * MS * bool(k in outcomes) for k in range(len(by_request))],
        ),
        5 * SECOND,
        OFFSET_NS,
    )
    expected = {
        "marked": Outcome.ANSWERED,
        "empty final": Outcome.ANSWERED,
        "error": Outcome.FAILED,
        "twice": Outcome.DOUBLED,
    }
    for number, (pauses, end) in enumerate(requests):
        begun = Outcome.INCOMPLETE if pauses else Outcome.UNANSWERED
        assert answers.outcomes[number] == expected.get(end, begun)
        assert answers.response_counts[number] == len(pauses)
        if pauses:
            assert answers.first_ns[number] == by_request[number][0].at_ns + OFFSET_NS


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1, max_size=40))
def test_the_first_response_is_never_later_than_the_last_in_any_figure(
    spans: list[tuple[int, int]],
) -> None:
    first = np.array([float(a) for a, _ in spans])
    last = first + np.array([float(b) for _, b in spans])
    figures = figures_of(first, last, np.arange(len(spans)))
    for kind in ("p50", "p90", "p95", "p99", "avg"):
        first_us = getattr(figures, f"{kind}_first_response_us")
        assert first_us <= getattr(figures, f"{kind}_last_response_us") * (1 + 1e-9)
    assert figures.p50_first_response_us <= figures.p99_first_response_us
    assert figures.fewest_responses == 0
    assert figures.most_responses == len(spans) - 1
    assert responses_of_all([figures, figures]) == replace(
        figures,
        avg_first_response_us=pytest.approx(figures.avg_first_response_us),
        avg_last_response_us=pytest.approx(figures.avg_last_response_us),
    )
    assert responses_of_all([None]) is None


def test_an_answer_without_any_response_comes_with_its_final_mark() -> None:
    record = ResponseRecord()
    record.add_request()
    assert record.receive(Response(0, 5 * MS, final=True, empty=True)) == ResponseEnd(
        0, Outcome.ANSWERED
    )
    answers = record.account(answers_of([Outcome.ANSWERED], [0], [5 * MS]), SECOND, OFFSET_NS)
    assert (answers.first_ns.tolist(), answers.response_counts.tolist()) == ([5 * MS + 7], [0])


@pytest.mark.parametrize("number", [None, 99, -1])
def test_response_to_an_unknown_request_counts_against_the_latest(
    number: int | None,
) -> None:
    record = ResponseRecord()
    assert record.receive(Response(number, MS)) is None
    for _ in range(2):
        record.add_request()
    assert record.receive(Response(number, MS)) is None
    record.receive(Response(0, 2 * MS, final=True))
    record.receive(Response(1, 2 * MS, final=True))
    done = answers_of([Outcome.ANSWERED] * 2, [0, 0], [2 * MS] * 2)
    answers = record.account(done, SECOND, OFFSET_NS)
    assert answers.outcomes.tolist() == [Outcome.ANSWERED, Outcome.DOUBLED]


def test_refusals_of_a_queue_keep_their_reason() -> None:
    record = ResponseRecord()
    record.add_request()
    words = "[request id: 0] Exceeds maximum queue size"
    refused = record.receive(Response(0, MS, empty=True, error=words))
    assert refused == ResponseEnd(0, Outcome.QUEUE_FULL, words)


def test_only_a_begun_answer_is_given_up_by_its_silence() -> None:
    record = ResponseRecord()
    for _ in range(3):
        record.add_request()
    record.receive(Response(0, SECOND))
    record.receive(Response(1, 3 * SECOND))
    assert list(record.silent(5 * SECOND, 5 * SECOND)) == []
    (given_up,) = record.silent(6 * SECOND, 5 * SECOND)
    assert given_up == ResponseEnd(0, Outcome.INCOMPLETE)
    assert record.begun == {1}
    assert record.receive(Response(0, 7 * SECOND, final=True)) is None


def test_a_request_that_was_passed_over_is_incomplete_and_one_that_waits_is_not() -> None:
    record = ResponseRecord()
    for streamed in (True, False, True, True):
        record.add_request(streamed=streamed)
    record.receive(Response(2, 21 * SECOND, final=True))
    waiting = Outcome.UNANSWERED
    answered = answers_of(
        [waiting, waiting, Outcome.ANSWERED, waiting],
        [0, 0, 20 * SECOND, 21 * SECOND],
        [0, 0, 21 * SECOND, 0],
    )
    answers = record.account(answered, 5 * SECOND, OFFSET_NS)
    assert answers.outcomes.tolist() == [
        Outcome.INCOMPLETE,
        waiting,  # its model answers once
        Outcome.ANSWERED,
        waiting,
    ]
    assert answers.answered_ns[0] == answers.sent_ns[0]


def test_requests_carry_their_number_and_ask_for_the_final_mark() -> None:
    plain = service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[b"tensor"])
    sent = service_pb2.ModelInferRequest.FromString(numbered(plain.SerializeToString(), 12))
    assert (sent.model_name, sent.id, sent.raw_input_contents[0]) == ("m", "12", b"tensor")
    assert sent.parameters["triton_enable_empty_final_response"].bool_param


def test_response_of_a_stream_is_read_with_its_final_mark() -> None:
    response = service_pb2.ModelStreamInferResponse()
    response.infer_response.id = "12"
    response.infer_response.parameters["triton_final_response"].bool_param = True
    assert response_of(response.SerializeToString(), 5) == Response(12, 5, final=True, empty=True)
    response.infer_response.outputs.add(name="y")
    response.infer_response.parameters["triton_final_response"].bool_param = False
    assert response_of(response.SerializeToString(), 5) == Response(12, 5)
    response.infer_response.id, response.error_message = "of another", "no"
    assert response_of(response.SerializeToString(), 5) == Response(None, 5, error="no")
    response.infer_response.id = "1" * 5000
    assert response_of(response.SerializeToString(), 5) == Response(None, 5, error="no")
    unreadable = response_of(b"\xff\xff", 5)
    assert unreadable.number is None
    assert unreadable.error


WINDOW = Window(duration_s=8.0, warmup_s=1.0, deadline_s=60.0, tail_s=1.0)
COUNT = 100


def run_of(outcomes: dict[int, Outcome] | None = None) -> Run:
    """10 requests a second: the first response after 100 ms, the last after 400 ms."""
    due_s = 0.1 * np.arange(COUNT)
    sent_ns = np.rint(due_s * 1e9).astype(np.int64) + SECOND
    kinds = np.full(COUNT, Outcome.ANSWERED, np.int8)
    for number, outcome in (outcomes or {}).items():
        kinds[number] = outcome
    answers = Answers(
        np.arange(COUNT),
        sent_ns,
        np.where(kinds == Outcome.UNANSWERED, 0, sent_ns + 400 * MS),
        kinds,
        int(sent_ns[-1]) + SECOND,
        *(0.1, 0.1, "", ""),
        sent_ns + 100 * MS,
        np.full(COUNT, 3),
    )
    target = LoadTarget(Endpoints("h:1", "g:1", None), streamed=True)
    form, inputs = RequestForm("m", {}, batched=True, batch_size=1), ShapedInputs(None)  # type: ignore[arg-type]
    plan = Schedule(due_s, np.zeros(COUNT, np.int64))
    streams = [Stream("m", target, form, (inputs,), StreamRequests("m"))]
    return Run(streams, answers, plan, LoadPoint(Arrivals.POISSON, 10.0), 1, (Decoupled(),))


def measured(run: Run, window: Window = WINDOW) -> Measurement:
    return run.measured(window)[1]


@pytest.mark.parametrize("until_the_first", [True, False])
def test_latency_is_until_the_response_that_the_slo_is_about(until_the_first: bool) -> None:
    bound = latency_slo(0.99, 0.3, until_first=until_the_first)
    measurement = measured(run_of(), replace(WINDOW, bounds=(bound,)))
    assert measurement.responses is not None
    assert measurement.responses.p99_first_response_us == pytest.approx(100e3)
    assert measurement.responses.p99_last_response_us == pytest.approx(400e3)
    assert measurement.p99_latency_us == pytest.approx(100e3 if until_the_first else 400e3)
    assert measurement.within_bounds is until_the_first
    assert measurement.completed_count == 80  # by the last response, either way
    assert measurement.mean_in_flight == pytest.approx(4.0, rel=0.05)
    assert measurement.responses.mean_responses == 3.0


def test_incomplete_and_doubled_requests_fail_for_that_reason() -> None:
    broken = {30: Outcome.INCOMPLETE, 31: Outcome.DOUBLED, 32: Outcome.DOUBLED}
    bound = latency_slo(0.99, 0.3, until_first=True)
    measurement = measured(run_of(broken), replace(WINDOW, bounds=(bound,)))
    counts = {reason: failure.count for reason, failure in measurement.failures.items()}
    assert counts == {FailureReason.INCOMPLETE: 1, FailureReason.DOUBLED: 2}
    assert (measurement.failed_count, measurement.rejected_count, measurement.completed_count) == (
        3,
        0,
        77,
    )
    assert measurement.within_bounds is False  # 3 of 80 got no good answer


@pytest.mark.parametrize(
    ("slo", "value_us", "verdict"),
    [
        ("p99_first_response <= 150ms", 100e3, Verdict.PASS),
        ("p99_first_response <= 90ms", 100e3, Verdict.FAIL),
        ("p99_last_response <= 500ms", 400e3, Verdict.PASS),
        ("avg_last_response <= 300ms", 400e3, Verdict.FAIL),
        ("p99_latency <= 60s", 400e3, Verdict.PASS),  # until the last, where no SLO is on the first
    ],
)
def test_slo_on_one_response_is_compared_with_that_response(
    slo: str, value_us: float, verdict: Verdict
) -> None:
    measurement = replace(measured(run_of()), completed_count=1000, due_per_s=None, course=None)
    result = judge(Slo.parse(slo), measurement)
    assert (result.value, result.verdict) == (pytest.approx(value_us), verdict)


def test_of_a_mix_only_the_decoupled_stream_has_responses() -> None:
    run = run_of()
    (speech,) = run.streams
    half = StreamRequests("m", share=0.5)
    plain = replace(speech, name="plain", target=replace(speech.target, streamed=False))
    order = np.arange(COUNT) % 2
    mix = replace(
        run,
        streams=[replace(s, requests=half) for s in (speech, plain)],
        plan=replace(run.plan, order=order),
    )
    bounds = (latency_slo(0.9, 0.3, "m", until_first=True), latency_slo(0.9, 0.5, "plain"))
    measurement = measured(mix, replace(WINDOW, bounds=bounds))
    assert measurement.streams["m"].responses is not None
    assert measurement.streams["m"].p99_latency_us == pytest.approx(100e3)
    assert measurement.streams["plain"].responses is None
    assert measurement.streams["plain"].p99_latency_us == pytest.approx(400e3)
    assert measurement.responses is None
    assert measurement.within_bounds


def test_a_request_that_is_still_being_answered_has_its_first_response() -> None:
    run = run_of(dict.fromkeys(range(60, 80), Outcome.UNANSWERED))
    answers = until_first(run.answers)
    assert (answers.outcomes == Outcome.ANSWERED).all()
    assert measured(run).completed_count == 60


def test_broken_responses_are_reported_by_count() -> None:
    outcomes = [Outcome.ANSWERED, Outcome.INCOMPLETE, Outcome.DOUBLED, Outcome.INCOMPLETE]
    lost, doubled = warnings_of(outcomes)
    assert [lost.kind, doubled.kind] == [ReasonKind.NO_FINAL_RESPONSE, ReasonKind.MORE_AFTER_FINAL]
    assert [w.facts["broken_count"] for w in (lost, doubled)] == [2, 1]
    assert list(warnings_of([Outcome.ANSWERED])) == []


def test_columns_of_responses_are_carried_along_where_there_are_any() -> None:
    answers = run_of().answers
    some = select(answers, answers.numbers % 2 == 0)
    assert some.response_counts.size == COUNT // 2
    both = merge([some, select(answers, answers.numbers % 2 == 1)], open_loop=True)
    assert (both.first_ns == answers.first_ns).all()
    none = replace(answers, first_ns=np.array([], np.int64), response_counts=np.array([], np.int64))
    assert select(none, answers.numbers > 5).first_ns.size == 0
    assert merge([none], open_loop=True).first_ns.size == 0


def test_thousands_of_responses_a_second_leave_the_client_time() -> None:
    def received() -> None:
        record = ResponseRecord()
        numbers = [record.add_request() for _ in range(1000)]
        for k in range(10):
            receive_all(record, [Response(number, MS * k, final=k == 9) for number in numbers])

    assert takes_at_most(100, received)
