"""What no space can hold, what leaves nothing to search, and what a draft of a spec remarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.refusals import Case
from builders.serving import served_one
from builders.spaces import BATCH, BATCHING, CACHE, DELAY, INSTANCES, PREFERRED, space_of, spec_of

from tuner.modelconfig.message import parse
from tuner.space.build import build_space, refuse_empty, refuse_unmeasurable
from tuner.space.candidate import split_args
from tuner.space.draft import draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel

ENGINE = (
    'name: "m" platform: "tensorrt_plan" max_batch_size: 8 '
    "instance_group { kind: KIND_GPU profile: %s }"
)
ZERO_DIMS = BATCHING + '\ninput [{ name: "x" data_type: TYPE_FP32\n  dims: [ 0 ] }]'
TOO_LARGE = BATCHING + " dynamic_batching { preferred_batch_size: [32] }"
TWICE = {"parameters.a": {"choice": [1, 2]}, 'parameters["a"]': {"choice": [1, 2]}}
SWITCH = {"choice": [False, True]}
REDIS = ("--cache-config=redis,host=h",)


def searching(space: dict[str, Any], config: str = BATCHING, args: tuple[str, ...] = ()) -> Case:
    return lambda _: refuse_empty(space_of(space, config, server={"args": list(args)}))


def two(one: Mapping[str, Any], other: Mapping[str, Any]) -> Case:
    """Of the two steps of an ensemble that takes batches of four."""
    models = {"one": {"space": one}, "two": {"space": other}, "e": {}}
    streams = {"s": {"model": "e", "share": "100%"}}
    return lambda _: refuse_empty(space_of({"models": models, "streams": streams}))


def no_spaces() -> dict[str, Case]:
    mistakes = {
        "max_batch_sizes": {"choice": [8, 16]},
        "parameters.mode": {"choice": ["fast", "slow"]},
        DELAY: {"choice": [True, 5]},
    }
    sequences = "sequence_batching.oldest.max_candidate_sequences"
    return {
        "two mistakes": lambda _: build_space(spec_of(mistakes), served_one(BATCHING)),
        "the config is wrong by itself": searching({BATCH: {"choice": [8, 16]}}, ZERO_DIMS),
        "the config is wrong in what the space leaves alone": searching(
            {DELAY: {"int": [1, 10_000]}}, TOO_LARGE
        ),
        "unset is one of the values": searching({DELAY: {"choice": ["unset", 0, 100]}}),
        "one field twice": searching(TWICE),
        "a batcher for sequences": searching(
            {DELAY: {"int": [1, 5]}}, BATCHING + "sequence_batching { }"
        ),
        "a batcher for a model without batches": searching({DELAY: {"int": [1, 5]}}, 'name: "m"'),
        "a cache that is not local": searching({CACHE: {"choice": [False, "1MiB"]}}, args=REDIS),
        "sequences for a model that takes none": searching({sequences: {"int": [1, 5]}}),
        "how long sequences may idle in a model that takes none": searching(
            {"sequence_batching.max_sequence_idle_microseconds": {"int": [1, 9]}}
        ),
        "sequences or not": searching({"sequence_batching": SWITCH}),
        "what the model is": searching(
            {
                "name": {"choice": ["m", "n"]},
                "input.dims": {"choice": [[8], [16]]},
                "model_transaction_policy.decoupled": SWITCH,
                "sequence_batching.state[0].dims": {"choice": [[8], [16]]},
            }
        ),
        "numbers in a list of texts": searching(
            {"instance_group.profile": {"choice": [[0], [0, 1]]}}, ENGINE % '"0"'
        ),
        "a list for a number": searching({BATCH: {"choice": [[8, 16]]}}),
        "texts in a list of numbers": searching({PREFERRED: {"choice": [["4", "8"]]}}),
        "instances of an ensemble without steps": searching(
            {INSTANCES: {"int": [1, 2]}}, 'platform: "ensemble" ensemble_scheduling { }'
        ),
        "a language model": lambda _: refuse_unmeasurable("m", parse('backend: "vllm"')),
        "the current config alone": searching({BATCH: {"choice": [16]}}),
        "batch sizes where nothing is batched": searching({BATCH: {"choice": [4, 8]}}),
        "a cache for a decoupled model": searching(
            {CACHE: {"choice": ["1MiB"]}}, BATCHING + "model_transaction_policy { decoupled: true }"
        ),
        "steps of smaller batches than the ensemble's": two({BATCH: {"choice": [1, 2]}}, {}),
        "mistakes in two models": two(
            {"max_batch_sizes": {"choice": [1, 2]}}, {INSTANCES: {"choice": ["many"]}}
        ),
        "the server's arguments have another cache": lambda _: split_args(REDIS),
    }


IO = """
input [{name: "x" data_type: TYPE_FP32 dims: [-1, 8]}]
output [{name: "y" data_type: TYPE_FP32 dims: [1]}]
"""
STEPS = 'ensemble_scheduling { step [{ model_name: "tokens" }, { model_name: "bert" }] }'
ENSEMBLE = f'name: "m" platform: "ensemble" max_batch_size: 8 {STEPS}' + IO
BERT = DraftedModel(parse('name: "bert" max_batch_size: 16' + IO), least_batch=8)


PLAIN = draft_spec({"m": DraftedModel(parse(BATCHING + IO))}, Machine(cores=4), "models")


def remarks(parts: Mapping[str, DraftedModel], slo: str = "p99_latency <= 100ms") -> Case:
    """The lines of a draft that the plain one does not have."""

    def case(_: Path) -> list[str]:
        draft = draft_spec(parts, Machine(cores=4), "models", (slo,))
        return [line for line in draft.splitlines() if line not in PLAIN.splitlines()]

    return case


def drafts() -> dict[str, Case]:
    """One whole, and what others say besides, of models that each need a remark of their own."""

    def of(config: str, *slo: str, completes: bool = False) -> Case:
        return remarks({"m": DraftedModel(parse(config), completes)}, *slo)

    def inputs(dims: str, kind: str = "TYPE_FP32") -> str:
        return f'max_batch_size: 8 input {{ name: "x" data_type: {kind} dims: {dims} }}'

    calling = DraftedModel(
        parse('name: "m" backend: "python"' + IO), False, ("bert",), ("1/model.py:7",)
    )
    tokens = DraftedModel(parse('name: "tokens" max_batch_size: 0' + IO))
    ensemble = DraftedModel(parse(ENSEMBLE))
    return {
        "whole": lambda _: PLAIN,
        "of open dimensions": of(inputs("[ -1, -1, -1 ]")),
        "of texts": of(inputs("[ 1 ]", "TYPE_STRING")),
        "with a bound of 90 ms": of(BATCHING + IO, "p99_latency <= 90ms"),
        "that does not batch": of("max_batch_size: 0" + IO),
        "that batches by its backend": of(
            'backend: "onnxruntime" max_batch_size: 8', completes=True
        ),
        "whose batch the server completes": of('backend: "python"', completes=True),
        "for a GPU that is not here": of(
            "max_batch_size: 64 instance_group [{kind: KIND_GPU count: 1}]" + IO
        ),
        "that is decoupled": of(
            BATCHING + IO + "model_transaction_policy { decoupled: true }",
            "p99_first_response <= 200ms",
        ),
        "that calls others by names made at run time": remarks({"m": calling, "bert": BERT}),
        "that is an ensemble": remarks({"m": ensemble, "tokens": tokens, "bert": BERT}),
        "that is an ensemble whose models are absent": remarks({"m": ensemble}),
        "without an SLO on a latency": of(BATCHING + IO, "throughput >= 300/s"),
        "of a language model": of('backend: "vllm"'),
        "of a language model compiled": of('backend: "tensorrtllm"'),
    }
