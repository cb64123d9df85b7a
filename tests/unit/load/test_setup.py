"""When the requests of several streams come."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.measurements import synthetic_measurement

from tuner.load.setup import (
    LoadTarget,
    Setup,
    ShapedInputs,
    Stream,
    StreamRequests,
    in_turn,
    schedule,
)
from tuner.load.traffic.arrivals import Times, arrivals_of
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.mixed_shapes.kind import MixedShapes
from tuner.load.traffic.sequences.contents import sequence_contents
from tuner.load.traffic.sequences.kind import Sequences
from tuner.load.traffic.sequences.pace import SequenceIds, SequencePace
from tuner.load.traffic.wire import RequestForm
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.server import Endpoints
from tuner.spec.workload import FileInputs

NOTHING: Any = None
TARGET = LoadTarget(Endpoints("h:1", "g:1", None))
MIXED = (MixedShapes(),)
FORM = RequestForm("m", {}, batched=True, batch_size=1)
WINDOW = Window(duration_s=8.0, warmup_s=1.0, deadline_s=60.0, tail_s=1.0)
LOAD = LoadPoint(Arrivals.POISSON, 200.0)


def stream(name: str, share: float = 0.0, rate_per_s: float | None = None) -> Stream:
    return Stream(
        name,
        TARGET,
        FORM,
        (ShapedInputs(NOTHING),),
        StreamRequests("m", share=share, rate_per_s=rate_per_s),
    )


MOST, REST, BESIDE = stream("most", 0.75), stream("rest", 0.25), stream("beside", 0.0, 30.0)


def times(streams: list[Stream], name: str, load: LoadPoint = LOAD, seed: int = 1) -> Times:
    plan = schedule(streams, load, WINDOW, seed, None, MIXED)
    return plan.of([s.name for s in streams].index(name))


def test_streams_arrive_by_share_and_the_background_at_a_fixed_rate() -> None:
    plan = schedule([MOST, REST, BESIDE], LOAD, WINDOW, 1, None)
    inside = (plan.due_s >= 1.0) & (plan.due_s < 9.0)
    assert np.bincount(plan.order[inside]).tolist() == [1200, 400, 240]
    assert (np.diff(plan.due_s) >= 0.0).all()
    assert plan.due_s.max() < WINDOW.total_s


def test_a_background_is_the_same_at_every_level_and_stays_calm_in_an_overload() -> None:
    double = replace(LOAD, level=400.0)
    mix = [MOST, REST, BESIDE]
    assert times(mix, "beside").tolist() == times(mix, "beside", double).tolist()
    overload = times(mix, "beside", LoadPoint(Arrivals.STEP, 200.0))
    assert overload.tolist() == times(mix, "beside").tolist()
    assert times(mix, "most", double).size == pytest.approx(2 * times(mix, "most").size, abs=20)


def test_a_streams_arrivals_do_not_hang_on_the_others() -> None:
    alone, among = times([REST, MOST], "most"), times([REST, BESIDE, MOST], "most")
    assert alone.tolist() == among.tolist()
    half = stream("half", 0.5), stream("other", 0.5)
    assert times([*half], "half").tolist() != times([*half], "other").tolist()


def test_one_stream_comes_the_same_whatever_its_name() -> None:
    spans_s = (1.0, 8.0, 3.0)
    due_s = arrivals_of(LOAD, spans_s, 7)
    assert (
        times([stream("only", 1.0)], "only", seed=7).tolist()
        == due_s[due_s < WINDOW.total_s].tolist()
    )


LENGTHS = (ShapedInputs(NOTHING, "[64]", 0.7), ShapedInputs(NOTHING, "[256]", 0.3))
TEXTS = replace(stream("texts", 0.5), shapes=LENGTHS)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_window_has_each_shape_by_its_share_and_a_seed_always_the_same(seed: int) -> None:
    mix = [TEXTS, stream("other", 0.5)]
    plan, again = (schedule(mix, LOAD, WINDOW, seed, None, MIXED) for _ in range(2))
    inside = (plan.due_s >= 1.0) & (plan.due_s < 9.0) & (plan.order == 0)
    assert plan.shape_of_each()[inside].sum() == 0.3 * 800
    assert plan.shape_of_each()[plan.order == 1].max() == 0
    assert plan.shape_of_each().tolist() == again.shape_of_each().tolist()
    other = schedule(mix, LOAD, WINDOW, seed + 1, None, MIXED)
    assert plan.shape_of_each().tolist() != other.shape_of_each().tolist()


def test_a_streams_shapes_do_not_hang_on_the_level_or_on_other_streams() -> None:
    alone = schedule([TEXTS, MOST], LOAD, WINDOW, 1, None, MIXED)
    among = schedule([MOST, BESIDE, TEXTS], replace(LOAD, level=400.0), WINDOW, 1, None, MIXED)
    few, many = (plan.shape_of_each()[plan.order == k] for plan, k in ((alone, 0), (among, 2)))
    assert (few == many[: few.size]).mean() > 0.9


def test_clients_of_a_closed_loop_send_each_shape_by_its_share() -> None:
    load = LoadPoint(Arrivals.CLOSED, 4.0)
    plan = schedule([replace(TEXTS, requests=StreamRequests("m"))], load, WINDOW, 1, None, MIXED)
    assert plan.due_s is None
    assert plan.shape_of_each().size == plan.order.size
    assert plan.shape_of_each().mean() == pytest.approx(0.3, abs=0.01)


def test_in_a_closed_loop_streams_take_turns_by_their_shares() -> None:
    turns = in_turn([MOST, REST, BESIDE], 100)
    assert np.bincount(turns).tolist() == pytest.approx([75, 25], abs=1)
    for part in (*np.split(turns, 5), turns[::5], turns[1::4], turns[1::2][:20]):
        assert part.tolist().count(1) == pytest.approx(part.size / 4, abs=2)  # evenly mixed
    assert set(in_turn([stream("only", 1.0)], 9).tolist()) == {0}


def test_beside_sequences_a_model_that_takes_none_gets_single_requests_as_by_itself() -> None:
    taking = replace(FORM, sequence_ids=SequenceIds.NUMBERS)
    mix = [replace(MOST, form=taking), REST, BESIDE]
    kinds = (Sequences(SequencePace((5, 9), 0.1)),)
    plan = schedule(mix, replace(LOAD, arrivals=Arrivals.SEQUENCES), WINDOW, 1, None, kinds)
    assert plan.sequences is not None
    assert (plan.sequences[plan.order == 0] >= 0).all()
    assert (plan.sequences[plan.order > 0] == -1).all()
    for name in ("rest", "beside"):
        number = [stream.name for stream in mix].index(name)
        assert plan.of(number).tolist() == times([MOST, REST, BESIDE], name).tolist()


def test_requests_of_a_file_of_sequences_carry_what_stands_at_their_place(tmp_path: Path) -> None:
    path = tmp_path / "requests.json"
    data = [[{"x": [10 * s + k]} for k in range(length)] for s, length in enumerate((4, 1, 2))]
    path.write_text(json.dumps({"data": data}))
    spec = FileInputs.model_validate({"kind": "file", "file": path})
    contents = sequence_contents(spec, [TensorShape("x", "INT32", (1,))])
    assert contents is not None
    form = replace(FORM, sequence_ids=SequenceIds.NUMBERS)
    talk = replace(MOST, form=form, shapes=(ShapedInputs(contents),))
    kinds = (Sequences(SequencePace(None, 0.1)),)
    load = replace(LOAD, arrivals=Arrivals.SEQUENCES)
    plan = schedule([REST, talk], load, WINDOW, 1, None, kinds)
    assert plan.lines is not None
    assert plan.sequences is not None
    of_talk = plan.order == 1
    sent = contents.of_run(1, int(of_talk.sum()), plan.lines[of_talk]).inferences
    values = [int.from_bytes(request["x"].raw, "little") for request in sent]
    by_sequence: dict[int, list[int]] = {}
    for sequence, value in zip(plan.sequences[of_talk].tolist(), values, strict=True):
        by_sequence.setdefault(sequence, []).append(value)
    assert {len(part) for part in by_sequence.values()} == {1, 2, 3, 4}
    for part in by_sequence.values():
        assert part == list(range(part[0], part[0] + len(part)))
        assert part[0] % 10 == 0
    first = [request["x"].raw for request in contents.first(9)]
    assert [int.from_bytes(raw, "little") for raw in first] == [0, 10, 20]


@pytest.mark.parametrize(
    ("taking", "at_once"),
    [(["most"], 15.0), (["most", "beside"], 15.0), (["most", "rest"], 20.0), (["beside"], None)],
)
def test_concurrent_sequences_are_reported_for_the_streams_that_share_the_load_alone(
    taking: list[str], at_once: float | None
) -> None:
    form = replace(FORM, sequence_ids=SequenceIds.NUMBERS)
    mix = [replace(s, form=form) if s.name in taking else s for s in (MOST, REST, BESIDE)]
    setup, load = Setup(NOTHING, tuple(mix), ("m",)), replace(LOAD, arrivals=Arrivals.SEQUENCES)
    measurement = Sequences(SequencePace((5, 9), 0.1)).totals(setup, load, synthetic_measurement())
    assert measurement.sequences_at_once == at_once
