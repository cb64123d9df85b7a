"""Every rule of lint by its id, what it is about and its source; and what lint finds by one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tuner.errors import SpecError
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.tree import locate
from tuner.spec.mistakes import did_you_mean

_CORE = "Triton core, model_config_utils.cc"
_TRIED = "tried on tritonserver 2.51 (24.10)"
_PROTO = "model_config.proto"
_BACKENDS = "the backends' own documentation"
_SOURCES = "the backends' sources"
_PYTHON = "Triton's Python backend, README"
_SILENCE = re.compile(r"\btune: ignore ([a-z-]+(?:[ ,]+[a-z-]+)*)")


@dataclass(frozen=True)
class RuleText:
    """``weights``: it is about files that are often not kept in git."""

    about: str
    source: str
    weights: bool = False


RULES: dict[str, RuleText] = {
    "encoding": RuleText("config.pbtxt has text that is not UTF-8.", _TRIED),
    "config-file": RuleText(
        "config.pbtxt is no readable file, or misspelt, or its write was cut short.",
        "the file system",
    ),
    "empty-folder": RuleText("A folder of the repository has nothing in it.", "server#3744"),
    "syntax": RuleText("config.pbtxt is not a ModelConfig in protobuf's text format.", _TRIED),
    "newer-field": RuleText("A field that the installed tritonclient does not know.", _PROTO),
    "model-metrics": RuleText("A metric_control lacks something.", _CORE),
    "no-backend": RuleText("Nothing says which backend loads the model.", _CORE),
    "backend": RuleText("A platform, runtime or parameter that its backend refuses.", _CORE),
    "name-mismatch": RuleText("The config's name differs from its directory's.", _CORE),
    "version-directory": RuleText("A model has no version directory.", _TRIED, weights=True),
    "version-policy": RuleText("version_policy names a version that does not exist.", _CORE, True),
    "model-file": RuleText("A version lacks the file that the backend loads.", _BACKENDS, True),
    "label-file": RuleText("An output's label file does not exist.", "core, model.cc"),
    "sample-file": RuleText("A file of values is missing or of another size.", _TRIED, True),
    "execution-env": RuleText("A Python model's environment does not exist.", _TRIED, True),
    "max-batch-size": RuleText("max_batch_size is below 0.", _CORE),
    "tensor": RuleText("An input or output is missing, incomplete or has a dim of 0.", _CORE),
    "tensor-format": RuleText("A format that does not fit the backend or the dims.", _CORE),
    "warmup": RuleText("A sample that Triton skips, or that does not fit the model.", _TRIED),
    "reshape": RuleText("A reshape does not have the elements of its dims.", _CORE),
    "control-input": RuleText("A control tensor of sequences is given twice or badly.", _CORE),
    "batch-input": RuleText("Source, type or target of a batch_input or batch_output.", _TRIED),
    "no-version": RuleText("A version_policy that serves no version.", _TRIED),
    "preferred-batch-size": RuleText("A preferred size above max_batch_size, or below 1.", _CORE),
    "priority-level": RuleText("A priority outside 1 to priority_levels.", _CORE),
    "preserve-ordering": RuleText("preserve_ordering with priorities or delays.", _CORE),
    "slot-utilization": RuleText("minimum_slot_utilization is not between 0 and 1.", _CORE),
    "instance-gpus": RuleText("GPUs for instances that use none, or a negative GPU.", _CORE),
    "instance-profile": RuleText("Optimization profiles without TensorRT, or no number.", _CORE),
    "instance-count": RuleText("An instance count below 0.", _TRIED),
    "response-cache": RuleText("A cache with sequences or a decoupled model, or step.", _CORE),
    "ensemble": RuleText("An ensemble's own fields, or the flow of its tensors.", _CORE),
    "ensemble-step": RuleText(
        "A step does not fit its model or others.", "core, ensemble_utils.cc"
    ),
    "ensemble-step-model": RuleText("A step's model does not exist.", "core, ensemble_utils.cc"),
    "ensemble-cycle": RuleText("An ensemble leads back to itself.", "core, ensemble_utils.cc"),
    "batcher-without-batches": RuleText("dynamic_batching with max_batch_size 0 or 1.", _TRIED),
    "completed": RuleText("A field that the server overrides.", _TRIED),
    "cache-flag": RuleText("A cache that the model or the server does not turn on.", _TRIED),
    "host-policy": RuleText("A host policy that only the server's arguments define.", _PROTO),
    "rate-limit": RuleText("rate_limiter without --rate-limit.", _PROTO),
    "timeout-override": RuleText("allow_timeout_override without a timeout.", "PolicyQueue"),
    "sequence-delay": RuleText("A sequence delay that has no effect.", _PROTO),
    "preferred-sizes-set": RuleText("preferred_batch_size where nothing needs it.", "batcher.md"),
    "no-queue-timeout": RuleText("A long delay, perhaps meant as a timeout.", "batcher.md"),
    "queue-policy-idle": RuleText("A queue policy: requests wait beside idle instances.", _TRIED),
    "timeout-beside-delay": RuleText("A queue timeout that may slow the batcher.", "server#8870"),
    "timeout-within-delay": RuleText("Requests rejected while they wait for a batch.", _TRIED),
    "full-queue-in-step": RuleText("max_queue_size in a step of an ensemble.", "core#466"),
    "stateless-sequences": RuleText("Sequence batching of a model without state.", _PROTO),
    "unequal-shapes": RuleText("An input whose lengths keep requests apart.", "ragged_batching.md"),
    "batch-in-dims": RuleText("The dims of a tensor may hold the batch once more.", _PROTO),
    "fixed-batch": RuleText("Every tensor begins with 1: a batch that the file fixes.", _PROTO),
    "short-queue": RuleText("A queue that is shorter than the batches it waits for.", _PROTO),
    "padded-batches": RuleText("Each call is padded to max_batch_size.", _BACKENDS),
    "batches-of-one": RuleText("A preferred size of 1, beside a delay.", _TRIED),
    "placeholder": RuleText("A parameter that still is a template's placeholder.", _TRIED),
    "mixed-kinds": RuleText("CPU instances beside GPU instances.", _TRIED),
    "hidden-batcher": RuleText("A backend that turns on dynamic batching by itself.", _BACKENDS),
    "tensorflow": RuleText("The TensorFlow backend, last in release 25.02.", "server#8068"),
    "spanning-instances": RuleText("Instances that do not fit lists of GPUs.", _SOURCES),
    "continuous-batching": RuleText("dynamic_batching of an engine that batches.", _BACKENDS),
    "unread-parameter": RuleText("A parameter that the backend does not read.", _SOURCES),
    "parameter-value": RuleText("A parameter's value that the backend misreads.", _SOURCES),
    "graph-level": RuleText("ONNX Runtime without all of its graph optimizations.", _TRIED),
    "cached-parameters": RuleText("A cached model that reads what the cache ignores.", _TRIED),
    "python-name": RuleText("A Python model's name that newer servers refuse.", _SOURCES),
    "python-syntax": RuleText("model.py does not compile.", "Python"),
    "auto-complete": RuleText("auto_complete_config contradicts config.pbtxt.", _PYTHON),
    "python-model": RuleText("model.py has no TritonPythonModel with execute.", _PYTHON),
    "called-model": RuleText("model.py calls a model that does not exist.", _PYTHON),
    "network-call": RuleText("model.py calls a Triton server over the network.", _PYTHON),
    "unnamed-call": RuleText("model.py calls a model by a name made at run time.", _PYTHON),
    "python-unread": RuleText("model.py is too long or too deeply nested to check.", "Python"),
    "per-request-loop": RuleText("execute works on one request at a time.", _PYTHON),
    "cancellation": RuleText("An endless loop that never checks whether to go on.", _PYTHON),
    "sleep": RuleText("execute sleeps, which blocks its instance.", _PYTHON),
    "thread-pool-size": RuleText("A thread pool without a fixed size.", "Python"),
    "thread-count": RuleText("Instances whose runtime makes a thread for each CPU.", _TRIED),
    "kind-cpu-on-gpu": RuleText("KIND_CPU for a model.py that takes a GPU.", _PYTHON),
    "thread-per-request": RuleText("Threads started for each call.", "Python"),
}


def refuse_unknown(rules: Iterable[str]) -> None:
    """Raises:
    SpecError: One of ``rules`` is none.
    """
    for rule in rules:
        if rule not in RULES:
            hint = did_you_mean(rule, RULES) or "docs/lint.md lists the rules"
            raise SpecError(f"there is no rule {rule!r}", hint)


def silenced_in(text: str) -> frozenset[str]:
    """Rules that comments switch off: ``# tune: ignore RULE, RULE``."""
    comments = (line.partition("#")[2] for line in text.split("\n"))
    names = (re.split(r"[ ,]+", m[1]) for comment in comments for m in _SILENCE.finditer(comment))
    return frozenset(rule for rules in names for rule in rules)


class Severity(Enum):
    """ERROR: the model does not load, or not as written. WARNING: it loads and will disappoint.
    NOTE: worth knowing, may be meant.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class LintFinding:
    """What is wrong at a place; without a column, the line."""

    file: Path
    line: int
    column: int | None
    severity: Severity
    rule: str
    message: str
    hint: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" + ("" if self.column is None else f":{self.column}")


def error_at(files: ModelFiles, path: str, rule: str, message: str, hint: str) -> LintFinding:
    line, column = locate(files.text, path)
    return LintFinding(files.path, line, column, Severity.ERROR, rule, message, hint)
