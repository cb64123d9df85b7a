"""The model's config judged alone, before a space over it is gone through."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tuner.errors import SpecError
from tuner.modelconfig.rules import Violation
from tuner.space.space import Space

#: Enough to meet any value that mends the config, unless it is one of very many.
_DRAWS = 200


def refuse_broken(space: Space, place: Callable[[str], str] = str) -> None:
    """Refuses a config that breaks a rule of Triton's, and goes on to whatever the space tries.

    Args:
        space: Of the model.
        place: Where a field of the model's config stands, as ``file:line:column: path``.

    Raises:
        SpecError: Each rule that is broken, one a line.
    """
    lasting = space.violations(space.current)
    rng = random.Random(0)  # noqa: S311
    for _ in range(_DRAWS):
        if not lasting:
            return
        candidate = space.draw(rng)
        if candidate is not None:
            still = space.violations(candidate)
            lasting = [violation for violation in lasting if violation in still]
    if lasting:
        raise broken(lasting, place)


def broken(violations: Sequence[Violation], place: Callable[[str], str] = str) -> SpecError:
    """What is wrong with a model's config, with the place of each mistake."""
    lines = "\n".join(f"{place(found.path)}: {found.message}" for found in violations)
    hint = next((found.hint for found in violations if found.hint), "")
    advice = f"mend the model's config first{f': {hint}' if hint else ''}"
    return SpecError(lines, advice)
