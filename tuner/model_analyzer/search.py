"""Model Analyzer's search over one of our spaces, replayed from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import SpecError
from tuner.model_analyzer.generators import Generators, Told
from tuner.model_analyzer.offer import Offer, nearest, offered, varied, varied_model
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import ModelAnalyzerMode

#: The brute search makes all its configs before the first one is measured.
MOST_COMBINATIONS = 2000
#: A search that has asked this often is repeating itself.
MOST_ASKED = 5000
#: Model Analyzer divides by what was measured.
LEAST_VALUE = 1e-9


@dataclass(frozen=True)
class Asked:
    """``repeated``: configs asked for since the last new one that were measured already."""

    candidate: Candidate
    repeated: int


class ModelAnalyzerSearch:
    """NVIDIA's search as a function of the results so far.

    Each step runs a fresh generator, and answers it from the results as long as it asks for configs
    that were measured. Each config is mapped to the nearest candidate of the space. One that Triton
    would refuse counts as a config without a measurement, as it would in Model Analyzer.

    Raises:
        SpecError: Nothing of the space can be varied by it, or more than it can list.
    """

    def __init__(
        self, space: Space, mode: ModelAnalyzerMode, seed: int, trials: int, maximise: bool
    ) -> None:
        offer = offered(space)
        _refuse(space, mode, offer)
        self._space = space
        self._mode = mode
        base = space.served.models[varied_model(space)].base.completed
        self._generators = Generators(mode, base, offer, seed, trials, maximise)

    def next(self, results: Mapping[str, Told | None]) -> Asked | None:
        """The first config it asks for that has no result.

        Args:
            results: By key of the candidate; None means a failed trial. Until the current
                config has one, it is taken as of value 1 and within the SLOs.

        Returns:
            None when its search is over.
        """
        current = self._space.canonical(self._space.current).key
        known = {current: Told(1.0), **results}
        if known[current] is None and self._mode is ModelAnalyzerMode.OPTUNA:
            return None  # it gives up when its default config has no measurement
        seen = {current}
        repeated = 0
        told: list[Told | None] = []
        for index, message in enumerate(self._generators.messages(told)):
            if index == 0:
                told.append(_above_zero(known[current]))
                continue
            candidate = nearest(self._space, message)
            if candidate is None or self._space.violations(candidate):
                told.append(None)
            elif candidate.key not in known:
                return Asked(candidate, repeated)
            else:
                repeated = repeated + 1 if candidate.key in seen else 0
                seen.add(candidate.key)
                told.append(_above_zero(known[candidate.key]))
            if index > MOST_ASKED:
                break
        return None


def _above_zero(told: Told | None) -> Told | None:
    return None if told is None else Told(max(told.value, LEAST_VALUE), told.violation)


def _refuse(space: Space, mode: ModelAnalyzerMode, offer: Offer) -> None:
    usable: list[tuple[object, ...]] = [offer.instances, offer.max_batch_sizes]
    if mode is not ModelAnalyzerMode.QUICK:
        usable.append(offer.delays_us)
    if mode is ModelAnalyzerMode.BRUTE:
        usable.append(offer.preferred)
    if not any(varied(path) for path in space.paths) or all(len(v) < 2 for v in usable):
        raise SpecError(
            f"search.strategy: Model Analyzer's {mode.value} search can vary nothing of this space",
            "it varies instance_group.count and max_batch_size; mode optuna also "
            "max_queue_delay_microseconds, mode brute also preferred_batch_size",
        )
    if mode is ModelAnalyzerMode.BRUTE and offer.combinations > MOST_COMBINATIONS:
        raise SpecError(
            f"search.mode: brute lists {offer.combinations} configs of this space, "
            f"more than {MOST_COMBINATIONS}",
            "narrow the space, or take mode quick or optuna",
        )
