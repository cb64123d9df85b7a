"""What a model or a stream is called in texts: one without a name in the spec needs none."""

from __future__ import annotations


def labelled(label: str, text: str) -> str:
    """``tiny-bert: instances 2``; the text alone where the label is empty."""
    return f"{label}: {text}" if label else text
