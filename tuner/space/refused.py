"""Kinds of models that this search is not for, wherever a spec comes from."""

from __future__ import annotations

from tuner.errors import SpecError
from tuner.modelconfig.schema import ModelConfig

#: Backends whose models generate token by token, batched by the backend itself.
LLM_BACKENDS = frozenset({"vllm", "tensorrtllm"})


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
