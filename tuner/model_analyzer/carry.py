"""From Model Analyzer's YAML to the parts of a spec, and a list of what did not fit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.model_analyzer.fields import space
from tuner.model_analyzer.goals import GOODPUT, objective, slos
from tuner.model_analyzer.options import REASONS
from tuner.model_analyzer.server import leave_launch, server
from tuner.model_analyzer.traffic import inputs, leave_flags, traffic, workload
from tuner.model_analyzer.yaml_file import Profile
from tuner.space.draft import Given, open_shapes
from tuner.spec.model import ModelAnalyzerMode
from tuner.spec.slo import Slo


def repository_of(profile: Profile) -> Path | None:
    """The model repository, relative to where we are, as Model Analyzer does, or to the file."""
    given = profile.take_text("model_repository")
    if given is None:
        return None
    beside = profile.path.parent / given
    return beside if beside.is_dir() and not Path(given).is_dir() else Path(given)


def carried(profile: Profile, config: Any, directory: Path, slo: str) -> Given:
    """Everything a spec in ``directory`` has a place for, and a list of the rest.

    ``config`` is the model's ModelConfig message; ``slo`` is used where no latency is bounded.

    Raises:
        SpecError: An option has a value that Model Analyzer would refuse too, or the file is
            about a language model.
    """

    def path(text: str) -> str:
        return text if Path(text).is_absolute() else os.path.relpath(text, directory)

    if str(profile.take("model_type") or "generic").lower() == "llm":
        raise SpecError(
            f"{profile.mistake(('model_type',), 'language models are not tuned here').message}",
            "tune the engine's own parameters with NVIDIA's aiconfigurator or aiperf",
        )
    found = traffic(profile, path)
    goal = objective(profile, found.levels, found.open_loop)
    bounds = _slos(profile, goal, slo)
    launch = server(profile, path)
    if launch.get("gpus") == "none" and any("gpu_memory" in text for text in (goal, *bounds)):
        del launch["gpus"]
        profile.leave(("gpus",), "all stay visible: the objective or an SLO is about gpu_memory")
    given = Given(
        command=f"tune init {profile.model} --from-model-analyzer {profile.path}",
        server=launch,
        slos=tuple(bounds),
        objective=goal,
        workload={
            **workload(profile, found, goal, bounds, path),
            "inputs": inputs(profile, open_shapes(config), path),
        },
        space=space(profile, config),
        trials=profile.take_number("optuna_max_trials"),
        search=_mode(profile),
    )
    _leave_rest(profile, launch["mode"])
    return replace(given, left=tuple(map(str, profile.left)))


def _slos(profile: Profile, goal: str, stand_in: str) -> list[str]:
    """The file's, a latency under goodput in any case, and no failed requests."""
    found = slos(profile, goal)
    if goal == GOODPUT and not any(Slo.parse(text).metric.is_latency for text in found):
        found.insert(0, stand_in)
        profile.leave(
            ("constraints",), f"no latency is bounded; {stand_in} is an example: change it"
        )
    return [*found, "error_rate <= 0%"]


def _mode(profile: Profile) -> str:
    mode = profile.take_text("run_config_search_mode") or ModelAnalyzerMode.BRUTE.value
    if mode not in [known.value for known in ModelAnalyzerMode]:
        raise profile.mistake(("run_config_search_mode",), "brute, quick or optuna is expected")
    return mode


def _leave_rest(profile: Profile, mode: str) -> None:
    leave_flags(profile)
    leave_launch(profile, mode)
    profile.take("model_repository")
    unused = "another option takes its place"
    for option in profile.values:
        if option in REASONS:
            profile.leave((option,), REASONS[option])
        elif option not in profile.taken:
            profile.leave((option,), unused)
    profile.left.sort(key=lambda left: left.line or 0)
