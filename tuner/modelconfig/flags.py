"""Settings of a config that do nothing on a server without an argument; such configs load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.modelconfig.backends import Mistake
from tuner.modelconfig.rules import Check, Rule
from tuner.modelconfig.schema import ModelConfig

#: Names that Triton gives by itself, one for each kind of instance.
_DEFAULT_HOST_POLICY = re.compile(r"cpu|model|gpu_\d+")
_CACHE_ARGUMENTS = ("--cache-config", "--response-cache-byte-size")


@dataclass(frozen=True)
class Flagged:
    """A rule about such a setting; ``arguments``: what those begin with that turn it on."""

    rule: Rule
    check: Check
    arguments: tuple[str, ...]

    def idle(self, config: ModelConfig, arguments: Sequence[str]) -> Iterator[Mistake]:
        """The settings that do nothing on a server with these arguments."""
        if not any(argument.startswith(self.arguments) for argument in arguments):
            yield from self.check(config)


def _cache(config: ModelConfig) -> Iterator[Mistake]:
    if config.response_cache.enable:
        text = "response_cache does nothing on a server started without --cache-config"
        hint = "start tritonserver with --cache-config=local,size=BYTES"
        yield "response_cache.enable", text, hint


def _host_policies(config: ModelConfig) -> Iterator[Mistake]:
    for index, group in enumerate(config.instance_group):
        policy = group.host_policy
        if policy and not _DEFAULT_HOST_POLICY.fullmatch(policy):
            text = f"host policy {policy!r} does nothing on a server that does not define it"
            yield f"instance_group[{index}].host_policy", text, f"--host-policy={policy},SETTING"


def _rate_limits(config: ModelConfig) -> Iterator[Mistake]:
    for index, group in enumerate(config.instance_group):
        if group.HasField("rate_limiter"):
            text = "rate_limiter does nothing on a server without --rate-limit"
            yield f"instance_group[{index}].rate_limiter", text, "--rate-limit=execution_count"


FLAGGED = (
    Flagged(Rule.CACHE_FLAG, _cache, _CACHE_ARGUMENTS),
    Flagged(Rule.HOST_POLICY, _host_policies, ("--host-policy",)),
    Flagged(Rule.RATE_LIMIT, _rate_limits, ("--rate-limit",)),
)
