"""Input files for perf_analyzer's ``--input-data``.

Contents are base64 of Triton's binary form: exact for every datatype, and a quarter of the size of
decimal floats.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from tuner.load.traffic.wire import Tensors


def write_inputs(inferences: Sequence[Tensors], path: Path) -> None:
    """Writes inferences in their order; each distinct inference is encoded only once."""
    encoded = {id(inference): _entry(inference) for inference in inferences}
    with path.open("wb") as file:
        file.write(b'{"data":[')
        for place, inference in enumerate(inferences):
            file.write(b"," * bool(place))
            file.write(encoded[id(inference)])
        file.write(b"]}")


def _entry(inference: Tensors) -> bytes:
    values = {
        name: {"b64": base64.b64encode(content.raw).decode(), "shape": content.shape}
        for name, content in inference.items()
    }
    return json.dumps(values, separators=(",", ":")).encode()
