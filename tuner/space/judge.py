"""The model's config on its own: what Triton refuses, and which kinds of models are unsupported."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tuner.errors import SpecError
from tuner.modelconfig.rules import Violation
from tuner.modelconfig.schema import ModelConfig
from tuner.space.space import Space

#: Enough to meet any value that makes the config valid, unless it is one of very many.
_DRAWS = 200
#: Backends whose models generate token by token, batched by the backend itself.
LLM_BACKENDS = frozenset({"vllm", "tensorrtllm"})


def refuse_broken(space: Space) -> None:
    """Refuses a config that breaks a rule of Triton's, and goes on to whatever the space tries.

    Raises:
        SpecError: Each rule that is broken, one a line, with the place of the field.
    """
    lasting = space.violations(space.current)
    rng = random.Random(0)  # noqa: S311
    for _ in range(_DRAWS):
        if not lasting:
            return
        candidate = space.draw(rng)
        if candidate is not None:
            still = space.violations(candidate)
            lasting = [violation for violation in lasting if violation in still]
    if lasting:
        raise broken_config(lasting, space.served.place)


def broken_config(violations: Sequence[Violation], place: Callable[[Violation], str]) -> SpecError:
    """What is wrong with models' configs, with the place of each mistake."""
    lines = "\n".join(f"{place(found)}: {found.message}" for found in violations)
    hint = next((found.hint for found in violations if found.hint), "")
    advice = f"fix the model's config first{f': {hint}' if hint else ''}"
    return SpecError(lines, advice)


def refuse_unmeasurable(model: str, config: ModelConfig) -> None:
    """Returns for a model that answers each request once, by itself.

    Raises:
        SpecError: A request to this one has no latency to tune for; the hint says what to do.
    """
    if config.backend in LLM_BACKENDS:
        raise SpecError(
            f"{model} is a language model ({config.backend}): it batches inside its engine, and "
            "what counts are time to first token and time per token",
            "tune its engine's own parameters with NVIDIA's aiconfigurator or aiperf",
        )
    if config.model_transaction_policy.decoupled:
        raise SpecError(
            f"{model} is decoupled: it may answer a request many times or not at all, so a "
            "request has no one latency to tune for",
            "measure it with perf_analyzer --streaming; tune the models that it calls",
        )
    if config.HasField("sequence_batching"):
        raise SpecError(
            f"{model} takes sequences of requests (sequence_batching): what it answers depends on "
            "what was asked before, and single requests in random order are not its traffic",
            "measure it with perf_analyzer's sequence options (--num-of-sequences, "
            "--sequence-length); tune the models that it calls",
        )
