"""The models of a run: what is served beside those that are named, in which order, and what is
wrong between them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.serving import write_models

from tuner.modelconfig.base import Base
from tuner.modelconfig.rules import Rule, violations
from tuner.modelconfig.served import Served, read_served

TWO = MODEL.replace("one", "two")


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return read_served(write_models(tmp_path, e=ENSEMBLE, one=MODEL, two=TWO), ["e"])


def test_the_steps_of_an_ensemble_are_served_too_and_loaded_before_it(served: Served) -> None:
    assert tuple(served.models) == ("one", "two", "e")
    assert served.models["e"].name == "e"
    assert served.parents("one") == ("e",)
    assert served.parents("e") == ()


def test_a_step_may_be_an_ensemble_and_a_model_may_call_another_from_its_code(
    tmp_path: Path,
) -> None:
    outer = ENSEMBLE.replace('"e"', '"outer"').replace('"two"', '"e"')
    outer = outer.replace('key: "x" value: "middle"', 'key: "in" value: "middle"')
    outer = outer.replace('key: "y" value: "out"', 'key: "out" value: "out"')
    repository = write_models(
        tmp_path, outer=outer, e=ENSEMBLE, one=MODEL, two=TWO, called=MODEL.replace("one", "called")
    )
    served = read_served(repository, ["outer", "two"], {"two": ["called"]})
    order = tuple(served.models)
    assert sorted(order) == ["called", "e", "one", "outer", "two"]
    assert order.index("called") < order.index("two") < order.index("e") < order.index("outer")
    assert served.parents("called") == ("two", "e", "outer")
    assert served.violations({}) == []


def test_each_model_gets_only_its_fields(served: Served) -> None:
    fields = {"one": {"max_batch_size": 8}, "e": {}}
    sizes = {label: c.max_batch_size for label, c in served.configs(fields).items()}
    assert sizes == {"one": 8, "two": 4, "e": 4}
    requested = served.requests(fields)
    assert requested["one"].max_batch_size == 8
    assert requested["two"] == served.models["two"].base.file


def test_a_candidate_whose_step_is_too_small_for_the_ensemble_is_refused_where_it_is_mapped(
    served: Served,
) -> None:
    (violation,) = served.violations({"two": {"max_batch_size": 2}})
    assert violation.rule is Rule.ENSEMBLE_STEP
    assert "e/config.pbtxt:11:8: " in served.place(violation)
    assert not served.violations({"two": {"max_batch_size": 2}, "e": {"max_batch_size": 2}})


def test_a_delay_breaks_no_rule(served: Served) -> None:
    """So models that differ in nothing else are judged once."""
    delay = "dynamic_batching.max_queue_delay_microseconds"
    for label, batch in product(("one", "two"), (0, 1, 4)):
        base = served.models[label].base
        fields = {"max_batch_size": batch, "dynamic_batching": True}
        broken = {str(violations(base.message({**fields, delay: d}))) for d in (0, 1, 1 << 40)}
        assert broken == {str(violations(base.message(fields)))}


def test_a_step_that_leaves_its_batch_size_to_the_backend_is_judged_once_it_is_known(
    tmp_path: Path,
) -> None:
    open_one = MODEL.replace('backend: "python" max_batch_size: 4', 'backend: "onnxruntime"')
    ensemble = ENSEMBLE.replace("max_batch_size: 4", "max_batch_size: 16")
    repository = write_models(tmp_path, e=ensemble, one=open_one, two=TWO.replace("4\n", "16\n", 1))
    served = read_served(repository, ["e"])
    assert served.violations({}) == []
    file = served.models["one"].base.file
    known = Base.of_server(file, served.configs({"one": {"max_batch_size": 8}})["one"], completes=1)
    assert ["one" in v.message for v in served.over({"one": known}).violations({})] == [True]


def test_sample_with_more_rows_than_a_batch_is_compared_with_a_known_size(
    tmp_path: Path,
) -> None:
    tensors = MODEL.replace('backend: "python" max_batch_size: 4', 'backend: "onnxruntime"')
    tensors = tensors.partition("output")[0]  # else it completes nothing
    values = 'inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true } }'
    sample = f'model_warmup {{ name: "full" batch_size: 16 {values} }}'
    served = read_served(write_models(tmp_path, one=tensors + sample), ["one"])
    assert served.violations({}) == []  # the server sets the size
    (violation,) = served.violations({"one": {"max_batch_size": 8}})
    assert "'full'" in violation.message
    assert served.violations({"one": {"max_batch_size": 16}}) == []
