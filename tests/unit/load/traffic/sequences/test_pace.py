"""When which request of which sequence is due, how requests are marked, and whether answers fit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from builders.sequence_model import sequence_config
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tuner.load.traffic.sequences.pace import (
    SequencedTimes,
    SequenceIds,
    SequencePace,
    counted_in,
    ids_for,
    last_of_each,
    marks,
    out_of_order,
    sequence_arrivals,
)
from tuner.modelconfig.message import parse

SPANS = (1.0, 4.0, 2.0)


def each_sequence(schedule: SequencedTimes, values: npt.NDArray[Any] | None = None) -> list[Any]:
    """The moments of each, or other ``values`` of its requests."""
    order = np.argsort(schedule.numbers, kind="stable")
    due_s = schedule.due_s if values is None else values
    return np.split(due_s[order], np.flatnonzero(np.diff(schedule.numbers[order])) + 1)


def assert_paced(sequences: list[Any], pace: SequencePace) -> None:
    assert pace.lengths is not None
    assert max(times_s.size for times_s in sequences) <= pace.lengths[1]
    gaps = [np.diff(times_s) for times_s in sequences]
    np.testing.assert_allclose(np.concatenate(gaps), pace.interval_s)


PACES = st.builds(
    lambda low, more, interval_s: SequencePace((low, low + more), interval_s),
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from([0.02, 0.1, 0.3]),
)


@settings(deadline=None)
@given(PACES, st.integers(1, 12), st.integers(0, 99))
def test_so_many_sequences_run_at_once_and_each_keeps_its_pace(
    pace: SequencePace, at_once: int, seed: int
) -> None:
    schedule = sequence_arrivals([at_once / pace.interval_s] * 3, SPANS, seed, pace)
    due_s = schedule.due_s
    assert (np.diff(due_s) >= 0).all()
    assert ((due_s >= 0) & (due_s < sum(SPANS))).all()
    for moment in (0.5, 3.7, 6.1):  # an interval has one request of each line
        inside = (due_s >= moment) & (due_s < moment + pace.interval_s)
        assert inside.sum() == at_once
    assert_paced(each_sequence(schedule), pace)


@settings(deadline=None)
@given(st.integers(2, 9), st.integers(0, 99))
def test_only_the_first_and_last_sequences_of_a_load_are_shorter(length: int, seed: int) -> None:
    pace = SequencePace((length, length), 0.1)
    for times_s in each_sequence(sequence_arrivals([30.0], [20.0], seed, pace)):
        assert times_s.size == length or times_s[0] < 0.1 or times_s[-1] > 19.9 - 1e-9


@settings(deadline=None)
@given(PACES, st.floats(0.1, 8.0), st.integers(0, 99))
def test_partial_lines_drop_complete_sequences(
    pace: SequencePace, at_once: float, seed: int
) -> None:
    rate = at_once / pace.interval_s
    schedule = sequence_arrivals([rate], [400 * pace.interval_s], seed, pace)
    assert schedule.due_s.size == pytest.approx(
        400 * at_once, abs=0.3 * 400
    )  # by the last line's lengths
    assert_paced(each_sequence(schedule), pace)


@settings(deadline=None)
@given(PACES, st.integers(2, 8), st.integers(0, 99))
def test_the_lines_of_a_lower_rate_are_among_those_of_a_higher(
    pace: SequencePace, at_once: int, seed: int
) -> None:
    few = sequence_arrivals([1.0 / pace.interval_s], [6.0], seed, pace).due_s
    many = sequence_arrivals([at_once / pace.interval_s], [6.0], seed, pace).due_s
    assert {*few.tolist()} <= {*many.tolist()}


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0.3, 8.0), st.integers(0, 99))
def test_sequences_of_a_file_are_played_from_their_first_request_in_order(
    lengths: list[int], at_once: float, seed: int
) -> None:
    pace = SequencePace(None, 0.1)
    schedule = sequence_arrivals([at_once / 0.1], [40.0], seed, pace, lengths)
    assert schedule.entries is not None
    begins = np.cumsum([0, *lengths]).tolist()
    complete = {tuple(range(a, b)) for a, b in pairwise(begins)}
    times = each_sequence(schedule)
    for due_s, entries in zip(times, each_sequence(schedule, schedule.entries), strict=True):
        played = tuple(entries.tolist())
        assert any(sequence[: len(played)] == played for sequence in complete)
        assert played in complete or due_s[0] < 0.1 or due_s[-1] > 39.9 - 1e-9
    assert {*schedule.entries.tolist()} <= {*range(sum(lengths))}


def test_each_sequence_of_a_file_is_as_likely_as_another() -> None:
    lengths = [2, 4, 3]
    schedule = sequence_arrivals([200.0], [100.0], 1, SequencePace(None, 0.1), lengths)
    begun = np.bincount(schedule.entries, minlength=9)[[0, 2, 6]]
    assert begun / begun.sum() == pytest.approx([1 / 3] * 3, abs=0.03)


def test_an_overload_begins_sequences_and_ends_them_early() -> None:
    schedule = sequence_arrivals(
        [80.0, 120.0, 80.0], [2.0, 2.0, 2.0], 1, SequencePace((50, 50), 0.1)
    )
    due_s = schedule.due_s
    counts = [int(((due_s >= t) & (due_s < t + 2.0)).sum()) for t in (0.0, 2.0, 4.0)]
    assert counts == pytest.approx([160, 240, 160], abs=4)
    by_sequence = each_sequence(schedule)
    assert sum(d[0] >= 2.0 and d[-1] < 4.0 for d in by_sequence) >= 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_the_last_of_each_is_the_last_that_is_due(numbers: list[int]) -> None:
    last = last_of_each(np.array(numbers))
    assert last.sum() == len(set(numbers))
    for k, is_last in enumerate(last.tolist()):
        assert is_last == (numbers[k] not in numbers[k + 1 :])


@pytest.mark.parametrize(("start", "end"), [(True, False), (False, False), (True, True)])
def test_marks_beside_a_request_leave_its_inputs_and_its_priority(start: bool, end: bool) -> None:
    request = service_pb2.ModelInferRequest(model_name="m")
    request.parameters["priority"].uint64_param = 3
    request.raw_input_contents.append(b"1234")
    marked = request.SerializeToString() + marks(7, SequenceIds.NUMBERS, start=start, end=end)
    read = service_pb2.ModelInferRequest.FromString(marked)
    assert (read.model_name, [*read.raw_input_contents]) == ("m", [b"1234"])
    assert read.parameters["priority"].uint64_param == 3
    assert read.parameters["sequence_id"].int64_param == 7
    assert read.parameters["sequence_start"].bool_param is start
    assert read.parameters["sequence_end"].bool_param is end


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ('name: "m"', None),
        ('name: "m" sequence_batching { }', SequenceIds.NUMBERS),
        (sequence_config("m", ids="TYPE_INT32"), SequenceIds.NUMBERS),
        (sequence_config("m", ids="TYPE_STRING"), SequenceIds.TEXTS),
    ],
)
def test_ids_are_texts_where_the_models_control_input_asks_for_them(
    config: str, ids: SequenceIds | None
) -> None:
    assert ids_for([parse('name: "before"'), parse(config)]) is ids


def test_single_requests_to_an_iterative_model_have_no_ids() -> None:
    """Its server makes the sequences."""
    assert ids_for([parse("sequence_batching { iterative_sequence: true }")]) is None


def test_a_text_is_as_long_as_the_server_makes_room_for() -> None:
    marked = service_pb2.ModelInferRequest.FromString(
        marks(7, SequenceIds.TEXTS, start=True, end=True)
    )
    assert len(marked.parameters["sequence_id"].string_param) == 128


def answer(*values: int) -> bytes:
    response = service_pb2.ModelInferResponse(model_name="m")
    response.outputs.add(name="count", datatype="INT32", shape=[1, len(values)])
    response.raw_output_contents.append(np.array(values, dtype="<i4").tobytes())
    return bytes(response.SerializeToString())


@pytest.mark.parametrize(
    ("answered", "place", "said"),
    [
        (answer(3), 3, ""),
        (answer(2), 3, "out of order: the model counted request 3 of a sequence as number 2"),
        (answer(1, 2), 1, "is not one number"),
        (service_pb2.ModelInferResponse().SerializeToString(), 1, "is not one number"),
    ],
)
def test_an_answer_fits_where_the_model_counted_as_the_client_did(
    answered: bytes, place: int, said: str
) -> None:
    mismatch = out_of_order(counted_in(answered, "count"), place, "count")
    assert said in mismatch
    assert bool(mismatch) == bool(said)
