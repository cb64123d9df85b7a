"""What this package believes of Triton, asked of a real one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from builders.configs import PYTHON, config
from builders.ensemble_cases import ENSEMBLE, ENSEMBLE_MISTAKES
from builders.rule_cases import DYNAMIC, IDLE, POLICY, REFUSED

from tuner.errors import DeployRefusedError, ServerGoneError
from tuner.lint.repository import lint_repository
from tuner.modelconfig.base import differences
from tuner.modelconfig.edit import edit
from tuner.modelconfig.files import read_model
from tuner.modelconfig.message import parse, to_load_json
from tuner.modelconfig.path import with_fields
from tuner.modelconfig.rules import Rule
from tuner.server.control import Control

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEADLINE_S = 30.0
#: Triton begins the instances before it refuses these, and may end as it takes them down again
#: (2.51: Signal 11, once in 120 refusals of an initial state).
LATE = {Rule.WARMUP}
#: What loads although one might think otherwise.
LOADABLE = [
    *(bad for _, _, bad, _ in IDLE),
    DYNAMIC % ("preserve_ordering: true " + POLICY % "timeout_action: DELAY"),
    DYNAMIC % "default_priority_level: 1",
]

#: A field of each kind: 64-bit integers, enums, lists, maps of messages and of text, floats.
FIELDS = {
    "max_batch_size": 4,
    "input[0].dims": (4, -1),
    "dynamic_batching.preferred_batch_size": (2, 4),
    "dynamic_batching.max_queue_delay_microseconds": 10_000_000_000,
    "dynamic_batching.priority_levels": 2,
    "dynamic_batching.default_priority_level": 1,
    "dynamic_batching.default_queue_policy.max_queue_size": 100,
    "dynamic_batching.priority_queue_policy[2].timeout_action": "DELAY",
    "dynamic_batching.priority_queue_policy[2].default_timeout_microseconds": 5000,
    "instance_group[kind=KIND_CPU].count": 2,
    "parameters.threads": 4,
    'parameters["odd.key"]': 'a "b" # c \\',
    "metric_tags.team": "vision",
    "optimization.graph.level": -1,
    "optimization.input_pinned_memory.enable": False,
    "response_cache.enable": True,
    "version_policy.latest.num_versions": 2,
}


def test_every_kind_of_field_arrives(control: Control) -> None:
    requested = with_fields(parse(PYTHON), FIELDS)
    control.load("m", to_load_json(requested), DEADLINE_S)
    assert differences(requested, control.running_config("m"), FIELDS) == []


def test_an_unlike_config_is_noticed(control: Control) -> None:
    requested = parse(PYTHON)
    control.load("m", to_load_json(requested), DEADLINE_S)
    different = differences(with_fields(requested, FIELDS), control.running_config("m"), FIELDS)
    assert len(different) == len(FIELDS)


def test_fields_that_triton_fills_in_are_no_difference(control: Control) -> None:
    requested = config("dynamic_batching { }")
    control.load("m", to_load_json(requested), DEADLINE_S)
    paths = [
        "dynamic_batching.preferred_batch_size",
        "instance_group.count",
        "instance_group.kind",
        "optimization.output_pinned_memory.enable",
        "version_policy.latest.num_versions",
        "default_model_filename",
    ]
    assert differences(requested, control.running_config("m"), paths) == []


def test_an_edited_file_is_read_by_triton_as_meant(control: Control, repository: Path) -> None:
    files = read_model(repository, "m")
    files.path.write_text(edit(files.text, FIELDS))
    control.unload("m", DEADLINE_S)
    control.load("m", None, DEADLINE_S)
    requested = read_model(repository, "m").config()
    assert differences(requested, control.running_config("m"), FIELDS) == []
    files.path.write_text(files.text)


@pytest.mark.parametrize(("rule", "path", "bad", "good"), REFUSED)
def test_triton_refuses_what_the_rules_refuse(
    control: Control, rule: Rule, path: str, bad: str, good: str
) -> None:
    refusals = (DeployRefusedError, *([ServerGoneError] if rule in LATE else []))
    with pytest.raises(refusals):
        control.load("m", to_load_json(config(bad)), DEADLINE_S)


@pytest.mark.parametrize("text", LOADABLE)
def test_triton_loads_what_the_rules_allow(control: Control, text: str) -> None:
    control.load("m", to_load_json(config(text)), DEADLINE_S)
    assert control.ready("m")


def test_a_batcher_without_batches_loads(control: Control) -> None:
    requested = config("dynamic_batching { }")
    requested.max_batch_size = 0
    control.load("m", to_load_json(requested), DEADLINE_S)
    assert control.running_config("m").max_batch_size == 0


def test_a_sound_ensemble_loads(control: Control) -> None:
    control.load("e", to_load_json(parse(ENSEMBLE)), DEADLINE_S)
    assert control.ready("e")


@pytest.mark.parametrize(("old", "new", "path", "said"), ENSEMBLE_MISTAKES)
def test_triton_refuses_mistaken_ensembles(
    control: Control, old: str, new: str, path: str, said: str
) -> None:
    mistaken = parse(ENSEMBLE.replace(old, new, 1))
    with pytest.raises(DeployRefusedError):
        control.load("e", to_load_json(mistaken), DEADLINE_S)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_batch_size: 4", "max_batch_size: 16"),
        ('key: "x" value: "in"', 'key: "z" value: "in"'),
        ('key: "y" value: "middle"', 'key: "z" value: "middle"'),
        ("TYPE_FP32", "TYPE_INT32"),
        ('model_name: "two"', 'model_name: "three"'),
    ],
)
def test_triton_refuses_steps_that_do_not_fit(control: Control, old: str, new: str) -> None:
    assert old in ENSEMBLE
    with pytest.raises(DeployRefusedError):
        control.load("e", to_load_json(parse(ENSEMBLE.replace(old, new, 1))), DEADLINE_S)


@pytest.mark.parametrize(
    ("name", "said", "rules"),
    [
        ("to_wide", "inconsistent shape", {"ensemble-step"}),
        ("to_deep", "inconsistent shape", {"ensemble-step"}),
        ("to_open", "", set()),
        ("to_whole", "", set()),
        ("to_flat", "inconsistent shape", {"ensemble-step"}),
        ("to_typed", "inconsistent data type", {"ensemble-step"}),
        ("to_decoupled", "Response Cache does not", {"response-cache", "cache-flag"}),
        ("to_sequences", "", {"response-cache", "cache-flag"}),
        ("labelled", "labels.txt", {"label-file"}),
        ("round", "circular dependency between ensembles", {"ensemble-cycle"}),
    ],
)
def test_triton_and_lint_agree_on_steps_and_files(
    control: Control, repository: Path, name: str, said: str, rules: set[str]
) -> None:
    with pytest.raises(DeployRefusedError, match=said) if said else nullcontext():
        control.load(name, None, DEADLINE_S)
    assert {finding.rule for finding in lint_repository(repository, name)} == rules
