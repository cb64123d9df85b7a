"""What a draft says of a model with several versions."""

from __future__ import annotations

from collections.abc import Iterator


def variants(versions: tuple[int, ...]) -> Iterator[str]:
    """A comment that makes the versions values of the search; nothing for a single one."""
    if len(versions) > 1:
        yield "# Variants, such as half precision, may be a value: versions that are served, their"
        yield "# answers compared within confirm.tolerance, or of an output confirm.tolerances:"
        listed = ", ".join(f"[{number}]" for number in versions)
        yield f"#   version_policy.specific.versions: {{choice: [{listed}]}}"
