"""Rules for the server of a spec: its mode, arguments and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.hiding import HIDDEN
from tuner.spec.fields import known
from tuner.spec.mistakes import Finding, listed
from tuner.spec.model import Spec, is_given
from tuner.spec.paths import SEVERAL_REPOSITORIES
from tuner.spec.rules import applied
from tuner.spec.server import MODES, is_reserved_argument
from tuner.spec.workload import CacheState, SharedMemory


def check_fields_of_mode(spec: Spec) -> Iterator[Finding]:
    """Fields are those of the server's mode."""
    mode = MODES[spec.server.mode]
    for name in dict.fromkeys(name for facts in MODES.values() for name in facts.fields):
        if name not in mode.fields:
            yield from applied(_check_field_of_mode, spec, name)


def _check_field_of_mode(spec: Spec, name: str) -> Iterator[Finding]:
    if is_given(spec.server, name):
        allowed = " and ".join(m.value for m, facts in MODES.items() if name in facts.fields)
        text = f"is for mode {allowed}, not {spec.server.mode.value}"
        yield Finding(("server", name), text, key=True)


def check_needs_of_mode(spec: Spec) -> Iterator[Finding]:
    """What the mode needs is given."""
    for name in MODES[spec.server.mode].needed:
        yield from applied(_check_need_of_mode, spec, name)


def _check_need_of_mode(spec: Spec, name: str) -> Iterator[Finding]:
    mode = spec.server.mode
    if not getattr(spec.server, name):
        text = f"is missing: mode {mode.value} needs {MODES[mode].needed[name]}"
        yield Finding(("server", name), text, absent=True)


def check_shared_memory(spec: Spec) -> Iterator[Finding]:
    """Only a server on this machine can read inputs in memory, and write outputs there."""
    if spec.workload.shared_outputs and spec.workload.shared_memory is SharedMemory.NONE:
        text = "needs shared_memory: system beside it"
        yield Finding(("workload", "shared_outputs"), text, key=True)
    if spec.workload.shared_memory is not SharedMemory.NONE and not spec.server.managed:
        text = (
            "is for a server that tune starts, on this machine: use server.mode local or docker, "
            "or leave it out"
        )
        yield Finding(("workload", "shared_memory"), text, key=True)


def check_arguments(spec: Spec) -> Iterator[Finding]:
    """Arguments are tritonserver's to take."""
    before = ""
    for index, argument in known(enumerate(spec.server.args)):
        name = _flag(argument)
        where = ("server", "args", index)
        if is_reserved_argument(name):
            links = f"; {SEVERAL_REPOSITORIES}" if "--model-rep" in name else ""
            yield Finding(where, f"{name} is tune's own to set; leave it out{links}")
        elif argument.startswith("--") and " " in argument:
            better = argument.replace(" ", "=", 1)
            yield Finding(where, f"contains a space; write {better}, or two items")
        elif not argument.startswith("--") and (not before or "=" in before):
            part = before and not argument.startswith("-")  # of a value with a comma
            cure = f"put both in quotes: '{before},{argument}'" if part else "leave it out"
            yield Finding(where, f"{argument} is no argument: those begin with --; {cure}")
        before = argument if argument.startswith("--") else ""


def _flag(argument: str) -> str:
    return re.split(r"[=\s]", argument, maxsplit=1)[0]


def check_mounts(spec: Spec) -> Iterator[Finding]:
    """Paths of mounts can be used."""
    for source, target in known(spec.server.mounts.items()):
        if not (source.startswith("/") and target.startswith("/")):
            text = "both paths of a mount must start with /"
            yield Finding(("server", "mounts", source), text, key=True)


def check_variables(spec: Spec) -> Iterator[Finding]:
    """Variables have their values."""
    for name, variable in known(spec.server.environment.items()):
        if variable.given == HIDDEN:
            text = (
                f"{HIDDEN} stands for a value that was not stored: write it, or {{from: VARIABLE}}"
            )
            yield Finding(("server", "environment", name), text)


def check_loaded_models(spec: Spec) -> Iterator[Finding]:
    """What is loaded beside the models of the spec is not one of them."""
    for index, argument in known(enumerate(spec.server.args)):
        if _flag(argument) == "--load-model" and (text := _loads_tuned(spec, index)):
            yield Finding(("server", "args", index), text)


def _loads_tuned(spec: Spec, index: int) -> str:
    """Why a --load-model is wrong; empty for a model that is to run next to the tuned one."""
    args = dict(known(enumerate(spec.server.args)))
    named = (args[index].partition("=")[2] or args.get(index + 1, "")).strip()
    if named in spec.models:
        return f"{named} is loaded by tune itself; name the models that it calls"
    if named == "*":
        served = listed(spec.models, " and ")
        return (
            f"would load {served} too, which tune loads itself; name only the models that it calls"
        )
    return ""


def check_cache_state(spec: Spec) -> Iterator[Finding]:
    """Who cannot restart a server cannot empty its cache."""
    if spec.workload.cache is CacheState.EMPTY and not spec.server.managed:
        text = "only a new server has an empty cache, and a remote one cannot be restarted"
        yield Finding(("workload", "cache"), text)
