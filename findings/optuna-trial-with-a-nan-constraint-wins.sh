#!/usr/bin/env bash
# Optuna 5.0.0: where a constraint is NaN (an SLO that was not measured), `tell` raises ValueError,
# and the trial is complete all the same, and the best one.
# Seen: ValueError; state COMPLETE; best_trial is that trial.
. "$(dirname "$0")/common.sh"
install optuna==5.0.0
"$tmp/venv/bin/python" - <<'PYTHON' || fail "it is not the best trial, or nothing was raised"
import math
import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
sampler = optuna.samplers.TPESampler(
    seed=1, constraints_func=lambda trial: (trial.user_attrs["over_ms"],)
)
study = optuna.create_study(direction="maximize", sampler=sampler)
raised = []
for goodput, over_ms in ((300.0, -20.0), (900.0, math.nan)):
    trial = study.ask()
    trial.suggest_int("instances", 1, 4)
    trial.set_user_attr("over_ms", over_ms)
    try:
        study.tell(trial, goodput)
    except ValueError as error:
        raised.append(str(error))
best = study.best_trial
print("raised:", raised)
print("best:", best.value, best.state.name, best.user_attrs)
assert len(raised) == 1 and best.value == 900.0 and best.state.name == "COMPLETE"
PYTHON
echo "AS SEEN: a trial whose constraint is NaN is complete and best"
