"""Variables of the server's environment: searched, part of a candidate, and where to set them."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.spaces import INSTANCES, space_of

from tuner.errors import SpecError
from tuner.search.strategies.designs import designs
from tuner.space.candidate import Candidate, ServerStart, service_key
from tuner.space.environment import needed_variables, of_spec, places, with_variables
from tuner.space.words import changes_text
from tuner.spec.load import load_spec
from tuner.spec.runtimes import VARIABLES

OMP = "environment.OMP_NUM_THREADS"
SPACE = {INSTANCES: {"int": [1, 4]}, OMP: {"choice": ["unset", 1, 2]}}


def started(**environment: int | None) -> Candidate:
    return Candidate.of_models({"m": {INSTANCES: 1}}, environment=environment)


ONE, UNSET = started(OMP_NUM_THREADS=1), started(OMP_NUM_THREADS=None)


def test_each_value_of_a_variable_is_another_start_of_the_server() -> None:
    space = space_of(SPACE)
    assert space.size().count == 12
    assert space.restarts
    assert not space.caches
    starts = [c.start for c in space.enumerate()]
    assert starts[::4] == [ServerStart(None, {"OMP_NUM_THREADS": n}) for n in (None, 1, 2)]
    assert starts == [start for start in starts[::4] for _ in range(4)]  # changes last
    assert space.current == UNSET
    assert not space.alike(ONE, UNSET)
    assert service_key(ONE) != service_key(UNSET)


def test_the_current_config_has_the_variable_of_the_spec() -> None:
    server = {"environment": {"OMP_NUM_THREADS": "2", "TOKEN": "secret"}}
    assert space_of(SPACE, server=server).current == started(OMP_NUM_THREADS=2)


def test_designs_with_several_instances_have_few_threads_in_each() -> None:
    values = [(c.of("m")[INSTANCES], c.start.environment) for c in designs(space_of(SPACE))]
    assert values[0] == (2, {"OMP_NUM_THREADS": 1})
    assert (4, {"OMP_NUM_THREADS": 1}) in values
    assert all(variables == {"OMP_NUM_THREADS": 1} for count, variables in values if count == 4)


def test_a_candidate_is_read_back_with_its_variables_and_without_any_as_before() -> None:
    for candidate in (ONE, UNSET):
        assert Candidate.from_json(candidate.to_json()) == candidate
    assert ONE.to_json()["environment"] == {"OMP_NUM_THREADS": 1}
    assert "environment" not in Candidate.of_models({"m": {INSTANCES: 1}}).to_json()
    assert len({ONE.key, UNSET.key, Candidate.of_models({"m": {INSTANCES: 1}}).key}) == 3


@pytest.mark.parametrize(
    "given",
    [
        {"LD_PRELOAD": 1},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": 0},
        {"OMP_NUM_THREADS": True},
        ["OMP_NUM_THREADS"],
    ],
)
def test_no_stored_candidate_sets_anything_but_numbers_of_threads(given: object) -> None:
    with pytest.raises(ValueError, match="environment"):
        Candidate.from_json({"models": {}, "server_args": [], "environment": given})


def test_a_changed_variable_in_a_few_words() -> None:
    assert changes_text(ONE, UNSET) == "OMP_NUM_THREADS 1"
    assert changes_text(UNSET, ONE) == "no OMP_NUM_THREADS"
    assert changes_text(ONE, ONE) == "current config"


def test_needed_variables_are_listed_with_where_to_set_them() -> None:
    needed = needed_variables(started(OMP_NUM_THREADS=1, MKL_NUM_THREADS=2), Candidate())
    assert [*places(needed)] == [
        "command line  MKL_NUM_THREADS=2 OMP_NUM_THREADS=1 tritonserver ...",
        "Docker        docker run -e MKL_NUM_THREADS=2 -e OMP_NUM_THREADS=1 ...",
        (
            'Kubernetes    env: [{name: MKL_NUM_THREADS, value: "2"}, '
            '{name: OMP_NUM_THREADS, value: "1"}]'
        ),
    ]
    assert of_spec(needed) == (
        'server: {environment: {MKL_NUM_THREADS: "2", OMP_NUM_THREADS: "1"}}'
    )
    assert needed_variables(UNSET, UNSET) == {}
    assert [*places(needed_variables(UNSET, ONE))] == ["not set       OMP_NUM_THREADS"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_comment_behind_a_config_keeps_every_other_byte(end: str) -> None:
    old = end.join(['name: "m"  # mine', "max_batch_size: 4"])
    new = with_variables({"m": old}, {"m": old}, ONE, UNSET)["m"]
    assert new.startswith(f"{old}{end}# tune: start tritonserver with ")
    assert new.split(end)[-2] == (
        '# tune:   Kubernetes    env: [{name: OMP_NUM_THREADS, value: "1"}]'
    )
    assert new.endswith(end)
    assert new.count("\n") == new.count(end)
    assert with_variables({"m": new}, {"m": new}, ONE, UNSET)["m"] == new
    behind = f"{new}# theirs"
    again = with_variables({"m": behind}, {"m": behind}, started(OMP_NUM_THREADS=2), UNSET)["m"]
    assert "OMP_NUM_THREADS=1" not in again
    assert again.startswith(f"{old}{end}# theirs{end}# tune: start tritonserver")
    gone = with_variables({"m": behind}, {"m": behind}, UNSET, UNSET)["m"]
    assert gone == f"{old}{end}# theirs"


def test_without_a_searched_variable_an_older_comment_stays() -> None:
    new = with_variables({"m": ""}, {"m": ""}, ONE, UNSET)["m"]
    assert with_variables({"m": new}, {"m": new}, Candidate(), Candidate()) == {"m": new}


def test_of_several_configs_those_that_change_have_the_comment() -> None:
    before = {"a": "max_batch_size: 1\n", "b": "max_batch_size: 1\n"}
    after = {**before, "b": "max_batch_size: 2\n"}
    noted = with_variables(before, after, ONE, UNSET)
    assert noted["a"] == before["a"]
    assert "OMP_NUM_THREADS=1" in noted["b"]
    assert all("OMP_NUM" in text for text in with_variables(before, before, ONE, UNSET).values())


def test_the_current_number_of_threads_is_not_taken_from_elsewhere(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: r\nslo: [p99_latency <= 40ms]\n"
        "server: {environment: {OMP_NUM_THREADS: {from: THREADS}}}\n"
        "space: {environment.OMP_NUM_THREADS: {choice: [1, 2]}}\n"
    )
    with pytest.raises(SpecError, match="OMP_NUM_THREADS: is searched: write the current"):
        load_spec(spec)


def test_variables_are_a_closed_set_of_numbers_of_threads(tmp_path: Path) -> None:
    names = "\n".join(f"  environment.{name}: {{int: [1, 4], or: unset}}" for name in VARIABLES)
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"model: m\nrepository: r\nslo: [p99_latency <= 40ms]\nspace:\n{names}\n")
    assert len(load_spec(spec).spec.server.space) == len(VARIABLES)
