"""Models that take sequences: which loads fit them, what is searched of them, what is drafted."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.sequence_model import sequence_config
from builders.serving import served_one, write_models

from tuner.errors import SpecError
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import get
from tuner.prepare.job import Request, prepare
from tuner.prepare.tools import choose_generator, client_notes
from tuner.space.build import build_space
from tuner.space.draft import draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel
from tuner.space.space import Space
from tuner.spec.load import load_spec
from tuner.spec.paths import (
    CANDIDATE_SEQUENCES,
    DIRECT_DELAY,
    OLDEST,
    OLDEST_PREFERRED,
    SLOT_UTILIZATION,
)

PACED = {"kind": "sequences", "length": 20, "interval": "100ms"}
SPEC = {
    "model": "m",
    "repository": "models",
    "slo": ["p99_latency <= 100ms"],
    "workload": {"arrivals": PACED},
    "space": {"instance_group.count": {"int": [1, 4]}},
}


def spec_of(directory: Path, **changes: Any) -> Path:
    path = directory / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **changes}))
    return path


def space_over(directory: Path, config: str, space: dict[str, Any]) -> Space:
    spec = load_spec(spec_of(directory, space=space)).spec
    return build_space(spec, served_one(config))


def test_sequences_are_measured_with_the_client_that_checks_their_order(tmp_path: Path) -> None:
    write_models(tmp_path / "models", m=sequence_config("m"))
    choice = choose_generator(prepare(Request(spec=spec_of(tmp_path))))
    assert choice.kind.name == "tune"
    assert "does not check the order of answers" in choice.why


@pytest.mark.parametrize(
    ("config", "workload", "said"),
    [
        (sequence_config("m"), {"arrivals": {"kind": "poisson"}}, "takes sequences .* are poisson"),
        ("max_batch_size: 4", {"arrivals": PACED}, "m has no sequence_batching"),
        (
            "model_transaction_policy { decoupled: true }" + sequence_config("m"),
            {"arrivals": PACED},
            "m is decoupled, and arrivals are sequences",
        ),
        (
            sequence_config("m", "max_sequence_idle_microseconds: 90000"),
            {"arrivals": PACED},
            r"drops a sequence after 0.09 s .* comes after 100ms",
        ),
        (
            sequence_config("m"),
            {"arrivals": {**PACED, "interval": "1s"}},
            r"drops a sequence after 1 s",
        ),
        (
            sequence_config("m"),
            {"arrivals": {**PACED, "count_output": "cuont"}},
            r"count_output: cuont is no output of m \(did you mean count\?\)",
        ),
    ],
)
def test_a_load_that_does_not_fit_the_model_is_refused_with_what_to_write(
    tmp_path: Path, config: str, workload: dict[str, Any], said: str
) -> None:
    write_models(tmp_path / "models", m=config)
    with pytest.raises(SpecError, match=said):
        prepare(Request(spec=spec_of(tmp_path, workload=workload)))


@pytest.mark.parametrize(
    ("more", "said"), [("", ""), ("model_transaction_policy { decoupled: true }", "n is decoupled")]
)
def test_model_without_sequences_can_be_loaded_beside_one_with_sequences(
    tmp_path: Path, more: str, said: str
) -> None:
    write_models(tmp_path / "models", m=sequence_config("m"), n=f"max_batch_size: 4\n{more}")
    mix = {
        "repository": "models",
        "slo": SPEC["slo"],
        "models": {"m": {"space": SPEC["space"]}, "n": {"space": SPEC["space"]}},
        "streams": {"m": {"model": "m", "share": 0.5}, "n": {"model": "n", "share": 0.5}},
        "workload": {"arrivals": {**PACED, "count_output": "count"}},
    }
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(mix))
    with pytest.raises(SpecError, match=said) if said else nullcontext():
        prepare(Request(spec=spec))


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"arrivals": {**PACED, "longest": 10}}, "longest: 10 is below length, 20"),
        ({"arrivals": {**PACED, "interval": "0s"}}, "interval: must be above 0"),
        ({"arrivals": PACED, "protocol": "http"}, "sent over gRPC"),
        ({"arrivals": PACED, "batch_size": 2}, "holds one inference"),
    ],
)
def test_a_load_of_sequences_that_cannot_be_is_refused_with_its_place(
    tmp_path: Path, workload: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        load_spec(spec_of(tmp_path, workload=workload))
    assert "spec.yaml:" in caught.value.message


def test_searched_loads_are_integer_numbers_of_sequences(tmp_path: Path) -> None:
    write_models(tmp_path / "models", m=sequence_config("m"))
    levels = prepare(Request(spec=spec_of(tmp_path))).plan.levels
    assert [levels.nearest(rate) for rate in (1.0, 14.0, 57.0)] == [10.0, 10.0, 60.0]


def test_fields_of_a_strategy_mean_something_with_that_strategy_only(tmp_path: Path) -> None:
    space = space_over(
        tmp_path,
        sequence_config("m"),
        {
            OLDEST: {"choice": [False, True]},
            CANDIDATE_SEQUENCES: {"choice": [16, 64]},
            DIRECT_DELAY: {"choice": [0, 500]},
            SLOT_UTILIZATION: {"choice": [0.0, 0.5]},
        },
    )
    batchers = [space.configs(c)["m"].sequence_batching for c in space.enumerate()]
    oldest = [b.oldest.max_candidate_sequences for b in batchers if b.HasField("oldest")]
    direct = [b.direct for b in batchers if not b.HasField("oldest")]
    assert sorted(oldest) == [16, 64]
    assert [(d.minimum_slot_utilization, d.max_queue_delay_microseconds) for d in direct] == [
        (0.0, 0),
        (0.5, 0),
        (0.5, 500),
    ]


def test_sizes_that_the_oldest_strategy_prefers_fit_the_batch(tmp_path: Path) -> None:
    space = space_over(
        tmp_path,
        sequence_config("m", "oldest { }"),
        {
            "max_batch_size": {"choice": [2, 8]},
            OLDEST_PREFERRED: {"subsets": [2, 4, 8], "at_most": 1, "or": "unset"},
        },
    )
    preferred = {
        (c.max_batch_size, tuple(c.sequence_batching.oldest.preferred_batch_size))
        for c in (space.configs(candidate)["m"] for candidate in space.enumerate())
    }
    assert preferred == {(2, ()), (8, ()), (8, (2,)), (8, (4,))}


@pytest.mark.parametrize(
    ("more", "line"), [({}, "not checked"), ({"count_output": "count"}, "checked in count")]
)
def test_a_plan_tells_what_a_sequence_is_of_the_load_and_whether_its_order_is_checked(
    tmp_path: Path, more: dict[str, str], line: str
) -> None:
    write_models(tmp_path / "models", m=sequence_config("m"))
    spec = spec_of(tmp_path, workload={"arrivals": {**PACED, **more}})
    notes = client_notes(prepare(Request(spec=spec)))
    (note,) = [text for text in notes if text.startswith("each sequence")]
    assert "is 10/s" in note
    assert line in note


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_a_draft_for_sequences_loads_and_searches_both_strategies(
    tmp_path: Path, strategy: str
) -> None:
    config = parse(sequence_config("m", strategy))
    drafted = draft_spec({"m": DraftedModel(config)}, Machine(cores=4), ".", given=None)
    (tmp_path / "spec.yaml").write_text(drafted)
    spec = load_spec(tmp_path / "spec.yaml").spec
    space = build_space(spec, served_one(config))
    kinds = {get(space.configs(c)["m"], OLDEST) for c in space.coarse(2).enumerate()}
    assert kinds == {True, None}
    assert "dynamic_batching" not in drafted
    assert "response_cache" not in drafted


@pytest.mark.parametrize(
    ("strategy", "counts"),
    [
        ("oldest { max_candidate_sequences: 5 }", [5, 8, 32, 128]),
        ("oldest { max_candidate_sequences: 32 }", [8, 32, 128]),
        ("oldest { }", [8, 32, 128]),
        ("direct { }", [8, 32, 128]),
    ],
)
def test_todays_number_of_candidates_is_among_the_drafted_ones(
    strategy: str, counts: list[int]
) -> None:
    config = parse(sequence_config("m", strategy))
    draft = yaml.safe_load(draft_spec({"m": DraftedModel(config)}, Machine(cores=4), "."))
    assert draft["space"][CANDIDATE_SEQUENCES] == {"choice": counts}


ITERATIVE = """name: "m" backend: "python" %s
sequence_batching { iterative_sequence: true oldest { } }
input { name: "text" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "word" data_type: TYPE_STRING dims: [ 1 ] }
"""


@pytest.mark.parametrize(
    ("size", "completes"), [("", True), ("max_batch_size: 8", False), ("", False)]
)
def test_iterative_model_is_drafted_and_planned_with_single_requests(
    size: str, completes: bool, tmp_path: Path
) -> None:
    config = ITERATIVE % size
    part = DraftedModel(parse(config), completes=completes)
    text = draft_spec({"m": part}, Machine(cores=4), "models")
    assert "arrivals: {kind: poisson}" in text
    assert "response_cache" not in text
    assert "dynamic_batching" not in text
    code = "def auto_complete_config(config): ...\n" if completes else ""
    write_models(tmp_path / "models", m=config)
    (tmp_path / "models" / "m" / "1" / "model.py").write_text(code)
    (tmp_path / "spec.yaml").write_text(text)
    job = prepare(Request(spec=tmp_path / "spec.yaml"))
    assert job.space.parameters
