#!/usr/bin/env bash
# Optuna 5.0.0: a journal file that lost nothing but its last newline (an editor, a copy that was cut
# off) still opens and shows all of its trials. The next operations are then written onto the last line:
# they fail, and from then on the file cannot be read.
# Seen: 5 trials after the newline is gone; two times opened and asked: AttributeError, then
# JSONDecodeError at once, and at each further opening.
. "$(dirname "$0")/common.sh"
install optuna==5.0.0
"$tmp/venv/bin/python" - "$tmp/study.log" <<'PYTHON' || fail "the journal survives, or is refused at once"
import json
import sys
import warnings

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
path = sys.argv[1]


def opened() -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(path))
    return optuna.load_study(study_name="s", storage=storage)


study = optuna.create_study(study_name="s", storage=JournalStorage(JournalFileBackend(path)))
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
with open(path, "rb") as file:
    content = file.read()
with open(path, "wb") as file:
    file.write(content.removesuffix(b"\n"))
study = opened()
print("trials without the last newline:", len(study.trials))
assert len(study.trials) == 5
errors = []
for _ in range(3):
    try:
        opened().ask()
    except (AttributeError, json.JSONDecodeError) as error:
        errors.append(type(error).__name__)
print("opened and asked, three times:", *errors)
assert errors == ["AttributeError", "JSONDecodeError", "JSONDecodeError"]
try:
    opened()
except json.JSONDecodeError as error:
    print("opened again:", type(error).__name__)
else:
    raise AssertionError("it opens")
PYTHON
echo "AS SEEN: one newline less makes a journal unreadable"
