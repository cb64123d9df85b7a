"""The first server of a run: what is asked of it, and what it says of the config."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import fields_of, the_one
from builders.first_server import (
    COMPLETES,
    SPEC,
    TENSORS,
    Completes,
    Server,
    always_batching,
    always_eight,
    as_given,
    at_most_eight,
    first_server,
)

from tuner.errors import DeployRefusedError, EnvironmentNotReadyError, ServerGoneError
from tuner.prepare.serving import ModelNotServedError
from tuner.prepare.timebook import Phase, TimeBook
from tuner.server.memory import Memory
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., Any]:
    return partial(first_server, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p99_latency <= 40ms", "p99_latency <= 40ms, gpu_memory <= 1GiB"),
        ("model: m", "model: m\nobjective: minimize gpu_memory at 60/s"),
    ],
)
def test_missing_gpu_memory_figures_are_reported_before_the_search(
    served: Callable[..., Any], old: str, new: str
) -> None:
    server = Server(as_given)
    spec = SPEC.replace(old, new)
    with (
        pytest.raises(EnvironmentNotReadyError, match="no GPU's memory"),
        served(server, f"max_batch_size: 8\n{TENSORS}", spec=spec),
    ):
        pass


def test_memory_of_gpus_that_the_server_reports_may_be_bounded(served: Callable[..., Any]) -> None:
    spec = SPEC.replace("40ms]", "40ms, gpu_memory <= 1GiB]")
    server = Server(as_given, memory={"memory of GPU-a": Memory(1, 0, 2)})
    with served(server, f"max_batch_size: 8\n{TENSORS}", spec=spec) as ready:
        assert ready.job.spec.slos


def test_a_model_that_completes_nothing_is_loaded_once_as_it_is(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    server, book = Server(as_given), TimeBook()
    with served(server, f"max_batch_size: 8\n{TENSORS}", code="", book=book) as ready:
        assert ready.completed == ""
        assert the_one(ready.job.served.models).base.known
        assert the_one(ready.job.served.models).base.overridden == frozenset()
    assert server.given == [(8, False, None)]
    assert (server.names, server.log) == (["m"], tmp_path / "logs" / "server.log")
    options = {"load_timeout_s": 33.0, "unload_first": True, "gpus": "all"}
    assert options.items() <= server.options.items()
    assert ready.load_s > 0.0
    assert ready.load_s == pytest.approx(book.seconds(Phase.DEPLOYING))


LOADS_OTHERS = "pb_utils.load_model('another')\n"


@pytest.mark.parametrize(
    ("config", "code", "completes"),
    [
        (f"max_batch_size: 8\n{TENSORS}", "", False),
        (f"max_batch_size: 8\n{TENSORS}", COMPLETES, True),
        (f"max_batch_size: 8\n{TENSORS}", LOADS_OTHERS, True),
        (f'backend: "onnxruntime"\nmax_batch_size: 8\n{TENSORS}', "", True),
    ],
)
def test_only_a_python_model_that_completes_nothing_is_served_without_completion(
    config: str, code: str, completes: bool, served: Callable[..., Any]
) -> None:
    with served(Server(as_given), config, code=code) as ready:
        assert ready.deployer.completes is completes


def test_a_model_that_was_completed_by_code_from_elsewhere_is_served_with_completion(
    served: Callable[..., Any],
) -> None:
    with served(Server(always_batching), f"max_batch_size: 8\n{TENSORS}", code="") as ready:
        assert ready.deployer.completes


@pytest.mark.parametrize(
    ("completes", "overridden"), [(always_eight, True), (at_most_eight, False)]
)
def test_whether_the_server_sets_the_batch_size_is_tried_with_the_next_smaller_one(
    completes: Completes, overridden: bool, served: Callable[..., Any]
) -> None:
    server = Server(completes)
    with served(server, f"max_batch_size: 8\n{TENSORS}") as ready:
        assert server.given == [(8, False, None), (4, False, None)]
        known = the_one(ready.job.served.models).base.overridden
        assert (MAX_BATCH_SIZE in known) is overridden
        assert the_one(ready.deployer.served.models).base.overridden == known
        sizes = {fields_of(c)[MAX_BATCH_SIZE] for c in ready.job.space.enumerate()}
        assert sizes == ({8} if overridden else {2, 4, 8, 16})  # 1 is 8 without a batcher


@pytest.mark.parametrize(("completes", "overridden"), [(always_batching, True), (as_given, False)])
def test_whether_the_batcher_can_be_had_off_is_tried(
    completes: Completes, overridden: bool, served: Callable[..., Any]
) -> None:
    server = Server(completes)
    config = f"max_batch_size: 1\ndynamic_batching {{ }}\n{TENSORS}"
    with served(server, config) as ready:
        assert server.given == [(1, True, None), (1, False, None)]  # no batch is smaller than one
        assert (DYNAMIC_BATCHING in the_one(ready.job.served.models).base.overridden) is overridden


def test_fields_that_the_server_overrides_are_named(served: Callable[..., Any]) -> None:
    def both(config: Any) -> None:
        always_eight(config)
        always_batching(config)

    with served(Server(both), TENSORS) as ready:
        assert the_one(ready.job.served.models).base.overridden == {
            MAX_BATCH_SIZE,
            DYNAMIC_BATCHING,
        }


def test_a_batcher_that_is_known_to_come_by_itself_is_not_tried_off(
    served: Callable[..., Any],
) -> None:
    server = Server(always_batching)
    with served(server, f"max_batch_size: 8\n{TENSORS}") as ready:
        assert server.given == [(8, False, None), (4, False, None)]
        assert the_one(ready.job.served.models).base.overridden == {DYNAMIC_BATCHING}


@pytest.mark.parametrize(
    "space",
    [
        "space: {instance_group.count: {int: [1, 2]}}\n",
        "space: {max_batch_size: {choice: [8, 16]}}\n",
        "space: {max_batch_size: {choice: [8, 16]}, dynamic_batching: {choice: [on]}}\n",
    ],
)
def test_nothing_is_tried_that_the_space_does_not_hold(
    space: str, served: Callable[..., Any]
) -> None:
    server = Server(as_given)
    config = f"max_batch_size: 8\ndynamic_batching {{ }}\n{TENSORS}"
    with served(server, config, spec=SPEC[: SPEC.index("space:")] + space):
        assert server.given == [(8, True, None)]


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "openvino"])
def test_a_backend_that_keeps_the_size_of_the_file_is_not_tried(
    backend: str, served: Callable[..., Any]
) -> None:
    def tensors(config: Any) -> None:
        for names in (config.input, config.output):
            names.add(name="x", data_type="TYPE_FP32", dims=[1])

    server = Server(tensors)
    with served(server, f'backend: "{backend}"\nmax_batch_size: 8\n', code="") as ready:
        assert ready.completed
        assert server.given == [(8, False, None)]


@pytest.mark.parametrize("error", [DeployRefusedError("too small"), ServerGoneError("gone")])
def test_a_size_that_is_refused_is_left_to_its_trial(
    error: Exception, served: Callable[..., Any]
) -> None:
    server = Server(always_eight, trouble={2: error})
    with served(server, f"max_batch_size: 8\n{TENSORS}") as ready:
        assert the_one(ready.job.served.models).base.overridden == frozenset()


@pytest.mark.parametrize(
    ("error", "refused"),
    [(DeployRefusedError("no weights"), True), (ServerGoneError("no weights"), False)],
)
def test_a_model_that_is_not_served_as_it_is_ends_the_run(
    error: Exception, refused: bool, served: Callable[..., Any]
) -> None:
    server = Server(as_given, trouble={1: error})
    with (
        pytest.raises(ModelNotServedError) as ended,
        served(server, f"max_batch_size: 8\n{TENSORS}"),
    ):
        pass
    assert ended.value.refused is refused


def test_the_first_server_has_the_arguments_of_the_current_config(
    served: Callable[..., Any],
) -> None:
    server = Server(as_given)
    spec = SPEC.replace("server: {", "server: {args: [--rate-limit=execution_count], ")
    with served(server, f"max_batch_size: 8\n{TENSORS}", code="", spec=spec) as ready:
        assert server.given == [(8, False, ready.job.space.current.cache_bytes)]


ENSEMBLE = f"""platform: "ensemble" max_batch_size: 4 backend: ""
{TENSORS}
ensemble_scheduling {{ step {{
  model_name: "part" model_version: -1
  input_map {{ key: "input" value: "input" }} output_map {{ key: "output" value: "output" }}
}} }}"""


def eight_of_the_part(config: Any) -> None:
    if config.name == "part":
        config.max_batch_size = 8


@pytest.mark.parametrize("code", ["", COMPLETES])
def test_each_model_is_completed_alone_and_reported_by_its_label(
    code: str, served: Callable[..., Any], tmp_path: Path
) -> None:
    part = tmp_path / "models" / "part"
    (part / "1").mkdir(parents=True)
    (part / "1" / "model.py").write_text(code)
    size = "" if code else "max_batch_size: 8"
    (part / "config.pbtxt").write_text(f'name: "part" backend: "python" {size}\n{TENSORS}')
    spec = SPEC[: SPEC.index("space:")] + "space: {max_batch_size: {choice: [2, 4]}}\n"
    with served(Server(eight_of_the_part), ENSEMBLE, spec=spec) as ready:
        models = ready.job.served.models
        assert models["part"].base.completed.max_batch_size == 8
        assert models[ready.job.spec.name].base.completed.max_batch_size == 4
        assert all(model.base.known for model in models.values())
        assert ready.deployer.served is ready.job.served
        assert (" of part: " in ready.completed) is bool(code)
        assert ready.deployer.completes is bool(code)
