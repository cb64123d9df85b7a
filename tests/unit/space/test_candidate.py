"""A candidate of several models, and what it is in files."""

from __future__ import annotations

import pytest
from builders.candidates import candidate_of

from tuner.space.candidate import CACHE, Candidate, FieldValue, server_args, split_args
from tuner.space.parameters import Knob
from tuner.space.words import changes_text, field_text
from tuner.spec.paths import INSTANCES

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


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("instance_group.count", 2, "instances 2"),
        ("instance_group.count", 0, "instances left to Triton"),
        ("dynamic_batching", None, "dynamic batching off"),
        ("dynamic_batching.max_queue_delay_microseconds", 0, "delay 0 us"),
        ("dynamic_batching.max_queue_delay_microseconds", 3000, "delay 3 ms"),
        ("dynamic_batching.preferred_batch_size", (4, 8), "preferred [4, 8]"),
    ],
)
def test_fields_in_a_few_words(path: str, value: FieldValue, text: str) -> None:
    assert field_text(Candidate({Knob("m", path): value}), Knob("m", path)) == text


def test_changes_of_several_models_name_the_model() -> None:
    current = Candidate.of_models({"tiny-bert": {INSTANCES: 1}, "head": {INSTANCES: 1}})
    changed = Candidate.of_models({"tiny-bert": {INSTANCES: 2}, "head": {INSTANCES: 1}}, 1 << 26)
    assert changes_text(changed, current) == "tiny-bert: instances 2, cache 64 MiB"


@pytest.mark.parametrize(
    "args",
    [
        ("--cache-config=local,size=1048576",),
        ("--cache-config", "local,size=1048576"),
        ("--response-cache-byte-size=1048576",),
    ],
)
def test_every_way_to_write_the_size_is_read(args: tuple[str, ...]) -> None:
    assert split_args(("--log-verbose=1", *args, "--strict")) == (
        ("--log-verbose=1", "--strict"),
        1_048_576,
    )


@pytest.mark.parametrize("size", [None, 4096])
def test_a_size_or_no_cache_reads_back_as_it_was_written(size: int | None) -> None:
    assert split_args(server_args(size)) == ((), size)
    assert bool(server_args(size)) == bool(size)


@pytest.mark.parametrize("setting", ["redis,host=cache", "local,size=1GB"])
def test_a_cache_without_a_stated_local_size_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=f"--cache-config {setting} "):
        split_args((f"--cache-config={setting}",))


def test_a_size_is_stored_as_the_argument_it_stands_for() -> None:
    stored = {
        "models": {"m": {"response_cache.enable": True}},
        "server_args": ["--cache-config=local,size=4096"],
    }
    candidate = Candidate.from_json(stored)
    assert candidate.cache_bytes == 4096
    assert candidate.to_json() == stored
    with pytest.raises(ValueError, match="--backend-directory=/x"):
        Candidate.from_json({"models": {}, "server_args": ["--backend-directory=/x"]})
