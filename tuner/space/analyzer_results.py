"""Configs that Model Analyzer measured: a search begins with the best of them.

Model Analyzer's figures do not count, since they come from other loads, windows and inputs, and
perhaps from another machine: its configs are measured like any other. The formats are those of
release 1.58: a checkpoint (`N.ckpt`) with whole configs, or `metrics-model-inference.csv` with
instances and batch sizes.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from tuner.errors import SpecError
from tuner.modelconfig.path import get, with_fields
from tuner.modelconfig.schema import ModelConfig, new_config
from tuner.modelconfig.values import FieldValue
from tuner.plain import plain
from tuner.regular import read_limited
from tuner.space.build import value_in
from tuner.space.candidate import Candidate
from tuner.space.parameters import Knob
from tuner.space.space import Space
from tuner.spec.mistakes import listed
from tuner.spec.paths import (
    DELAY,
    DYNAMIC_BATCHING,
    INSTANCES,
    MAX_BATCH_SIZE,
    PREFERRED,
    is_inside,
)

#: Number of Model Analyzer's configs that are measured first.
MOST_FIRST = 3
_MOST_BYTES = 256 << 20
_HINT = (
    "give a checkpoint of Model Analyzer (checkpoints/0.ckpt), or results/metrics-model-inference."
    "csv of its export directory"
)
_RATE = "Throughput (infer/sec)"
_COLUMNS = ("Model", "Model Config Path", "Instance Group", _RATE)
#: The end of Model Analyzer's names of variants.
_VARIANT = re.compile(r"_config_(default|\d+)$")
#: ``2:GPU``, and ``2/GPU`` until 2022.
_INSTANCES = re.compile(r"(\d+)[:/](?:GPU|CPU)")


@dataclass(frozen=True)
class ReportedConfig:
    """One config in Model Analyzer's results.

    Attributes:
        name: The name of the variant.
        configs: The known fields of each config, by the model's name.
        throughput_infer_per_s: The highest measured throughput.
        satisfies: Whether that measurement met Model Analyzer's constraints; a checkpoint does not
            say.
    """

    name: str
    configs: Mapping[str, ModelConfig | Mapping[str, FieldValue]]
    throughput_infer_per_s: float
    satisfies: bool = True


@dataclass(frozen=True)
class FirstConfigs:
    """The first candidates of a search, from Model Analyzer's results.

    Attributes:
        candidates: Those that met Model Analyzer's constraints first, then by its throughput.
        count: The number of configs in the results for the models of the space.
        outside: The number of those that are outside the space.
    """

    candidates: tuple[Candidate, ...]
    count: int
    outside: int


def first_configs(results: Iterable[ReportedConfig], path: Path, space: Space) -> FirstConfigs:
    """The best configs in a space, from the results in ``path``.

    Raises:
        SpecError: No config is for a model of the space.
    """
    models = {p.knob.owner for p in space.parameters}
    reported = [r for r in results if models & r.configs.keys()]
    if not reported:
        raise SpecError(f"{path}: no results for {listed(sorted(models))}", _HINT)
    reported.sort(key=lambda r: (not r.satisfies, -r.throughput_infer_per_s))
    current = space.canonical(space.current)
    made = [_candidate(r, space) for r in reported]
    inside = dict.fromkeys(c for c in made if c is not None and c not in (current, space.current))
    return FirstConfigs(tuple(inside)[:MOST_FIRST], len(reported), made.count(None))


def read_results(path: Path) -> list[ReportedConfig]:
    """Every config of a checkpoint or a table.

    Raises:
        SpecError: The file cannot be read, or is neither.
    """
    try:
        text = read_limited(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SpecError(f"{path}: {said}", _HINT) from error
    try:
        configs = [*_of_checkpoint(json.loads(text))] if text.lstrip()[:1] == "{" else None
        configs = [*_of_table(text)] if configs is None else configs
    except json_format.ParseError as error:
        raise SpecError(f"{path}: a config in it is none: {plain(str(error))}", _HINT) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SpecError(f"{path}: not Model Analyzer's: {plain(str(error))}", _HINT) from error
    if not configs:
        raise SpecError(f"{path}: it holds no results", _HINT)
    return configs


def _of_checkpoint(state: Any) -> Iterator[ReportedConfig]:
    for variants in state["ResultManager.results"]["_results"].values():
        for name, (run, measured) in variants.items():
            configs = dict[str, ModelConfig | Mapping[str, FieldValue]]()
            for one in run["_model_run_configs"]:
                parts = one.get("_composing_config_variants") or []
                for variant in (one["_model_config_variant"], *parts):
                    message = new_config()
                    given = variant["model_config"]
                    json_format.ParseDict(given, message, ignore_unknown_fields=True)
                    configs[_VARIANT.sub("", message.name)] = message
            rates = [_throughput(measurement) for measurement in measured.values()]
            yield ReportedConfig(str(name), configs, max(rates, default=0.0))


def _throughput(measurement: Any) -> float:
    """The throughput of one measurement, of all its models together."""
    parts = measurement["_model_config_measurements"]
    tags = (dict(part["_non_gpu_data"]) for part in parts)
    return sum(float(tag["perf_throughput"]["_value"]) for tag in tags)


def _of_table(text: str) -> Iterator[ReportedConfig]:
    rows = list(csv.DictReader(io.StringIO(text)))
    if missing := [name for name in _COLUMNS if not rows or name not in rows[0]]:
        raise ValueError(f"no column {listed(missing)}")
    best = dict[str, ReportedConfig]()
    for row in rows:
        name = row["Model Config Path"]
        rate = float(row[_RATE].partition(",")[0])  # of all models together, then of each
        satisfies = (row.get("Satisfies Constraints") or "Yes") == "Yes"
        reported = ReportedConfig(name, dict(_configs_of_row(row)), rate, satisfies)
        other = best.get(name)
        if other is None or (reported.satisfies, rate) > (
            other.satisfies,
            other.throughput_infer_per_s,
        ):
            best[name] = reported
    yield from best.values()


def _configs_of_row(row: Mapping[str, str]) -> Iterator[tuple[str, dict[str, FieldValue]]]:
    """The models of a row, with what it says of the config of each.

    Several that were profiled together have their values one after the other; an ensemble's row
    names the variants of its steps after its own, and has the values of these.
    """
    variants_text, _, steps = row["Model Config Path"].partition(": ")
    variants = [part.strip() for part in (steps or variants_text).split(",")]
    names = [_VARIANT.sub("", v) for v in variants] if steps else row["Model"].split(",")
    sizes = (row.get("Max Batch Size") or "").split(",")
    groups = row["Instance Group"].split(",")
    for name, variant, group, size in zip_longest(names, variants, groups, sizes, fillvalue=""):
        fields: dict[str, FieldValue] = {}
        if count := _INSTANCES.match(group.strip()):
            fields[INSTANCES] = int(count[1])
        if size.strip().isdigit():
            fields[MAX_BATCH_SIZE] = int(size)
        if not variant.endswith("_config_default"):
            fields[DYNAMIC_BATCHING] = True  # in every config that it makes itself
        if name:
            yield name.strip(), fields


def _candidate(reported: ReportedConfig, space: Space) -> Candidate | None:
    """The config as a candidate; None where it is outside the space."""
    values: dict[Knob, FieldValue] = dict(space.values(space.current))
    for parameter in space.parameters:
        knob = parameter.knob
        if knob.owner not in reported.configs:
            continue
        config = _complete(reported.configs[knob.owner], space, knob.owner)
        if config is None:
            return None
        if is_inside(knob.path, DYNAMIC_BATCHING) and get(config, DYNAMIC_BATCHING) is None:
            values.pop(knob, None)
            continue
        value = value_in(parameter, config)
        if value not in parameter and knob.path in (DELAY, PREFERRED):
            value = next(iter(parameter))  # Model Analyzer seldom sets them
        if value not in parameter:
            return None
        values[knob] = value
    candidate = space.candidate(values)
    return candidate if space.contains(candidate) and not space.violations(candidate) else None


def _complete(
    config: ModelConfig | Mapping[str, FieldValue], space: Space, model: str
) -> ModelConfig | None:
    if not isinstance(config, Mapping):
        return config
    base, fields = space.served.models[model].base.completed, dict(config)
    if not base.max_batch_size:
        fields = {path: v for path, v in fields.items() if path == INSTANCES}
    try:
        return with_fields(base, fields)
    except SpecError:
        return None
