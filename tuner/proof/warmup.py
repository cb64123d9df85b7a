"""Whether a `model_warmup` would avoid the slow first calls of a run's config."""

from __future__ import annotations

from tuner.errors import TrialError
from tuner.meter.session import Session
from tuner.modelconfig.backends import is_ensemble
from tuner.prepare.job import draw_up
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status


def probe_warm_up(session: Session, verdict: RunDecision) -> RunDecision:
    """The verdict with the effect of a `model_warmup`; the last use of a run's bench.

    Nothing is tried on a server that the run did not start: samples that a model refuses might end
    that server.
    """
    side = verdict.winner or verdict.baseline
    if (
        side is None
        or not session.spec.server.managed
        or verdict.status not in (Status.IMPROVED, Status.KEPT)
    ):
        return verdict
    models = session.job.served.models
    texts = {
        models[label].name: config.config_after
        for label, config in draw_up(session.job, side.candidate).configs.items()
        if not is_ensemble(models[label].base.file)  # its steps would have to be warmed up
    }
    try:
        warm_up = session.bench.warm_up(side.candidate, texts)
    except TrialError as error:
        session.events.note(f"no model_warmup was tried: {error.message}")
        return verdict
    if warm_up is not None:
        session.events.note(warm_up.sentence)
    return verdict.model_copy(update={"warm_up": warm_up})
