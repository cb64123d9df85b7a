from __future__ import annotations

from typing import Any

import pytest
from candidates import candidate_of

from tuner.bench.cache import ResponseCache, cache_of
from tuner.modelconfig.base import Base
from tuner.modelconfig.message import parse
from tuner.space.build import build_space
from tuner.space.space import Space
from tuner.spec.model import Spec

CACHING = "response_cache { enable: true }"
FLAG = "--cache-config=local,size=4096"


def a_space(config: str = "", *, args: tuple[str, ...] = (), searched: bool = False) -> Space:
    fields: dict[str, Any] = {"instance_group.count": {"int": [1, 2]}}
    if searched:
        fields["response_cache.size"] = {"choice": [False, "64MiB"]}
    spec = Spec.model_validate(
        {
            "model": "m",
            "repository": "r",
            "server": {"args": list(args)},
            "slo": ["p99_latency <= 40ms"],
            "space": fields,
        }
    )
    text = f'name: "m" backend: "python" max_batch_size: 4 {config}'
    return build_space(spec, Base.of_file(parse(text, "m")))


def test_a_size_of_the_search_is_the_candidates() -> None:
    space = a_space(searched=True)
    found = {cache_of(space, c, remote=False) for c in space.enumerate()}
    assert found == {None, ResponseCache(64 << 20)}


def test_a_cache_of_the_users_own_counts_the_same() -> None:
    space = a_space(CACHING, args=("--log-verbose=0", FLAG))
    assert cache_of(space, space.current, remote=False) == ResponseCache(4096)
    assert cache_of(space, candidate_of({"instance_group.count": 2}), remote=False) is not None


@pytest.mark.parametrize(
    ("config", "args"),
    [("", (FLAG,)), (CACHING, ()), (CACHING, ("--log-verbose=0",)), ("", ())],
)
def test_server_and_model_must_both_want_it(config: str, args: tuple[str, ...]) -> None:
    space = a_space(config, args=args)
    assert cache_of(space, space.current, remote=False) is None


def test_of_a_remote_server_and_of_other_caches_the_size_is_not_known() -> None:
    remote = a_space(CACHING)
    assert cache_of(remote, remote.current, remote=True) == ResponseCache(None)
    redis = a_space(CACHING, args=("--cache-config=redis,host=h",))
    assert cache_of(redis, redis.current, remote=False) == ResponseCache(None)
