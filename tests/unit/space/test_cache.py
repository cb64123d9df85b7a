from __future__ import annotations

import pytest

from tuner.space.candidate import Candidate, server_args, split_args


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


def test_no_cache_has_no_argument() -> None:
    assert server_args(None) == ()
    assert split_args(()) == ((), None)


def test_a_size_reads_back_as_it_was_written() -> None:
    assert split_args(server_args(4096)) == ((), 4096)


@pytest.mark.parametrize("setting", ["redis,host=cache", "local,size=1GB"])
def test_a_cache_without_a_stated_local_size_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="not a local cache"):
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
