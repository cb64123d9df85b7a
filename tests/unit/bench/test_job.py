"""What is wrong with the models of a spec is told before anything is started, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.serving import write_models

from tuner.bench.job import Request, prepare
from tuner.bench.tools import choose_generator
from tuner.errors import SpecError
from tuner.load.generators import OWN_CLIENT

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
    assert tuple(job.served.models) == ("one", "two", "e")
    assert job.searched == ("e",)


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
            r"spec.yaml:3:7: slo\[0\]: e is decoupled: it may answer a request many times; write "
            "p99_first_response or p99_last_response",
            id="a step that answers many times",
        ),
        pytest.param(
            {"two": TWO.replace('"python"', '"vllm"')},
            r"^two is a language model \(vllm\)",
            id="a step that batches inside its engine",
        ),
        pytest.param(
            {"one": MODEL + "sequence_batching { }"},
            "^one takes sequences of requests",
            id="a step that takes sequences",
        ),
        pytest.param(
            {"e": ENSEMBLE.replace('"two"', '"e"')},
            r"e/config.pbtxt:12:5: .*step\[1\].model_name: the models form a cycle: e -> e",
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


LEVELS = "dynamic_batching {{ priority_levels: {n} default_priority_level: {n} }}"
PRIORITIES = """\
repository: models
models: {e: {space: {response_cache.enable: {choice: [off, on]}}}, one: {%s}}
streams:
  urgent: {model: %s, share: 20%%, priority: 1}
  patient: {model: %s, share: 80%%, priority: 2}
server: {args: [--cache-config=local,size=1048576]}
slo: [p99_latency <= 40ms]
"""


@pytest.mark.parametrize(
    ("asked", "levels", "said"),
    [
        ("one", 0, r"one/config.pbtxt:1:1: .*priority_levels: one has no priority levels, and "),
        ("one", 1, r"one/config.pbtxt:5:20: .*: one has 1 priority levels, .* patient have .* 2"),
        ("e", 0, r"two/config.pbtxt:.*: two has no priority levels, and .* urgent have priority 1"),
        ("e", 1, r"one/config.pbtxt:5:20: .*: one has 1 priority levels, .* patient have"),
    ],
)
def test_a_priority_that_no_asked_model_has_is_refused_with_its_place(
    asked: str, levels: int, said: str, spec: Path
) -> None:
    """An ensemble hands a request's priority on to its steps."""
    spec.write_text(PRIORITIES % ("", asked, asked))
    one = MODEL + LEVELS.format(n=levels) if levels else MODEL
    write_models(spec.parent / "models", e=ENSEMBLE, one=one, two=TWO)
    with pytest.raises(SpecError, match=said) as error:
        prepare(Request(spec=spec))
    assert "dynamic_batching { priority_levels: 2 default_priority_level: 2 }" in error.value.hint


@pytest.mark.parametrize("asked", ["one", "e"])
def test_priorities_that_a_model_has_or_that_are_searched_are_measured_with_tunes_own_client(
    asked: str, spec: Path
) -> None:
    models = spec.parent / "models"
    write_models(models, e=ENSEMBLE, one=MODEL + LEVELS.format(n=2), two=TWO)
    spec.write_text(PRIORITIES % ("", asked, asked))
    job = prepare(Request(spec=spec))
    assert choose_generator(job).kind is OWN_CLIENT
    (models / "one" / "config.pbtxt").write_text(MODEL + "dynamic_batching { }")
    searched = "space: {dynamic_batching.default_priority_level: {choice: [2]}, "
    searched += "dynamic_batching.priority_levels: {choice: [2]}}"
    spec.write_text(PRIORITIES % (searched, asked, asked))
    assert prepare(Request(spec=spec)).spec.streams["patient"].priority == 2
