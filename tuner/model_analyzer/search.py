"""Model Analyzer's search over one of our spaces, replayed from what was measured.

Its quick search knows instances and max_batch_size; its Optuna search delays as well, its brute
search also preferred sizes. It varies one model: of several the first of which it can vary
something. Whatever else the space holds stays as in the current config.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import SpecError
from tuner.model_analyzer.generators import Generators, SearchResult, SweepValues
from tuner.modelconfig.path import get
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import Knob, Parameter, RangeParameter, sizes_in
from tuner.space.space import Space
from tuner.spec.model import ModelAnalyzerMode
from tuner.spec.paths import DELAY, MAX_BATCH_SIZE, PREFERRED

#: The brute search makes all its configs before the first one is measured.
MOST_COMBINATIONS = 2000
#: A search that has asked this often is repeating itself.
MOST_MESSAGES = 5000
#: Model Analyzer divides by what was measured.
LEAST_VALUE = 1e-9


@dataclass(frozen=True)
class RequestedConfig:
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

    def next(self, results: Mapping[str, SearchResult | None]) -> RequestedConfig | None:
        """The first config it asks for that has no result.

        Args:
            results: By key of the candidate; None means a failed trial. Until the current
                config has one, it is taken as of value 1 and within the SLOs.

        Returns:
            None when its search is over.
        """
        current = self._space.canonical(self._space.current).key
        known = {current: SearchResult(1.0), **results}
        if known[current] is None and self._mode is ModelAnalyzerMode.OPTUNA:
            return None  # it gives up when its default config has no measurement
        seen = {current}
        repeated = 0
        known_results: list[SearchResult | None] = []
        for index, message in enumerate(self._generators.messages(known_results)):
            if index == 0:
                known_results.append(_above_zero(known[current]))
                continue
            candidate = nearest(self._space, message)
            if candidate is None or self._space.violations(candidate):
                known_results.append(None)
            elif candidate.key not in known:
                return RequestedConfig(candidate, repeated)
            else:
                repeated = repeated + 1 if candidate.key in seen else 0
                seen.add(candidate.key)
                known_results.append(_above_zero(known[candidate.key]))
            if index > MOST_MESSAGES:
                break
        return None


def _above_zero(result: SearchResult | None) -> SearchResult | None:
    return (
        None if result is None else SearchResult(max(result.value, LEAST_VALUE), result.violation)
    )


def _refuse(space: Space, mode: ModelAnalyzerMode, offer: SweepValues) -> None:
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


#: Values of a range that has to be listed, as many as the grid search takes.
POINTS = 8

_INSTANCES = re.compile(r"instance_group(\[0\])?\.count")
_BATCHER = re.compile(r"dynamic_batching(\..+)?")


def offered(space: Space) -> SweepValues:
    """What the space lets Model Analyzer vary; ranges of delays as `POINTS` values."""
    owner = varied_model(space)
    named = {p.path: p for p in space.parameters if p.knob.owner == owner}
    instances = next((p for path, p in named.items() if _INSTANCES.fullmatch(path)), None)
    groups = space.served.models[owner].base.completed.instance_group
    fixed = max(1, groups[0].count) if groups else 1
    return SweepValues(
        instances=(fixed,) if instances is None else _numbers(instances),
        max_batch_sizes=_numbers(named[MAX_BATCH_SIZE]) if MAX_BATCH_SIZE in named else (),
        delays_us=_numbers(named[DELAY]) if DELAY in named else (),
        preferred=tuple(map(sizes_in, named[PREFERRED])) if PREFERRED in named else (),
    )


def varied_model(space: Space) -> str:
    """Label of the model that is varied; where none can be, of the first that gets requests."""
    owners = (p.knob.owner for p in space.parameters if varied(p.path))
    return next(owners, space.targets[0])


def varied(path: str) -> bool:
    return path == MAX_BATCH_SIZE or bool(_INSTANCES.fullmatch(path) or _BATCHER.fullmatch(path))


def nearest(space: Space, message: Any) -> Candidate | None:
    """The candidate nearest to a ModelConfig message that Model Analyzer wants measured.

    Numbers are near by ratio, preferred sizes by the sizes that they share. None when the space
    has no candidate with its max_batch_size at all.
    """
    owner = varied_model(space)
    chosen: dict[Knob, FieldValue] = {}
    for parameter in space.parameters:
        narrowed = space.narrow(parameter, chosen)
        if narrowed is None:
            continue
        if not narrowed.count:
            return None
        path, knob = parameter.path, parameter.knob
        is_varied = knob.owner == owner and varied(path)
        wanted = get(message, path) if is_varied else space.current.values.get(knob)
        chosen[knob] = _closest(narrowed, wanted)
    candidate = space.candidate(chosen)
    return candidate if space.contains(candidate) else None


def _numbers(parameter: Parameter) -> tuple[int, ...]:
    """The values, or some of a long range; unset is 0, as Triton reads it."""
    if isinstance(parameter, RangeParameter):
        parameter = parameter.coarse(POINTS)
    return tuple(sorted({number for v in parameter if (number := _number(v)) is not None}))


def _closest(parameter: Parameter, wanted: FieldValue) -> FieldValue:
    if wanted in parameter:
        return wanted
    number = _number(wanted)
    options = list(_options(parameter, number))
    if isinstance(wanted, tuple) or any(isinstance(o, tuple) for o in options):
        return min(options, key=lambda o: len(set(sizes_in(o)) ^ set(sizes_in(wanted))))
    numeric = [(o, n) for o in options if (n := _number(o)) is not None]
    if number is None or not numeric:
        return options[0]
    return min(numeric, key=lambda pair: abs(math.log((1 + pair[1]) / (1 + number))))[0]


def _options(parameter: Parameter, wanted: int | None) -> Iterator[FieldValue]:
    """All values of a choice; of a range the special one and the one nearest to ``wanted``."""
    if not isinstance(parameter, RangeParameter):
        yield from parameter
        return
    yield from parameter.special
    low, high, step = parameter.low, parameter.high, parameter.step
    inside = min(high, max(low, wanted or 0))
    yield low + round((inside - low) / step) * step


def _number(value: FieldValue) -> int | None:
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) else None
