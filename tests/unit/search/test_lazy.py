from __future__ import annotations

import importlib
import sys

MODULES = [
    "tuner.space.build",
    "tuner.space.draft",
    "tuner.search.budget",
    "tuner.search.strategies.designs",
    "tuner.search.strategies.twin",
    "tuner.search.incumbent",
    "tuner.search.strategies.registry",
    "tuner.search.optuna_trial",
    "tuner.search.searcher",
    "tuner.search.strategy",
    "tuner.search.study.record",
]


def test_importing_the_search_does_not_import_optuna_or_triton() -> None:
    heavy = ("optuna", "tritonclient", "sqlalchemy")
    kept = {n: m for n, m in sys.modules.items() if n.split(".")[0] in (*heavy, "tuner")}
    for name in kept:
        del sys.modules[name]
    try:
        for name in MODULES:
            importlib.import_module(name)
        assert [n for n in sys.modules if n.split(".")[0] in heavy] == []
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] in (*heavy, "tuner")]:
            del sys.modules[name]
        sys.modules.update(kept)
