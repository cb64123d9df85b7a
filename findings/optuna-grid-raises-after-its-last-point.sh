#!/usr/bin/env bash
# Optuna 5.0.0: with `GridSampler` and ask/tell, the `tell` of the last grid point raises
# RuntimeError, after it has stored the value: the sampler calls `Study.stop`, which is allowed only
# inside `optimize`.
# Seen: of four points the fourth raises; all four trials are complete.
. "$(dirname "$0")/common.sh"
install optuna==5.0.0
"$tmp/venv/bin/python" - <<'PYTHON' || fail "nothing is raised, or a trial is lost"
import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
sampler = optuna.samplers.GridSampler({"instances": [1, 2, 3, 4]}, seed=1)
study = optuna.create_study(direction="maximize", sampler=sampler)
raised = []
for number in range(4):
    trial = study.ask()
    try:
        study.tell(trial, float(trial.suggest_int("instances", 1, 4)))
    except RuntimeError as error:
        raised.append((number, str(error)))
states = [trial.state.name for trial in study.trials]
print("raised:", raised)
print("states:", states)
assert [number for number, _ in raised] == [3] and states == ["COMPLETE"] * 4
PYTHON
echo "AS SEEN: the last point of a grid raises after it is stored"
