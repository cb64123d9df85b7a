"""Optuna, imported at its first use: that takes a second, and most commands need none of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Deferred:
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("optuna"), name)


if TYPE_CHECKING:
    import optuna as optuna  # noqa: PLC0414
else:
    optuna = _Deferred()


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Only Optuna's errors are logged; other warnings than its own pass."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
