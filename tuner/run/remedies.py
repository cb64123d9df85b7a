"""What to do about a reason that a run gives for how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Words of a reason, and what to do; a remedy repeats what the words name.
_REMEDIES = {
    "load generator (could not keep up|can send)": "give the load generator more cores "
    "(workload.cpus, or server.mode: remote from another machine)",
    r"No module named '?([\w.]+)": r"install \1 for the Python that runs the model",
    r"unable to find backend library for backend '(\w+)": "use a tritonserver that has the backend "
    r"\1, e.g. server: {mode: docker, image: ...}",
    "no GPUs are available": "use a machine with a GPU, or KIND_CPU where the config has KIND_GPU",
    r"([^\s(]+) lies in the repository": r"say in the spec that the model calls it: calls: [\1]",
    "input was made up of": "if the model needs real requests, give some: inputs: {kind: file, "
    "file: requests.json}",
    "one request at a time takes .*: misses": "lower max_queue_delay_microseconds",
    "It changes answers": "raise confirm.tolerance if such differences do not matter",
    "time of the budget": "raise budget.time, or shorten workload.window",
}


def remedies(reasons: Iterable[str]) -> list[str]:
    """What to do about those whose cause is known, each once."""
    text = "\n".join(reasons)
    found = ((re.search(words, text), remedy) for words, remedy in _REMEDIES.items())
    return [match.expand(remedy) for match, remedy in found if match]
