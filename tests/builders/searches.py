"""Searches over an emulated bench: a session, and a searcher that proposes a list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from builders.candidates import candidate_of, fields_of
from builders.emulated import EmulatedBench, a_session

from tuner.measurement.measurement import Arrivals
from tuner.meter.session import Session
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.trial import Trial
from tuner.search.budget import StopReason
from tuner.search.searching import search
from tuner.search.strategy import Proposal
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec

CANDIDATES = [candidate_of({"instance_group.count": n}) for n in range(1, 7)]


def served(candidate: Candidate) -> float:
    """Instances multiply the capacity."""
    count = fields_of(candidate).get("instance_group.count", 1)
    assert isinstance(count, int)
    return 100.0 * count


@dataclass
class ListedSearcher:
    """Proposes what it was given."""

    candidates: list[Candidate]
    history: list[Trial] = field(default_factory=list)
    informative: bool = False
    pending: list[Proposal] = field(default_factory=list)
    duplicates: int = 0

    @property
    def leads(self) -> list[Candidate]:
        return []

    def rank(self, leads: list[Candidate], *, by_looks: bool) -> None:
        assert leads == []

    def next(self) -> Proposal | None:
        left = self.candidates[len(self.history) + len(self.pending) :]
        return Proposal(left[0], informative=self.informative) if left else None

    @property
    def begun(self) -> list[Candidate]:
        return [*(t.candidate for t in self.history), *(p.candidate for p in self.pending)]

    def start(self, proposal: Proposal) -> None:
        self.pending.append(proposal)

    def tell(self, trial: Trial) -> None:
        self.history.append(trial)
        self.pending = [p for p in self.pending if p.candidate != trial.candidate]

    def give_up(self, candidate: Candidate) -> None:
        self.candidates.remove(candidate)
        self.pending = [p for p in self.pending if p.candidate != candidate]


def a_spec(slo: str = "p99_latency <= 40ms", **budget: Any) -> Spec:
    return Spec.model_validate(
        {
            "model": "m",
            "repository": "r",
            "slo": [slo],
            "budget": budget,
            "space": {"instance_group.count": {"int": [1, 6]}},
        }
    )


def a_search(
    bench: EmulatedBench,
    candidates: list[Candidate],
    checkpoint: Any = lambda: None,
    informative: bool = False,
    slo: str = "p99_latency <= 40ms",
    **budget: Any,
) -> tuple[Session, ListedSearcher]:
    plan = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
    session = a_session(bench, a_spec(slo, **budget), CANDIDATES[0], plan, checkpoint=checkpoint)
    return session, ListedSearcher(candidates, informative=informative)


def searched(session: Session, searcher: ListedSearcher) -> tuple[list[Trial], StopReason]:
    return search(session, searcher)  # type: ignore[arg-type]
