"""What a result says of each shape of requests, by formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.measurements import synthetic_measurement
from builders.mixed_shapes import LISTED, LONG, SHORT, mixed_point
from builders.runs import CURRENT, MANIFEST

from tuner.record.manifest import Manifest
from tuner.record.proved import ProvedConfig
from tuner.record.shapes import shapes_of, with_batches
from tuner.score.judge import Verdict
from tuner.score.point import Point

INPUT = 'input { name: "ids" data_type: TYPE_INT64 dims: [ %s ] %s }'
RAGGED = "allow_ragged_batch: true"


def manifest(dims: str = "-1", more: str = "", config: str = "") -> Manifest:
    ((label, kept),) = MANIFEST.models.items()
    served = replace(kept, completed=f"{INPUT % (dims, more)} {config}")
    inputs: dict[str, Any] = {"kind": "random", "shapes": {"ids": LISTED}}
    spec = {"model": label, "workload": {"inputs": inputs}, "space": {"max_batch_size": {}}}
    return replace(MANIFEST, models={label: served}, spec=spec, streams={label: label})


def point(*sizes: int, **more: Any) -> Point:
    (model,) = manifest().models
    return mixed_point(model, *(sizes or (1,)), **more)


def test_each_shape_has_its_share_its_latency_and_its_goodput() -> None:
    short, long = shapes_of(point())
    assert (short.shape, long.shape) == (SHORT, LONG)
    assert (short.share, long.share) == (pytest.approx(0.7), pytest.approx(0.3))
    assert (short.p99_latency_us, long.p99_latency_us) == (20e3, 50e3)
    assert (short.goodput_infer_per_s, long.goodput_infer_per_s) == (
        pytest.approx(70.0),
        pytest.approx(27.0),
    )


def test_an_slo_that_all_meet_together_may_be_missed_by_one_shape_alone() -> None:
    judged = point()
    assert judged.passed
    short, long = shapes_of(judged)
    assert [r.verdict for r in short.slo] == [Verdict.PASS, Verdict.PASS]
    assert [r.verdict for r in long.slo] == [Verdict.FAIL, Verdict.PASS]
    assert long.slo[0].value == 50e3


def test_a_shape_of_which_there_were_too_few_has_no_verdict() -> None:
    short, long = shapes_of(point(count=500, long_p99_us=30e3))  # 150 long ones
    assert (short.slo[0].verdict, long.slo[0].verdict) == (Verdict.PASS, Verdict.NOT_ENOUGH_DATA)


def test_the_figures_of_a_config_are_those_at_the_load_it_is_judged_at() -> None:
    low, high = point(level=100.0), point(level=300.0)
    proved = ProvedConfig.of(CURRENT, [high, low])
    assert proved.judged is low
    assert proved.shapes == shapes_of(low) != shapes_of(high)


def test_requests_of_one_shape_have_no_figures_by_shape() -> None:
    proved = ProvedConfig.of(CURRENT, [replace(point(), measurement=synthetic_measurement())])
    assert proved.shapes == ()
    assert "shapes" not in proved.to_json()


@pytest.mark.parametrize(
    ("sizes", "served", "expected"),
    [
        ((1, 2, 3), manifest(), [(SHORT,), (LONG,)]),
        ((1, 2, 3), manifest(more=RAGGED), [(SHORT, LONG)] * 2),
        ((1,), manifest(), [(), ()]),
        ((1,), manifest(more=RAGGED), [(), ()]),
        ((), manifest(), [None, None]),
        ((1, 2), manifest(config="ensemble_scheduling { }"), [None, None]),
    ],
    ids=["apart", "ragged", "alone", "ragged alone", "no statistics", "ensemble"],
)
def test_shapes_that_shared_batches_follow_from_the_servers_statistics(
    sizes: tuple[int, ...], served: Manifest, expected: list[tuple[str, ...] | None]
) -> None:
    (model,) = served.models
    seen = mixed_point(model, *sizes)
    shapes = with_batches(shapes_of(seen), seen, served)
    assert [shape.batched_with for shape in shapes] == expected
