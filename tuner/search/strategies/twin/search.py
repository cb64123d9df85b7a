"""The search that asks the scheduler's twin where to look.

A few designed trials, a twin fitted to them, and then the candidate with the largest expected
improvement over the incumbent (Jones, Schonlau and Welch 1998, equation 15): by the twin's
simulation, corrected by what it got wrong so far, with an error bar from both. Where the twin
does not fit, a Gaussian process alone goes on instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from tuner.score.aim import NOTHING, Aim
from tuner.score.load_plan import load_plan
from tuner.score.trial import Trial
from tuner.search.incumbent import leaders
from tuner.search.strategies.designs import designs
from tuner.search.strategies.features import Features
from tuner.search.strategies.gaussian import Told
from tuner.search.strategies.gp import DECIMALS, GaussianStrategy, own_error, predicted, surprises
from tuner.search.strategies.pool import Pool
from tuner.search.strategies.refusals import Refusals
from tuner.search.strategies.twin.fitting import Fitting, in_words
from tuner.search.strategies.twin.residuals import Correction, Residual
from tuner.search.strategy import Enough, Proposal, Strategy, chance
from tuner.space.candidate import CACHE, Candidate
from tuner.space.space import Space
from tuner.spec.metrics import GPU_MEMORY
from tuner.spec.model import Spec
from tuner.twin.costs import Costs
from tuner.twin.fit import Twin
from tuner.twin.model import Unmodelled
from tuner.twin.system import Network
from tuner.twin.worth import Glances, looked_at

Vector = npt.NDArray[np.float64]

#: Of all candidates considered, this many are simulated to their capacity ...
_FINALISTS = 24
#: ... and of these, this many with resampled fits, this many fits each.
_DOUBTED, _REFITS = 6, 3
#: Forbidden proposals of the fallback that are skipped before one is tried anyway.
_MOST_REFUSED = 30
#: Good trials whose neighbours are looked at.
_GOOD = 4
#: Trials that the model proposed before the search may end by itself.
_LEAST_PROPOSED = 3


@dataclass(frozen=True)
class Prospect:
    """A candidate as the model sees it: worth (a logarithm), its standard deviation, and gain."""

    candidate: Candidate
    worth: float
    deviation: float
    gain: float


@dataclass
class TwinStrategy:
    """Designed trials, then expected improvement by the twin.

    What it remembers between proposals (fits) follows from the history alone.

    Attributes:
        stop_below: Expected gain, as a share, below which another trial is not worth it.
        trials: The most that the run may measure.
        fallback: Goes on where the twin does not fit.
    """

    at_once: ClassVar[int] = 1

    space: Space
    aim: Aim
    fitting: Fitting
    fallback: Strategy
    seed: int
    stop_below: float
    trials: int
    _designs: tuple[Candidate, ...] = field(init=False)
    _pool: Pool = field(init=False)
    _features: Features = field(init=False)
    _networks: dict[str, Network | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._designs = designs(self.space)
        self._pool = Pool(self.space)
        self._features = Features(self.space)

    @classmethod
    def of(cls, space: Space, spec: Spec) -> Self:
        plan = load_plan(spec.workload, spec.objective, spec.slos, spec.shares)
        search = spec.search
        return cls(
            space,
            Aim(spec.objective, spec.slos, plan),
            Fitting.of(space, spec),
            GaussianStrategy.of(space, spec),
            search.seed,
            float(search.stop_below),
            spec.budget.trials,
        )

    @property
    def _designed(self) -> int:
        """How many trials the first fit is to: the designed ones and the current config."""
        return len(self._designs) + 1

    @property
    def first_guess(self) -> Candidate | None:
        """The design that is likeliest to be good, unless the current config is the only trial."""
        return next(iter(self._designs), None) if self.trials > 1 else None

    def outlook(self, history: Sequence[Trial]) -> str | None:
        """The first fit takes a while; the later ones begin where it ended."""
        first = self._designed
        taken = {t.candidate.key for t in history}
        if len(history) != first or not self._modelled or self._exhausted(taken):
            return None
        return f"fitting the twin, a simulation of Triton's scheduler, to {first} trials"

    @property
    def _modelled(self) -> bool:
        """Whether the twin can tell candidates apart by the objective."""
        return self.aim.objective.metric is not GPU_MEMORY

    def propose(
        self, number: int, history: Sequence[Trial], taken: Set[str]
    ) -> Proposal | Enough | None:
        left = [c for c in self._designs if c.key not in taken]
        if left and number <= len(self._designs):
            return Proposal(left[0], informative=True)
        if self._exhausted(taken):
            return None  # a fit would take seconds and choose from nothing
        first = self._designed
        fitted, note = self._fitted(number, history, first)
        if isinstance(fitted, Unmodelled):
            return _with_note(self._fallen_back(number, history, taken), note)
        prospects = self._prospects(fitted, number, history, taken)
        if not prospects:
            return _with_note(self._fallen_back(number, history, taken), note)
        best = prospects[0]
        late = number >= first + _LEAST_PROPOSED
        if late and best.gain < self.stop_below and self._leaders(history):
            return Enough(best.gain)
        expected = predicted(self.aim, best.worth, best.deviation)
        return Proposal(best.candidate, predicted=expected, note=note)

    def _exhausted(self, taken: Set[str]) -> bool:
        """Whether these are all configs of the space, in which the current one need not lie."""
        size, current = self.space.size(), self.space.current
        inside = self.space.contains(self.space.canonical(current))
        return size.exact and len(taken if inside else taken - {current.key}) >= size.count

    def _fitted(
        self, number: int, history: Sequence[Trial], first: int
    ) -> tuple[Twin | Unmodelled, str | None]:
        """The twin, and what to report about it."""
        if not self._modelled:
            return _NOT_SIMULATED, in_words(_NOT_SIMULATED) if number == first else None
        return self.fitting.fitted(history, first), self.fitting.news(history, first)

    def _fallen_back(
        self, number: int, history: Sequence[Trial], taken: Set[str]
    ) -> Proposal | Enough | None:
        """A proposal of the fallback that failed trials do not forbid, where it finds one."""
        refusals, known = Refusals(history, self.aim.slos), set(taken)
        found = first = self.fallback.propose(number, history, known)
        for _ in range(_MOST_REFUSED):
            if not isinstance(found, Proposal):
                break
            if not refusals.forbids(found.candidate):
                return found
            known.add(found.candidate.key)
            found = self.fallback.propose(number, history, known)
        return first

    def _prospects(
        self, twin: Twin, number: int, history: Sequence[Trial], taken: Set[str]
    ) -> list[Prospect]:
        """The most promising candidates, best first."""
        refusals = Refusals(history, self.aim.slos)
        leaders = self._leaders(history)
        good = [t.candidate for t in leaders[:_GOOD]]
        drawn = self._pool.draw(chance(self.seed, number), good, taken)
        known = [
            (c, s)
            for c in drawn
            if not refusals.forbids(c) and (s := self._network(twin, c)) is not None
        ]
        if not known:
            return []
        level = leaders[0].sustained_level if leaders else None
        with ThreadPoolExecutor() as threads:
            look = _Look(twin, self.aim, level or self._lowest(history), threads)
            own = own_error(surprises(self.aim, history))
            correction = Correction(self._features, self._residuals(look, history), own)
            rough = look.glances([s for _, s in known])
            mean, deviation = correction.of([c for c, _ in known])
            order = np.argsort(-(rough + mean + deviation))[:_FINALISTS]
            finalists = [known[i] for i in order]
            # Where nothing meets the SLOs yet, the candidate that comes nearest is tried next.
            simulated = look.worths([s for _, s in finalists]) if leaders else list(rough[order])
            best = None if not leaders else self._believed(look, correction, leaders[0])
            prospects = [
                self._prospect(c, w + mean[i], float(deviation[i]), best)
                for i, (c, _), w in zip(order, finalists, simulated, strict=True)
            ]
            chosen = sorted(range(len(prospects)), key=lambda i: -prospects[i].gain)[:_DOUBTED]
            doubts = look.doubts([finalists[i][1] for i in chosen], [simulated[i] for i in chosen])
        doubted = [
            self._prospect(p.candidate, p.worth, math.hypot(p.deviation, d), best)
            for p, d in zip((prospects[i] for i in chosen), doubts, strict=True)
        ]
        return sorted(doubted, key=lambda p: (-_told_apart(p.gain), p.candidate.key))

    def _residuals(self, look: _Look, history: Sequence[Trial]) -> list[Residual]:
        """Of measured trials the error; of a lost race only by how much the twin is too high."""
        informative = self.fitting.informative(history)
        known = [(t, s) for t in informative if (s := self._network(look.twin, t.candidate))]
        simulated = look.worths([s for _, s in known])
        found = []
        for (trial, _), worth in zip(known, simulated, strict=True):
            measured, bound = self.aim.measured(trial), self.aim.bound(trial)
            if worth <= NOTHING:
                continue
            if measured is not None:
                found.append(Residual(trial.candidate, measured - worth))
            elif bound is not None:
                found.append(Residual(trial.candidate, bound - worth, Told.AT_MOST))
        return found

    def _believed(self, look: _Look, correction: Correction, leader: Trial) -> float | None:
        """What the model believes of the best trial, which was lucky to look the best.

        Expected improvement under noise is over that (Letham, Karrer, Ottoni and Bakshy 2019).
        """
        measured, network = (
            self.aim.measured(leader),
            self._network(look.twin, leader.candidate),
        )
        if measured is None or network is None:
            return measured
        worth = look.worths([network])[0]
        if worth <= NOTHING:
            return measured
        return worth + correction.of_measured(Residual(leader.candidate, measured - worth))

    def _prospect(
        self, candidate: Candidate, worth: float, deviation: float, best: float | None
    ) -> Prospect:
        gain = expected_gain(worth - best, deviation) if best is not None else math.exp(worth)
        return Prospect(candidate, worth, deviation, gain)

    def _network(self, twin: Twin, candidate: Candidate) -> Network | None:
        """As simulated; a cache whose hits cannot be predicted is left to the correction."""
        setting = twin.setting
        key = f"{candidate.key}/{setting.response_bytes}/{setting.devices}"
        if key not in self._networks:
            found = setting.network(candidate)
            if isinstance(found, Unmodelled) and candidate.cache_bytes is not None:
                found = setting.network(Candidate({**candidate.values, CACHE: None}))
            self._networks[key] = None if isinstance(found, Unmodelled) else found
        return self._networks[key]

    def _leaders(self, history: Sequence[Trial]) -> list[Trial]:
        return leaders(history, self.aim.objective.goal, self.space.current)

    def _lowest(self, history: Sequence[Trial]) -> float:
        """Where to look while nothing meets the SLOs: below everything that was tried."""
        levels = [p.level for t in history for p in t.points]
        return min(levels, default=1.0)


_NOT_SIMULATED = Unmodelled("GPU memory is not simulated")


@dataclass(frozen=True)
class _Look:
    """Simulations of many candidates, on all cores: no load is on while the search thinks."""

    twin: Twin
    aim: Aim
    level: float
    threads: ThreadPoolExecutor

    def glances(self, networks: Sequence[Network]) -> Vector:
        glances = Glances.near(self.twin, self.aim, self.level)
        return np.array(list(self.threads.map(glances.worth, networks)))

    def worths(self, networks: Sequence[Network], costs: Costs | None = None) -> list[float]:
        """Under the fit, or under other ``costs``."""
        look = partial(looked_at, self.twin, costs or self.twin.costs)
        return list(self.threads.map(lambda s: look(s, self.aim, self.level), networks))

    def doubts(self, networks: Sequence[Network], worths: Sequence[float]) -> list[float]:
        """How much each worth depends on which trials the twin was fitted to.

        What all of them share is no doubt about which is best, and is taken out.
        """
        if not networks:
            return []
        refits = self.twin.refits[:_REFITS]
        table = np.array([self.worths(networks, costs) for costs in refits])
        if not table.size:
            return [0.0] * len(networks)
        off = np.clip(table - np.array(worths), -1.0, 1.0)
        off -= np.median(off, axis=1, keepdims=True)
        return [float(d) for d in np.sqrt((off**2).mean(axis=0))]


def expected_gain(ahead: float, deviation: float) -> float:
    """Expected improvement in logarithms: how much is gained on average, losses counting 0."""
    if deviation <= 0.0:
        return max(ahead, 0.0)
    z = ahead / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return ahead * 0.5 * math.erfc(-z / math.sqrt(2.0)) + deviation * density


def _told_apart(gain: float) -> float:
    """Its logarithm, the same for gains that only rounding makes different."""
    return round(math.log(gain), DECIMALS) if gain > 0.0 else -math.inf


def _with_note(proposal: Proposal | Enough | None, note: str | None) -> Proposal | Enough | None:
    if note is None or not isinstance(proposal, Proposal):
        return proposal
    return replace(proposal, note=note)
