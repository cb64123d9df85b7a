"""What a config has once the code of its model has completed it."""

from __future__ import annotations

import pytest

from tuner.lint.completion import as_code_completes
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import enum_name

MODEL = """
{before}
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        {statement}
        return config
"""
X = '{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}'


def source(statement: str, before: str = "") -> str:
    return MODEL.format(statement=statement.replace("\n", "\n        "), before=before)


@pytest.mark.parametrize(
    ("statement", "before"),
    [
        (f"config.add_input({X})", ""),
        (f"given = {X}\nconfig.add_input(given)", ""),
        ("config.add_input(GIVEN)", f"GIVEN = {X}"),
        (f"for one in [{X}]:\n    config.add_input(one)", ""),
        (f"given = ({X},)\nfor one in given:\n    if one:\n        config.add_input(one)", ""),
        (f"for one in names: pass\nfor one in [{X}]: config.add_input(one)", ""),
        ("config.add_input(dict(name='x', data_type='TYPE_FP32', dims=[-1, 4]))", ""),
    ],
)
def test_a_tensor_that_the_code_adds_is_the_configs(statement: str, before: str) -> None:
    completed, _ = as_code_completes(parse(""), [source(statement, before)])
    assert [(t.name, enum_name(t, "data_type"), [*t.dims]) for t in completed.input] == [
        ("x", "TYPE_FP32", [-1, 4])
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "config.add_input(made())",
        "config.add_input()",
        f"given = {X}\ngiven = other\nconfig.add_input(given)",
        'config.add_input({"name": "x", "data_type": "TYPE_BYTES", "dims": [1]})',
        'config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [size]})',
        'config.add_input({"name": "x"})',
        "network.add_input('x', float32, (1, 3))",
        "def broken(:",
    ],
)
def test_a_tensor_that_the_code_does_not_write_out_is_left_out(statement: str) -> None:
    completed, sizes = as_code_completes(parse(""), [source(statement)])
    assert (list(completed.input), sizes) == ([], frozenset())


def test_what_the_config_has_stays() -> None:
    text = 'input { name: "x" data_type: TYPE_INT32 dims: 1 } model_transaction_policy { }'
    statement = f"config.add_input({X})\nconfig.set_model_transaction_policy(dict(decoupled=True))"
    config = parse(text)
    completed, _ = as_code_completes(config, [source(statement)])
    assert completed == config


@pytest.mark.parametrize(
    ("statement", "decoupled", "sizes"),
    [
        ('config.set_model_transaction_policy({"decoupled": True})', True, set()),
        ("config.set_model_transaction_policy(dict(decoupled=False))", False, set()),
        ("config.set_model_transaction_policy(dict(decoupled=asked))", False, set()),
        ("config.set_max_batch_size(0)", False, {0}),
        (
            "if asked:\n    config.set_max_batch_size(8)\nconfig.set_max_batch_size(0)",
            False,
            {0, 8},
        ),
        ("config.set_max_batch_size(asked)", False, set()),
    ],
)
def test_policy_and_sizes_that_the_code_sets_are_known(
    statement: str, decoupled: bool, sizes: set[int]
) -> None:
    completed, known = as_code_completes(parse(""), [source(statement)])
    assert (completed.model_transaction_policy.decoupled, known) == (decoupled, sizes)
