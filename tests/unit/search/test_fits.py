"""What refusals and memory readings forbid."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from builders.candidates import candidate_of
from builders.reasons import said, server_says, texts
from builders.spaces import BATCH, INSTANCES
from builders.surface import SURFACE, strategy

from tuner.score.trial import Trial, TrialState
from tuner.search.fits import Refusals, cannot_fit
from tuner.search.searcher import Searcher
from tuner.search.strategy import Proposal
from tuner.server.memory import MACHINE, Memory
from tuner.server.shared_memory import SHM
from tuner.space.candidate import Candidate
from tuner.spec.model import StrategyName
from tuner.spec.slo import Slo

GIB = 1 << 30
#: In the sentence of `golden/messages/missing-memory.txt`.
VALUES = re.compile(r"[\d.]+ GiB|GPU-\w+|\d+%")
GPU = "memory of GPU-5d2c"
WITHIN = Slo.parse("gpu_memory <= 8GiB")


def trial(
    candidate: Candidate, *, taken: float = 0.0, others: float = 0.0, total: int = 16, on: str = GPU
) -> Trial:
    """One that was served, with GiB of memory."""
    memory = {on: Memory(round(taken * GIB), round(others * GIB), total * GIB)} if taken else {}
    return Trial(0, candidate, TrialState.MEASURED, memory=memory)


def refused(candidate: Candidate, reason: str = "unknown parameter") -> Trial:
    return Trial(0, candidate, TrialState.FAILED, refused=True, reason=server_says(reason))


def config(instances: int, batch: int = 8, **more: str) -> Candidate:
    return candidate_of({INSTANCES: instances, BATCH: batch, **more})


def both(one: int, two: int) -> Candidate:
    return Candidate.of_models({"one": {INSTANCES: one}, "two": {INSTANCES: two}})


def fitting(counts: Sequence[int], history: Sequence[Trial], *slos: Slo) -> list[int]:
    return [n for n in counts if cannot_fit(config(n), history, slos) is None]


class TestRefusals:
    def test_what_asks_for_more_than_a_refused_one(self) -> None:
        refusals = Refusals([refused(config(3))])
        candidates = [config(2), config(3, 16), config(4), config(4, 4)]
        assert [refusals.forbids(c) for c in candidates] == [False, True, True, False]
        several = Refusals([refused(both(3, 1))])
        assert [several.forbids(c) for c in (both(3, 2), both(2, 4))] == [True, False]

    def test_success_of_a_larger_config_clears_earlier_refusals(self) -> None:
        refusals = Refusals([refused(config(3)), trial(config(4))])
        assert [refusals.forbids(config(n)) for n in (3, 4, 5)] == [False, False, True]

    def test_a_failed_load_forbids_no_larger_config(self) -> None:
        failed = replace(refused(config(3)), refused=False, reason=said("could not keep up"))
        assert not any(Refusals([failed]).forbids(config(n)) for n in (3, 4, 5))

    @pytest.mark.parametrize(
        "reason",
        [
            "unable to create TensorRT context",
            "CUDA out of memory. Tried to allocate 2.00 GiB",
        ],
    )
    def test_only_a_want_of_memory_is_one_of_other_thread_counts_too(self, reason: str) -> None:
        threads, kind = "parameters.intra_op_thread_count", "instance_group.kind"
        small, larger = config(2, **{threads: "1"}), config(3, **{threads: "4"})
        assert Refusals([refused(small, reason)]).forbids(larger)
        assert not Refusals([refused(small)]).forbids(larger)
        assert not Refusals([refused(small, reason)]).forbids(config(1, **{threads: "1"}))
        on_gpu, on_cpu = (config(2, **{kind: f"KIND_{k}"}) for k in ("GPU", "CPU"))
        assert not Refusals([refused(on_gpu, reason)]).forbids(on_cpu)

    def test_a_device_that_one_process_holds_gets_no_second_instance_by_any_other_field(
        self,
    ) -> None:
        threads, kind = "parameters.intra_op_thread_count", "instance_group.kind"
        busy = refused(config(2, **{threads: "1"}), "device 0 is in use by another process")
        served = trial(config(1, **{threads: "1"}))
        candidates = [
            config(2, 4, **{threads: "2"}),
            config(3),
            config(1, 16),
            config(2, **{kind: "G"}),
        ]
        forbidden = [Refusals([served, busy]).forbids(c) for c in candidates]
        assert forbidden == [True, True, False, False], "on something else there may be room"
        assert not Refusals([served, busy, trial(config(3))]).forbids(config(2))
        elsewhere = trial(config(1, **{threads: "4"}))
        assert not Refusals([elsewhere, busy]).forbids(config(2)), "its threads may be the reason"


class TestCannotFit:
    def test_one_reading_says_what_an_instance_takes(self) -> None:
        reason = cannot_fit(config(4), [trial(config(1), taken=4.0)], ())
        assert VALUES.findall(texts([reason])[0]) == ["15.28 GiB", "12.8 GiB", "GPU-5d2c", "20%"]
        assert fitting((1, 2, 3, 4), [trial(config(1), taken=4.0)]) == [1, 2, 3]

    def test_readings_of_several_counts_show_what_instances_share(self) -> None:
        history = [trial(config(1), taken=3.0), trial(config(2), taken=4.0)]
        assert fitting(range(1, 16), history) == list(range(1, 11))  # 2 GiB and 1 GiB for each

    def test_a_little_noise_makes_no_large_batch_impossible(self) -> None:
        history = [trial(config(1, 1), taken=0.5), trial(config(1, 2), taken=0.55)]
        assert cannot_fit(config(4, 128), history, ()) is None

    def test_what_a_batch_takes_is_learned(self) -> None:
        history = [trial(config(1, 8), taken=1.0), trial(config(1, 64), taken=4.5)]
        assert cannot_fit(config(2, 64), history, ()) is None
        assert cannot_fit(config(4, 64), history, ()) is not None

    def test_neighbours_have_their_part_as_of_the_latest_trial(self) -> None:
        history = [trial(config(1), taken=4.0), trial(config(1, 16), taken=4.0, others=8.0)]
        assert fitting((1, 2), history) == [1]
        assert fitting((1, 2), [*history, trial(config(1, 4), taken=4.0)]) == [1, 2]

    def test_what_was_served_fits(self) -> None:
        history = [trial(config(1), taken=14.0), trial(config(3, 16), taken=15.9)]
        assert fitting((1, 3, 4), history) == [1, 3]

    def test_each_memory_counts(self) -> None:
        """Also of eight GPUs the one that a neighbour has filled."""
        one = config(1)
        gpus = {f"memory of GPU-{n}": Memory(2 * GIB, n * GIB, 16 * GIB) for n in range(8)}
        full = {"memory of GPU-8": Memory(2 * GIB, 13 * GIB, 16 * GIB)}
        rest = {MACHINE: Memory(GIB, 0, 64 * GIB), SHM: Memory(1 << 20, 0, 64 << 20)}
        on_gpus = Trial(0, one, TrialState.MEASURED, memory={**gpus, **rest})
        assert cannot_fit(config(3), [on_gpus], ()) is None
        on_full = replace(on_gpus, memory={**gpus, **full, **rest})
        assert "memory of GPU-8" in texts([cannot_fit(config(3), [on_full], ())])[0]
        stubs = replace(on_gpus, memory=rest)
        reason = cannot_fit(config(60), [stubs], ())
        assert VALUES.findall(texts([reason])[0]) == ["56.48 GiB", "51.2 GiB", "20%"]
        stubs = replace(on_gpus, memory={SHM: rest[SHM]})
        assert "MiB free /dev/shm" in texts([cannot_fit(config(60), [stubs], ())])[0]

    def test_an_slo_on_gpu_memory_counts_neighbours_too(self) -> None:
        history = [trial(config(1), taken=2.0, others=1.0), trial(config(2), taken=4.0, others=1.0)]
        assert fitting((2, 3, 4), history, WITHIN) == [2, 3]
        assert fitting((2, 3, 4), history) == [2, 3, 4]
        on_cpu = [trial(config(1), taken=2.0, others=1.0, on=MACHINE)]
        assert fitting((4,), on_cpu, WITHIN) == [4]

    def test_memory_is_separate_for_each_of_several_models(self) -> None:
        used = {(1, 1): 2.0, (2, 1): 3.0, (1, 2): 5.0}
        history = [trial(both(*n), taken=taken, total=9) for n, taken in used.items()]
        candidates = [both(4, 1), both(2, 2), both(1, 3), both(4, 2)]
        assert [cannot_fit(c, history, ()) is None for c in candidates] == [
            True,
            True,
            False,
            False,
        ]

    def test_what_a_rate_limiter_shares_out_is_no_instance_and_takes_no_memory(self) -> None:
        def limited(instances: int, resources: int) -> Candidate:
            path = "instance_group.rate_limiter.resources[R1].count"
            return candidate_of({INSTANCES: instances, BATCH: 8, path: resources})

        history = [trial(limited(1, 1), taken=3.0), trial(limited(2, 1), taken=5.0)]
        assert cannot_fit(limited(2, 16), history, ()) is None
        assert cannot_fit(limited(8, 16), history, ()) is not None

    def test_nothing_known_forbids_nothing(self) -> None:
        assert cannot_fit(config(100), [], ()) is None
        assert cannot_fit(config(100), [trial(config(1))], ()) is None
        kind = {"instance_group.kind": "KIND_CPU"}
        assert cannot_fit(config(100, **kind), [trial(config(1), taken=4.0)], ()) is None

    def test_a_resumed_run_knows_the_same(self) -> None:
        history = [trial(config(1), taken=3.1), trial(config(2, 16), taken=5.7)]
        read = [Trial.from_json(t.to_json()) for t in history]
        assert read == history
        for n in (3, 4, 5):
            assert cannot_fit(config(n), read, ()) == cannot_fit(config(n), history, ())


def test_a_reading_with_the_copy_before_a_reload_refuses_no_config_that_fits() -> None:
    history = [trial(config(1), taken=2.0), trial(config(1), taken=4.0)]
    for trials in (history, history[::-1]):
        assert fitting([1, 2, 4, 6, 7, 8], trials) == [1, 2, 4, 6]


@pytest.mark.parametrize(
    "name", [StrategyName.GP, StrategyName.TPE, StrategyName.RANDOM, StrategyName.GRID]
)
def test_no_strategy_gets_to_try_what_is_at_least_as_large(name: StrategyName) -> None:
    space, made = strategy(name, SURFACE)
    lacking = space.sample(random.Random(1))
    assert lacking is not None
    history = [Trial(0, space.current, TrialState.PRUNED), refused(lacking, "out of memory")]
    searcher = Searcher(space, made, history)
    for _ in range(5):
        proposal = searcher.next()
        if not isinstance(proposal, Proposal):
            break
        assert not Refusals(searcher.history).forbids(proposal.candidate)
        searcher.tell(Trial(len(searcher.history), proposal.candidate, TrialState.FAILED))
    assert len(searcher.history) > 2
