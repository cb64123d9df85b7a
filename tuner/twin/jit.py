"""Compiles the simulator's functions, and keeps what was compiled where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_F = TypeVar("_F", bound=Callable[..., object])

#: Nothing is allocated in compiled code, and counting references to its arrays at every call
#: costs more than the simulation. (Not documented by numba, so not relied upon.)
_UNCOUNTED: dict[str, Any] = {"_nrt": False}
#: No wrappers for Python and C, which take a quarter of the time to compile. (Likewise.)
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: _F) -> _F:
    """``numba.njit``, typed as the function itself, for what only compiled functions call."""
    return _compiled(function, ({**_UNCOUNTED, **_INNER}, _UNCOUNTED, {}), (False,))


def entry(function: _F) -> _F:
    """The same for what Python calls.

    The machine code, that of the functions it calls included, is kept beside the source, or in the
    user's cache directory; where neither can be written (a read-only install without a home), every
    process compiles anew. numba does not see changes in what a function calls in other files: after
    editing these modules, remove ``tuner/twin/__pycache__``.
    """
    return _compiled(function, (_UNCOUNTED, {}), (True, False))


def _compiled(function: _F, options: tuple[dict[str, Any], ...], caches: tuple[bool, ...]) -> _F:
    for more in options:
        for cache in caches:
            try:
                # nogil: several candidates are simulated at once.
                return numba.njit(cache=cache, nogil=True, error_model="numpy", **more)(function)  # type: ignore[no-any-return]
            except (KeyError, RuntimeError):  # no such option; "no locator available" for a cache
                continue
    raise AssertionError("njit without options refused a function")
