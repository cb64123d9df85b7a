from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.model_files import write_model
from builders.serving import served_one, served_several

from tuner.meter.cache import ResponseCache, cache_of
from tuner.meter.session import may_be_cached
from tuner.prepare.job import Request, prepare
from tuner.space.build import build_space
from tuner.space.candidate import Candidate
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
    return build_space(spec, served_one(config_text(config)))


def config_text(more: str) -> str:
    return f'name: "m" backend: "python" max_batch_size: 4 {more}'


def cache(
    space: Space, config: str, candidate: Candidate | None = None, *, remote: bool = False
) -> ResponseCache | None:
    served = served_one(config_text(config))
    return cache_of(served, space.server_args, candidate or space.current, remote=remote)


def test_a_size_of_the_search_is_the_candidates() -> None:
    space = a_space(searched=True)
    caches = {cache(space, "", c) for c in space.enumerate()}
    assert caches == {None, ResponseCache(64 << 20)}


def test_cache_from_user_arguments_counts_like_one_from_the_spec() -> None:
    space = a_space(CACHING, args=("--log-verbose=0", FLAG))
    assert cache(space, CACHING) == ResponseCache(4096)
    assert cache(space, CACHING, candidate_of({"instance_group.count": 2})) is not None


@pytest.mark.parametrize(
    ("config", "args"),
    [("", (FLAG,)), (CACHING, ()), (CACHING, ("--log-verbose=0",)), ("", ())],
)
def test_server_and_model_must_both_want_it(config: str, args: tuple[str, ...]) -> None:
    space = a_space(config, args=args)
    assert cache(space, config) is None


def test_of_a_remote_server_and_of_other_caches_the_size_is_not_known() -> None:
    remote = a_space(CACHING)
    assert cache(remote, CACHING, remote=True) == ResponseCache(None)
    redis = a_space(CACHING, args=("--cache-config=redis,host=h",))
    assert cache(redis, CACHING) == ResponseCache(None)


def test_the_servers_cache_is_used_where_any_model_wants_it(tmp_path: Path) -> None:
    served = served_several(tmp_path, one=config_text("").replace('"m"', '"one"'), two="")
    without, with_it = Candidate(), Candidate.of_models({"two": {"response_cache.enable": True}})
    assert cache_of(served, (FLAG,), without, remote=False) is None
    assert cache_of(served, (FLAG,), with_it, remote=False) == ResponseCache(4096)


READING = """
class TritonPythonModel:
    def execute(self, requests):
        return [json.loads(r.parameters())["scale"] for r in requests]
"""
IO = """
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


@pytest.mark.parametrize(
    ("config", "space", "expected"),
    [
        ("", "", {}),
        (CACHING, "", {"m": ("scale",)}),
        ("", ", response_cache.enable: {choice: [off, on]}", {"m": ("scale",)}),
        ("", ", response_cache.size: {choice: [off, 64MiB]}", {"m": ("scale",)}),
    ],
)
def test_cacheable_models_are_probed_with_the_parameters_they_read(
    tmp_path: Path, config: str, space: str, expected: dict[str, tuple[str, ...]]
) -> None:
    write_model(tmp_path / "models" / "m", f"{config_text(config)}{IO}", READING)
    (tmp_path / "spec.yaml").write_text(
        "model: m\nrepository: models\nslo: [p99_latency <= 40ms]\n"
        f"space: {{max_batch_size: {{choice: [2, 4]}}{space}}}\n"
        "server: {args: ['--cache-config=local,size=4096']}\n"
    )
    assert may_be_cached(prepare(Request(spec=tmp_path / "spec.yaml"))) == expected
