"""Python models that complete their config, on a real server: what runs is what would be written.

Each candidate is deployed as a run does it. Then its text is put into the repository and loaded as
users load it, with auto-complete on: the server must report the very config that was measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from builders.candidates import fields_of, the_one, values_of
from contract.server_contract import answer

from tuner.errors import NothingToSearchError
from tuner.prepare.job import Request, draw_up, prepare
from tuner.prepare.serving import ModelNotServedError, Serving, serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import Programs
from tuner.server.binaries import Installation
from tuner.server.control import Control
from tuner.space.build import refuse_empty
from tuner.space.candidate import Candidate
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]

MODEL = "m"
CODE = """\
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        %s
        return config

    def execute(self, requests):
        time.sleep(0.05)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(r, "x").as_numpy() * 2)]
            )
            for r in requests
        ]
"""
SPEC = """\
model: m
repository: models
slo: [p99_latency <= 40ms]
space:
  instance_group.count: {int: [1, 2]}
  max_batch_size: {choice: [4, 8]}
  dynamic_batching: {choice: [off, on]}
  dynamic_batching.max_queue_delay_microseconds: {choice: [0, 500]}
  dynamic_batching.preferred_batch_size: {subsets: [4], at_most: 1, or: unset}
"""
BOTH = "config.set_max_batch_size(8); config.set_dynamic_batching()"
OPEN = "config.set_dynamic_batching()"

COUNT = "instance_group.count"
SIZE = "max_batch_size"
BATCHER = "dynamic_batching"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
PREFERRED = "dynamic_batching.preferred_batch_size"


@pytest.fixture
def served(installation: Installation, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def served(code: str, config: str | None, spec: str = SPEC) -> Iterator[Serving]:
        model = tmp_path / "models" / MODEL
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(CODE % code)
        if config is not None:
            (model / "config.pbtxt").write_text(config)
        (tmp_path / "spec.yaml").write_text(spec)
        job = prepare(Request(spec=tmp_path / "spec.yaml"))
        launcher = LocalLauncher(installation, tmp_path / "models")
        programs = Programs(launcher, cast("Any", None), cast("Any", None), "2.51.0")
        with serving(job, programs, tmp_path, TimeBook()) as ready:
            yield ready

    return served


@dataclass
class Written:
    """Texts that would be written, and what a server ran when they were measured."""

    served: Serving
    measured: list[tuple[str, Any]] = field(default_factory=list)

    def deployed(self, candidate: Candidate) -> str:
        running = the_one(self.served.deployer.deploy(candidate).running)
        text = the_one(draw_up(self.served.job, candidate).configs).config_after
        self.measured.append((text, running))
        return text

    def runs_as_measured(self, installation: Installation, directory: Path) -> bool:
        """A new server, with auto-complete, makes the measured config of each text."""
        code = the_one(self.served.job.served.models).files.directory / "1" / "model.py"
        for number, (text, _) in enumerate(self.measured):
            model = directory / f"m{number}"
            shutil.copytree(code.parent, model / "1")
            if text:
                (model / "config.pbtxt").write_text(text)
        launcher = LocalLauncher(installation, directory)
        with (
            launcher.launch((), directory.parent / "again.log") as server,
            Control(server.endpoints) as control,
        ):
            for number in range(len(self.measured)):
                control.load(f"m{number}", None, 30)
            running = [control.running_config(f"m{n}") for n in range(len(self.measured))]
        return [unnamed(r) for r in running] == [unnamed(r) for _, r in self.measured]


def unnamed(config: Any) -> Any:
    config.name = ""
    for group in config.instance_group:
        group.name = ""
    return config


def candidate(served: Serving, **fields: Any) -> Candidate:
    names = {"count": COUNT, "size": SIZE, "batcher": BATCHER, "delay": DELAY, "only": PREFERRED}
    space = served.job.space
    changed = {names[name]: value for name, value in fields.items()}
    chosen = space.candidate(
        {**space.values(space.current), **values_of(changed, served.job.spec.name)}
    )
    assert space.contains(chosen)
    return chosen


def mean_batch_size(served: Serving) -> float:
    """Of eight requests at once."""
    before = served.deployer.control.statistics(MODEL)
    with ThreadPoolExecutor(8) as clients:
        endpoints = served.deployer.server.endpoints
        for _ in clients.map(lambda i: answer(endpoints, MODEL, [i] * 4), range(8)):
            pass
    after = served.deployer.control.statistics(MODEL)
    executed = after.execution_count - before.execution_count
    return (after.inference_count - before.inference_count) / executed


def test_a_model_without_a_config_that_completes_everything(
    served: Callable[..., Any], installation: Installation, tmp_path: Path
) -> None:
    with served(BOTH, None) as ready:
        written = Written(ready)
        space = ready.job.space
        assert ready.completed == (
            "the server completes the config: max_batch_size 8, input, output, dynamic_batching"
        )
        assert fields_of(space.current) == {
            COUNT: 1,
            SIZE: 8,
            BATCHER: True,
            DELAY: 0,
            PREFERRED: None,
        }
        assert written.deployed(space.current) == ""

        # What it sets by itself cannot be had otherwise, and is no candidate.
        assert all(fields_of(c)[SIZE] == 8 for c in space.enumerate())
        delayed = written.deployed(candidate(ready, delay=500))
        assert delayed == "dynamic_batching {\n  max_queue_delay_microseconds: 500\n}\n"
        # Triton compares preferred sizes with the file's max_batch_size before it is completed.
        assert "max_batch_size: 8" in written.deployed(candidate(ready, only=(4,)))

        assert mean_batch_size(ready) > 1
        off = candidate(ready, batcher=None, count=2)
        assert "preferred_batch_size: [ 1 ]" in written.deployed(off)
        assert mean_batch_size(ready) == 1
    assert written.runs_as_measured(installation, tmp_path / "again")


def test_max_batch_size_alone_beside_a_batcher_that_is_completed(
    served: Callable[..., Any], installation: Installation, tmp_path: Path
) -> None:
    with served(OPEN, "max_batch_size: 8\n") as ready:
        written = Written(ready)
        assert fields_of(ready.job.space.current)[BATCHER] is True
        assert written.deployed(ready.job.space.current) == "max_batch_size: 8\n"
        smaller = written.deployed(candidate(ready, size=4))
        assert smaller == "max_batch_size: 4\n"
        written.deployed(candidate(ready, size=4, batcher=None))
    assert written.runs_as_measured(installation, tmp_path / "again")


def test_a_batcher_that_comes_back_when_it_is_taken_out_of_the_file(
    served: Callable[..., Any], installation: Installation, tmp_path: Path
) -> None:
    config = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 500 }\n"
    with served(OPEN, config) as ready:
        written = Written(ready)
        text = written.deployed(candidate(ready, batcher=None))
        assert "preferred_batch_size: [ 1 ]" in text
        assert "delay" not in text
    assert written.runs_as_measured(installation, tmp_path / "again")


def test_a_model_that_completes_tensors_only(
    served: Callable[..., Any], installation: Installation, tmp_path: Path
) -> None:
    with served("pass", 'max_batch_size: 8\ninput [ { name: "x" } ]\n') as ready:
        written = Written(ready)
        assert fields_of(ready.job.space.current)[BATCHER] is None
        on = written.deployed(candidate(ready, size=4, batcher=True, delay=500))
        assert "input" in on
        assert "TYPE_FP32" not in on
    assert written.runs_as_measured(installation, tmp_path / "again")


def test_space_of_fields_that_the_model_sets_itself_is_reported(served: Callable[..., Any]) -> None:
    spec = SPEC[: SPEC.index("space:")] + "space: {max_batch_size: {choice: [2, 4]}}\n"
    with (
        served(BOTH, None, spec) as ready,
        pytest.raises(NothingToSearchError, match="the server sets max_batch_size to 8, whatever"),
    ):
        refuse_empty(ready.job.space)


def test_model_that_does_not_load_ends_with_the_error_of_the_model(
    served: Callable[..., Any],
) -> None:
    with (
        pytest.raises(ModelNotServedError, match="ValueError: no such weights") as error,
        served("raise ValueError('no such weights')", None),
    ):
        pass
    assert error.value.exit_code == 5
