"""Values of server.environment: known to the server, to nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.errors import EnvironmentNotReadyError
from tuner.record.checks import question_of
from tuner.spec.load import LoadedSpec, effective_yaml, load_spec
from tuner.spec.mistakes import SpecMistakesError
from tuner.spec.server import ServerVariable, given_check, resolve

CASES = Path(__file__).parents[2] / "cases"
MINIMAL = (CASES / "good" / "minimal.yaml").read_text()
MARK = "hunter2"
#: The values a spec gives, however it writes them, comments included.
GIVEN = f"""\
server:
  environment:
    PLAIN: {MARK}
    ANCHORED: &same '{MARK}'  # was {MARK} before
    AGAIN: *same
    FOLDED: >-
      {MARK}
    TAKEN: {{from: HF_TOKEN}}
"""


def loaded(directory: Path, more: str = "") -> LoadedSpec:
    path = directory / "tune.yaml"
    path.write_text(MINIMAL + more)
    return load_spec(path)


def test_the_server_gets_what_the_spec_gives_and_what_it_takes_from_tunes_environment(
    tmp_path: Path,
) -> None:
    variables = loaded(tmp_path, GIVEN).spec.server.environment
    values = resolve(variables, {"HF_TOKEN": "token", "OTHER": "x"})
    given = dict.fromkeys(("PLAIN", "ANCHORED", "AGAIN", "FOLDED"), MARK)
    assert values == {**given, "TAKEN": "token"}


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    variables = loaded(tmp_path, GIVEN).spec.server.environment
    with pytest.raises(EnvironmentNotReadyError, match="not set: HF_TOKEN"):
        resolve(variables, {})


def test_no_stored_or_printed_part_of_a_spec_has_a_secret_value(tmp_path: Path) -> None:
    spec = loaded(tmp_path, GIVEN)
    printed = [
        spec.text,
        repr(spec),
        str(spec.spec),
        json.dumps(spec.spec.model_dump(mode="json", by_alias=True)),
        repr(spec.spec.model_dump()),
        effective_yaml(spec.spec),
        str(question_of(spec.spec)),
    ]
    assert [text for text in printed if MARK in text] == []
    assert "PLAIN: '***'" in spec.text
    assert "TAKEN: {from: HF_TOKEN}" in spec.text


def test_a_spec_that_gives_no_values_is_stored_as_it_is(tmp_path: Path) -> None:
    taken = "server: {environment: {TOKEN: {from: HF_TOKEN}}}  # as it is\n"
    assert loaded(tmp_path, taken).text == MINIMAL + taken


def test_a_change_of_a_value_is_another_spec_and_another_question(tmp_path: Path) -> None:
    before, after = (
        loaded(tmp_path, f"server: {{environment: {{THREADS: '{n}'}}}}\n") for n in (4, 8)
    )
    assert before.text == after.text
    assert before.sha256 != after.sha256
    assert question_of(before.spec)["server"] != question_of(after.spec)["server"]
    again = loaded(tmp_path, "server: {environment: {THREADS: '8'}}\n")
    assert again.sha256 == after.sha256


def test_stored_check_of_a_value_fits_too_many_values_to_identify_it() -> None:
    assert len(given_check({"PIN": ServerVariable(given="0000")})) == 4  # hexadecimal digits
    assert given_check({"PIN": ServerVariable(taken_from="PIN")}) == ""


@pytest.mark.parametrize(
    "environment",
    [
        "{KEY: 8675309}",
        "{KEY: [8675309]}",
        "{KEY: {form: '8675309'}}",
        "{KEY: {from: [8675309]}}",
        "[8675309]",
        "KEY=8675309",
        "{KEY: *8675309}",
    ],
)
def test_a_mistake_does_not_quote_the_value(environment: str, tmp_path: Path) -> None:
    with pytest.raises(SpecMistakesError) as caught:
        loaded(tmp_path, f"server:\n  environment: {environment}\n")
    assert "8675309" not in caught.value.message + caught.value.hint
    assert len(caught.value.mistakes) == 1
