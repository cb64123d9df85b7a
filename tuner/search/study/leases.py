"""The claims of workers that died are freed.

A worker keeps writing a new number into its open claims, their **beat**. Everybody who has the
study open marks a claim FAILED whose beat has not changed for a while, by the watcher's own clock.
Optuna's heartbeat is not used: its thread ends at the first lost connection, and it compares time
stamps in a way (`timedelta.seconds`, 3.6.1) that takes a beat written during a look for a day old.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tuner.search.optuna_trial import optuna

#: How often a worker writes a beat, and everybody looks at those of others.
BEAT_S = 15.0
#: A claim whose beat has not changed for so long is free again.
GRACE_S = 120.0
#: Attributes of a study's trial: the worker that measures it, and its beat.
WORKER, _BEAT = "worker", "beat"


class Leases:
    """A thread that writes this process's beats, and frees the claims of workers without any.

    Args:
        own: Ids of the claims that this process holds as a worker, by whatever.

    Attributes:
        freed: Whose claims this process freed, in words; whoever reports them removes them.
    """

    def __init__(
        self, storage: optuna.storages.RDBStorage, study: int, run: str, own: Mapping[str, int]
    ) -> None:
        self._storage = storage
        self._study = study
        self._run = run
        self._own = own
        self._beat = 0
        self._looked_s = 0.0
        self._seen: dict[int, tuple[Any, float]] = {}  # beat by number, and since when it is so
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self.freed: list[str] = []

    def start(self) -> None:
        # Optuna logs lost connections as warnings, and `quiet_optuna` is not made for two threads.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(timeout=5.0)  # a query to a database out of reach takes longer

    def _keep(self) -> None:
        while not self._ended.wait(BEAT_S):
            # A lost connection, or what strangers wrote, is reported by who needs the study.
            with suppress(Exception):
                self.look(time.monotonic())
        self._storage.remove_session()

    def look(self, now_s: float) -> None:
        """Writes the beats, and frees the claims whose beat has stood still for too long."""
        self._beat += 1
        for claim in list(self._own.values()):
            with suppress(RuntimeError):  # it has ended
                self._storage.set_trial_user_attr(claim, _BEAT, self._beat)
        running = (optuna.trial.TrialState.RUNNING,)
        claims = self._storage.get_all_trials(self._study, deepcopy=False, states=running)
        before = self._seen if now_s - self._looked_s <= GRACE_S / 2 else {}
        self._looked_s, self._seen = now_s, {}
        for claim in claims:
            if claim.user_attrs.get("run") != self._run or WORKER not in claim.user_attrs:
                continue
            beat = claim.user_attrs.get(_BEAT)
            known, since_s = before.get(claim.number, (beat, now_s))
            self._seen[claim.number] = beat, since_s if known == beat else now_s
            if known == beat and now_s - since_s > GRACE_S:
                self._free(claim)

    def _free(self, claim: optuna.trial.FrozenTrial) -> None:
        number = self._storage.get_trial_id_from_study_id_trial_number(self._study, claim.number)
        with suppress(RuntimeError):  # somebody else has freed it, or it was handed in after all
            self._storage.set_trial_state_values(number, optuna.trial.TrialState.FAIL)
            by = claim.user_attrs[WORKER]
            known = by if isinstance(by, dict) else {}  # anybody may have written it
            self.freed.append(f"{known.get('host')}, GPUs {known.get('gpus')}")
