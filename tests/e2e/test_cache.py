"""The response cache on a real server: off without repeats, as small as will do with them."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

# An answer of the emulated accelerator takes some 320 bytes in the cache, so 400 inputs fit in
# 128 KiB and 100 of them in 32 KiB. Without a cache it serves 190 requests per second.
SPEC = """\
model: emulated-accelerator
repository: repository
workload:
  arrivals: {kind: poisson, rate: [100, 450]}
  inputs: %(inputs)s
  window: 1s
  warmup: 200ms
slo:
  - p90_latency <= 80ms
space:
  response_cache.size: {choice: [%(sizes)s]}
search: {strategy: grid}
confirm: {finalists: 1, rounds: 3, soak: 3s}
"""


def tuned(workplace: Any, inputs: str, sizes: str) -> dict[str, Any]:
    spec = workplace.directory / "spec.yaml"
    spec.write_text(SPEC % {"inputs": inputs, "sizes": sizes})
    done = workplace.tune("run", str(spec))
    assert done.returncode == 0, done.stderr
    assert "cache filled with" in done.stderr or "cache is left empty" in done.stderr
    result: dict[str, Any] = workplace.result()
    return result


def test_with_repeats_the_smallest_cache_that_does_is_written(workplace: Any) -> None:
    inputs = "{kind: random, unique: 400, repeat: {kind: zipf, exponent: 0.5}}"
    result = tuned(workplace, inputs, "off, 32KiB, 128KiB, 512KiB")
    assert result["status"] == "improved"
    assert result["winner"]["candidate"]["server_args"] == ["--cache-config=local,size=131072"]
    assert "response_cache" in workplace.config.read_text()
    tried = {row["field"]: row for row in result["simplification"]}
    assert tried["response_cache.size off"]["kept"]
    assert tried["response_cache.size off"]["difference"] < 0
    assert tried["response_cache.size 32 KiB"]["kept"]


def test_without_repeats_the_cache_stays_off(workplace: Any) -> None:
    before = workplace.config.read_bytes()
    result = tuned(workplace, "{kind: random}", "off, 512KiB")
    assert result["status"] == "kept"
    assert workplace.config.read_bytes() == before
    cached = [t for t in workplace.trials() if t["candidate"]["server_args"]]
    points = [p for t in cached for p in t["points"]]
    assert points
    assert all(p["measurement"]["server"]["cache_hit_count"] == 0 for p in points)
