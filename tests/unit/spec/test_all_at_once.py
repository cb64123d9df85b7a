"""Every mistake of a spec in one answer: none hides another."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tuner.spec.checks import cross_checks
from tuner.spec.forms import long_form, written
from tuner.spec.load import load_spec
from tuner.spec.mistakes import Location, Mistake, SpecMistakesError
from tuner.spec.model import Spec
from tuner.spec.validation import Validation
from tuner.spec.yaml_tree import BadYamlError, dump_scalar, read_yaml

BAD = Path(__file__).parents[2] / "cases" / "bad"


def _mistakes(path: Path) -> tuple[Mistake, ...]:
    with pytest.raises(SpecMistakesError) as error:
        load_spec(path)
    return error.value.mistakes


def _bad() -> Iterator[Any]:
    for path in sorted(BAD.glob("*.yaml")):
        try:
            tree = read_yaml(path.read_text(errors="replace"))
        except BadYamlError:
            continue
        if isinstance(tree.data, dict) and not tree.problems:
            yield pytest.param(path, tree.data, id=path.stem)


@pytest.mark.parametrize(("path", "data"), [*_bad()])
def test_an_unknown_key_hides_no_mistake(path: Path, data: dict[str, Any], tmp_path: Path) -> None:
    shutil.copy(BAD / "a.json", tmp_path)
    spec = tmp_path / "spec.yaml"
    spec.write_text(dump_scalar(data))
    alone = {(m.where, m.message) for m in _mistakes(spec)}
    for location, mapping in _mappings(data):
        mapping["zzz"] = "nonsense"
        spec.write_text(dump_scalar(data))
        del mapping["zzz"]
        hidden = alone - {(m.where, m.message) for m in _mistakes(spec)}
        assert not hidden, location


def _mappings(data: Any, at: Location = ()) -> Iterator[tuple[Location, dict[str, Any]]]:
    named = at in (("models",), ("streams",))  # where it would be one model or stream more
    if isinstance(data, dict) and not named:
        yield at, data
    items = data.items() if isinstance(data, dict) else ()
    for key, value in [*items, *enumerate(data if isinstance(data, list) else ())]:
        yield from _mappings(value, (*at, key))


def test_mistakes_of_all_options_and_of_the_file_are_in_one_answer() -> None:
    options = ["budget", "budget.trials=0", "search={", "space.max_batch_size.choice=[4, 8]"]
    with pytest.raises(SpecMistakesError) as error:
        load_spec(BAD / "goodput.yaml", options)
    files = [m.file for m in error.value.mistakes]
    assert [f"--set {option}" for option in sorted(options)] == files[: len(options)]
    assert files[len(options) :] == [m.file for m in _mistakes(BAD / "goodput.yaml")]


_JUNK = (
    None, 3, -1, 1.5, "x", "", True, [], {}, [1, "a"], ["p99_latency <= 6ms", 3], "a/b", "*",
    {"kind": "zzz"}, {"kind": "closed"}, {"a": {"b": 1}}, {"from": 3}, [{"dims": [1]}],
    {"int": [1, 2]}, {"choice": [1, "x"]},
)  # fmt: skip


@pytest.mark.parametrize("path", sorted(BAD.parent.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_parts_are_refused_where_the_spec_is(path: Path) -> None:
    """And rules never fail, whatever is wrong."""
    rng, context = random.Random(path.stem), {"directory": path.parent}
    try:
        data = read_yaml(path.read_text(errors="replace")).data
    except BadYamlError:
        return
    for _ in range(20 if isinstance(data, dict) else 0):
        spoilt = copy.deepcopy(data)
        for _ in range(rng.choice([1, 2, 3])):
            mapping = rng.choice([mapping for _, mapping in _mappings(spoilt)])
            mapping[rng.choice([*mapping, "space", "kind"])] = copy.deepcopy(rng.choice(_JUNK))
        validation = Validation(context)
        for finding in cross_checks(validation.model(Spec, long_form(spoilt))):
            assert written(finding.location, spoilt)
        try:
            Spec.model_validate(spoilt, context=context)
        except ValidationError:
            assert validation.findings, spoilt
        else:
            assert not validation.findings, spoilt
