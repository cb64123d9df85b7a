"""A small space whose trials a run and a worker share."""

from __future__ import annotations

from builders.spaces import INSTANCES, space_of
from builders.surface import synthetic_trial

from tuner.score.trial import Trial, Worker
from tuner.search.searcher import Searcher
from tuner.search.strategy import Proposal
from tuner.search.study.record import StudyRecord
from tuner.space.candidate import Candidate
from tuner.spec.slo import Objective

SMALL = {INSTANCES: {"int": [1, 3]}, "parameters.threads": {"choice": [1, 2]}}
SPACE = space_of(SMALL)
OTHERS = [c for c in SPACE.enumerate() if c != SPACE.canonical(SPACE.current)]
ONE, TWO = OTHERS[-2:]
ELSEWHERE = Worker("box", "1")


def record_of(url: str, worker: Worker | None = None) -> StudyRecord:
    return StudyRecord(url, "m", "run-1", SPACE, Objective.goodput(), worker)


def tell(searcher: Searcher, candidate: Candidate) -> Trial:
    trial = synthetic_trial(len(searcher.history), candidate, searcher.history)
    searcher.tell(trial)
    return trial


def proposed(searcher: Searcher) -> Candidate:
    proposal = searcher.next()
    assert isinstance(proposal, Proposal)
    return proposal.candidate
