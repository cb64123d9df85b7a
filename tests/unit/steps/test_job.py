"""What is wrong with the models of a spec is told before anything is started, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import write_models
from unit.modelconfig.ensemble_cases import ENSEMBLE, MODEL

from tuner.errors import SpecError
from tuner.steps.job import Request, prepare

SPEC = """\
model: e
repository: models
slo: [p99_latency <= 40ms]
space: {response_cache.size: {choice: [off, 1MiB]}}
"""
SIZES = "max_batch_size: {choice: [2, 3, 4]}"
TWO = MODEL.replace("one", "two")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def test_an_ensemble_and_its_steps_make_a_job(spec: Path) -> None:
    write_models(spec.parent / "models", e=ENSEMBLE, one=MODEL, two=TWO)
    job = prepare(Request(spec=spec))
    assert job.served.load_order() == ("one", "two", "")
    assert job.searched == ("",)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        pytest.param(
            {"one": MODEL.replace("4\n", "1\n", 1)},
            r"e/config.pbtxt:6:8: .*step\[0\]: the ensemble takes batches of 4, its model one only "
            r"of 1",
            id="batch size",
        ),
        pytest.param(
            {"two": TWO + 'input { name: "more" data_type: TYPE_FP32 dims: 1 }'},
            r"e/config.pbtxt:11:8: .*step\[1\]: input more of two is not mapped",
            id="unmapped input",
        ),
        pytest.param(
            {"two": TWO.replace("dims: 4", "dims: 5")},
            r"e/config.pbtxt:13:5: .*input_map: 'middle' is \[5\] in two and \[4\] in one",
            id="shape",
        ),
        pytest.param(
            {"two": TWO + "dynamic_batching { preferred_batch_size: 9 }"},
            r"two/config.pbtxt:5:20: dynamic_batching.preferred_batch_size: .*9",
            id="a step's own config",
        ),
        pytest.param(
            {"two": TWO + "model_transaction_policy { decoupled: true }"},
            "^two is decoupled",
            id="a step that answers many times",
        ),
        pytest.param(
            {"e": ENSEMBLE.replace('"two"', '"e"')},
            r"e/config.pbtxt:12:5: .*step\[1\].model_name: the models lead in a circle: e -> e",
            id="circle",
        ),
        pytest.param(
            {"one": MODEL + "nonsense: 1"}, r"one/config.pbtxt:5:\d+: .*nonsense", id="syntax"
        ),
    ],
)
def test_a_mistake_in_an_ensemble_or_its_steps_is_refused_with_its_place(
    models: dict[str, str], said: str, spec: Path
) -> None:
    configs = {"e": ENSEMBLE, "one": MODEL, "two": TWO, **models}
    write_models(spec.parent / "models", **configs)
    with pytest.raises(SpecError, match=said):
        prepare(Request(spec=spec))


def test_a_mistake_that_a_candidate_mends_is_none(spec: Path) -> None:
    spec.write_text(spec.read_text().replace("response_cache.size: {choice: [off, 1MiB]}", SIZES))
    small = MODEL.replace("4\n", "3\n", 1)
    write_models(spec.parent / "models", e=ENSEMBLE, one=small, two=TWO)
    space = prepare(Request(spec=spec)).space
    assert len(list(space.enumerate())) == 2, "the ensemble takes batches of 2 and 3 at most"


NLP = """\
repository: {models}
model: nlp
slo: [p99_latency <= 60ms]
models:
  nlp: {{space: {{instance_group.count: {{int: [1, 4]}}, dynamic_batching: {{choice: [off, on]}}}}}}
  tokenizer: {{space: {{instance_group.count: {{int: [1, 4]}}}}}}
"""


def test_an_ensembles_own_instances_are_refused_with_the_steps_that_have_some(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tune.yaml"
    path.write_text(NLP.format(models=Path("model_repository").absolute()))
    with pytest.raises(SpecError) as error:
        prepare(Request(spec=path))
    places = [
        line.removeprefix(str(path)).split(": ")[:2] for line in str(error.value).splitlines()
    ]
    assert places == [
        [":5:17", "models.nlp.space.instance_group.count"],
        [":5:54", "models.nlp.space.dynamic_batching"],
    ]
    assert "search those of its steps: tokenizer, tiny-bert, classifier-head" in str(error.value)
