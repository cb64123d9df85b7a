from __future__ import annotations

import random
from dataclasses import replace

import pytest
from builders.candidates import fields_of, values_of
from builders.spaces import BATCHING, space_of

import tuner.space.space
from tuner.space import conditions
from tuner.space.candidate import FieldValue
from tuner.space.conditions import Condition
from tuner.space.parameters import ChoiceParameter, Parameter
from tuner.space.space import Size

LEVELS = "dynamic_batching.priority_levels"
DEFAULT = "dynamic_batching.default_priority_level"


class UpTo(Condition):
    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter:
        assert isinstance(parameter, ChoiceParameter)
        left = tuple(v for v in parameter if isinstance(v, int) and v <= int(str(beside)))
        return replace(parameter, values=left)


def test_a_new_condition_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conditions.KNOWN, DEFAULT, UpTo(LEVELS))
    space = space_of(
        {LEVELS: {"choice": [1, 2, 3]}, DEFAULT: {"choice": [1, 2, 3]}},
        BATCHING + "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
    )
    pairs = {(fields_of(c)[LEVELS], fields_of(c)[DEFAULT]) for c in space.enumerate()}
    assert pairs == {(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)}
    assert space.size().count == 6
    monkeypatch.setattr(tuner.space.space, "COUNTED_ONE_BY_ONE", 0)
    assert space.size() == Size(6, exact=False)
    assert not space.contains(space.candidate(values_of({LEVELS: 1, DEFAULT: 3})))
    assert all(space.contains(c) for s in range(9) if (c := space.sample(random.Random(s))))
    assert space.contains(space.current)


def test_the_models_own_value_counts_where_the_parent_is_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(conditions.KNOWN, DEFAULT, UpTo(LEVELS))
    own = "dynamic_batching { priority_levels: 2 default_priority_level: 1 }"
    space = space_of({DEFAULT: {"choice": [1, 2, 3]}}, BATCHING + own)
    assert [fields_of(c)[DEFAULT] for c in space.enumerate()] == [1, 2]
