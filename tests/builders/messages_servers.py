"""What is said of servers that do not serve what they are given; servers are emulated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.deploying import (
    HANGS,
    IN_USE,
    OUT_OF_MEMORY,
    SIZE,
    Notes,
    count,
    deployer,
    ensemble,
    noting,
    steps,
)
from builders.refusals import Case
from builders.serving import served_several
from docker.errors import DockerException

from tuner.errors import DeployRefusedError, ServerGoneError, ServerHangsError
from tuner.modelconfig.served import read_served
from tuner.server import binaries, numpy2, wheel
from tuner.server.numpy2 import numpy_of_models
from tuner.spec.server import ServerSpec
from tuner.triton import doctor
from tuner.triton.deploy import Deployer
from tuner.triton.needs import holes_of, refuse_names

PYTHON = Path("/venv/bin/python")


def deploying(act: Callable[[Deployer, Notes], object], *, steps_too: bool = False) -> Case:
    """What is raised, or logged, as a server that runs one config is given another."""

    def case(here: Path) -> list[str]:
        logged: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            with pytest.MonkeyPatch.context() as patch:
                notes = noting(patch)
                with ensemble(notes, here) if steps_too else deployer(notes) as used:
                    used.deploy(steps() if steps_too else count(1))
                    act(used, notes)
        finally:
            root.removeHandler(handler)
        return logged

    return case


def not_deployed() -> dict[str, Case]:
    def answered(*errors: Exception, reload: bool = True) -> Callable[[Deployer, Notes], None]:
        def act(used: Deployer, notes: Notes) -> None:
            notes.answers = [*errors]
            used.deploy(count(1, max_batch_size=4) if reload else count(2))

        return act

    def ignored(used: Deployer, notes: Notes) -> None:
        notes.ignores_loads = True
        used.deploy(count(2))

    def ignored_by_a_step(used: Deployer, notes: Notes) -> None:
        notes.ignores_loads = True
        used.deploy(steps(second={"instance_group.count": 2}))

    def too_small_a_step(used: Deployer, _: Notes) -> None:
        used.deploy(steps(first={SIZE: 2}))

    def of_a_copy(used: Deployer, notes: Notes) -> None:
        copy = "/var/tmp/.tune-private-a1b2/models"
        words = f"load failed for model 'first': failed to stat file '{copy}/first/1/model.onnx'"
        notes.answers = [DeployRefusedError(words)] * 2
        used.deploy(steps(first={SIZE: 16}))

    def crashed(used: Deployer, notes: Notes) -> None:
        for size in (16, 12):
            used.deploy(steps())
            notes.answers = [ServerGoneError("loading first: the server is gone")]
            with pytest.raises(ServerGoneError):
                used.deploy(steps(first={SIZE: size}))
            notes.alive = False

    gone = ServerGoneError("loading m: the server is gone")
    return {
        "the server goes on with the old config": deploying(ignored),
        "the server goes on with an old step": deploying(ignored_by_a_step, steps_too=True),
        "the server is gone": deploying(answered(gone)),
        "a load never ends": deploying(answered(ServerHangsError(HANGS), reload=False)),
        "a load never ends, nor one without the old copy": deploying(
            answered(ServerHangsError(HANGS), ServerHangsError(HANGS))
        ),
        "a device is in use by the old copy": deploying(answered(DeployRefusedError(IN_USE))),
        "memory is in use by the old copy": deploying(answered(DeployRefusedError(OUT_OF_MEMORY))),
        "a step takes too small batches": deploying(too_small_a_step, steps_too=True),
        "a file of the server's copy is missing": deploying(of_a_copy, steps_too=True),
        "two reloads of steps crashed the server": deploying(crashed, steps_too=True),
    }


def numpy_is(version: str, python: tuple[int, int] = (3, 12), kind: str = "STRING") -> Case:
    """The Python of models has this NumPy, and tune runs in this Python."""

    def case(here: Path) -> str:
        tensors = f'input {{ name: "x" data_type: TYPE_{kind} dims: [1] }}'
        config = f'backend: "python"\n{tensors} {tensors.replace("input", "output")}\n'
        served_several(here, m=config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numpy2, "_numpy_version", lambda _: version)
            patch.setattr(numpy2.sys, "version_info", python)
            return numpy_of_models(PYTHON, [*read_served(here, ["m"]).models.values()])

    return case


def not_served() -> dict[str, Case]:
    def named(version: str, config: str, name: str) -> Case:
        def case(here: Path) -> None:
            (model,) = served_several(here, **{name: config}).models.values()
            refuse_names(version, [model.files])

        return case

    def no_engine(_: Path) -> str:
        missing = FileNotFoundError(2, "No such file or directory")

        def refused(**_: object) -> None:
            message = f"Error while fetching server API version: {('Connection aborted.', missing)}"
            raise DockerException(message)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("docker.from_env", refused)
            (check,) = doctor._docker(ServerSpec(), {}, tuple)
        return f"{check.found}\nnext: {check.fix}"

    def no_program(here: Path) -> None:
        (here / "bin").mkdir()
        (here / "bin" / "tritonserver").touch(mode=0o755)
        with binaries.tritonserver(str(here / "bin" / "tritonsrever"), {}):
            pass

    def no_server(python: str, **variables: str) -> Case:
        def case(_: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(wheel, "PYTHON", python)
                raise wheel.missing_server({"HOME": "/home/me", **variables})

        return case

    group = 'backend: "python" instance_group { name: "a$b" }'
    return {
        "a release has public holes": lambda _: holes_of("2.51.0 (/opt/bin/tritonserver)"),
        "a newer release refuses the model's name": named("2.61.0, i", 'backend: "python"', "a;b"),
        "a newer release refuses a group's name": named("2.73.0dev", group, "x"),
        "strings under NumPy 2 in Python 3.12": numpy_is("2.0.0"),
        "strings under NumPy 2 in Python 3.13": numpy_is("2.0.0", (3, 13)),
        "a program's name is mistyped": no_program,
        "no server in Python 3.13, which fetches one": no_server("3.13"),
        "no server in Python 3.14, which has none": no_server("3.14"),
        "no NumPy": numpy_is(""),
        "no engine of containers answers": no_engine,
    }
