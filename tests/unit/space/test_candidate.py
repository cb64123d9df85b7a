"""A candidate of several models, and what it is in files."""

from __future__ import annotations

from builders.candidates import candidate_of

from tuner.space.candidate import CACHE, Candidate
from tuner.space.parameters import Knob

TWO = Candidate.of_models({"head": {"max_batch_size": 8}, "tiny-bert": {"sizes": (4, 8)}}, 1024)


def test_a_candidate_of_several_models_is_read_back_as_it_was_written() -> None:
    stored = TWO.to_json()
    assert stored["models"] == {"head": {"max_batch_size": 8}, "tiny-bert": {"sizes": [4, 8]}}
    assert Candidate.from_json(stored) == TWO


def test_a_candidate_is_stored_by_the_names_of_its_models() -> None:
    one = candidate_of({"a": 1, "b": (1, 2)}, 5)
    assert one.to_json() == {
        "models": {"m": {"a": 1, "b": [1, 2]}},
        "server_args": ["--cache-config=local,size=5"],
    }
    assert Candidate.from_json(one.to_json()) == one


def test_the_same_field_of_two_models_are_two_changes() -> None:
    same = {"instance_group.count": 1}
    one = Candidate.of_models({"head": same, "tiny-bert": same})
    other = Candidate.of_models({"head": {}, "tiny-bert": {"instance_group.count": 2}}, 1024)
    assert list(one.changed(other)) == [
        CACHE,
        Knob("head", "instance_group.count"),
        Knob("tiny-bert", "instance_group.count"),
    ]


def test_no_cache_is_no_setting_of_the_server() -> None:
    assert Candidate({CACHE: None}) == Candidate()
