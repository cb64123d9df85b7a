#!/usr/bin/env bash
# Optuna 5.0.0: after a range of a study is widened, `TPESampler(multivariate=True, group=True)`
# draws no value outside the first range, and nothing warns. TPE without groups draws from all of it.
# Seen: of 40 values of [1, 8] in a study that began with [1, 4], none is above 4 with groups, all are
# without.
. "$(dirname "$0")/common.sh"
install optuna==5.0.0
"$tmp/venv/bin/python" - "$tmp" <<'PYTHON' || fail "group TPE leaves the first range, or plain TPE does not"
import sys
import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
above = {}
for grouped in (True, False):
    storage = f"sqlite:///{sys.argv[1]}/{grouped}.db"
    sampler = optuna.samplers.TPESampler(seed=1, multivariate=grouped, group=grouped)
    study = optuna.create_study(
        storage=storage, direction="maximize", sampler=sampler, study_name="s"
    )
    for highest, count in ((4, 20), (8, 40)):
        values = []
        for _ in range(count):
            trial = study.ask()
            values.append(trial.suggest_int("instances", 1, highest))
            study.tell(trial, float(values[-1]))
    above[grouped] = sum(value > 4 for value in values)
    print("with" if grouped else "without", "groups: values above 4:", above[grouped], "of 40")
assert above[True] == 0 < above[False]
PYTHON
echo "AS SEEN: group TPE stays in the first range"
