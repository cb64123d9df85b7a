"""What the deployer does to a server, seen from a server that only takes notes."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.candidates import candidate_of
from builders.deploying import (
    COUNT,
    FILE,
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

from tuner.errors import DeployRefusedError, ServerGoneError, ServerHangsError, TrialError
from tuner.server.control import Metrics, MetricSample
from tuner.server.memory import Memory
from tuner.space.candidate import Candidate, variable
from tuner.triton import deploy
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    return noting(monkeypatch)


def test_no_server_starts_before_the_first_deployment(notes: Notes) -> None:
    with deployer(notes) as idle:
        assert not idle.alive()
        with pytest.raises(ServerGoneError, match="no server"):
            _ = idle.server
    assert notes.events == []


def test_work_is_as_little_as_the_change_allows(notes: Notes) -> None:
    with deployer(notes) as used:
        kinds = [
            used.deploy(candidate).kind.value
            for candidate in (
                count(1),
                count(1),
                count(2),
                count(2, max_batch_size=4),
                count(2, 1, max_batch_size=4),
            )
        ]
    assert kinds == ["restart", "unchanged", "in place", "reload", "restart"]
    assert notes.events == [
        "start", "load 1", "load 2", "load 2", "stop", f"start {CACHE}", "load 2", "stop",
    ]  # fmt: skip


def test_every_candidate_starts_from_the_file_not_from_the_one_before(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(3, max_batch_size=4))
        assert used.deploy(candidate_of({})).running == {"m": FILE}


def test_a_refusal_leaves_what_ran_before(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.answers = [DeployRefusedError("load failed for model 'm': no")]
        with pytest.raises(DeployRefusedError):
            used.deploy(count(2))
        assert used.deploy(count(1)).kind is DeploymentKind.UNCHANGED


def test_a_server_that_still_serves_the_old_config_is_caught(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.ignores_loads = True
        with pytest.raises(DeployRefusedError, match="count"):
            used.deploy(count(2))
        notes.ignores_loads = False
        assert used.deploy(count(1)).kind is DeploymentKind.RELOAD


def test_a_dead_server_is_named_with_its_last_words_and_replaced(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.answers = [ServerGoneError("loading m: the server is gone")]
        with pytest.raises(ServerGoneError, match="the last words"):
            used.deploy(count(2))
        assert notes.events[-1] == "stop"
        assert used.deploy(count(2)).kind is DeploymentKind.RESTART
        notes.alive = False
        assert used.deploy(count(2)).kind is DeploymentKind.RESTART


@pytest.mark.parametrize(
    ("failure", "restartable", "new_server"),
    [
        (DeployRefusedError(IN_USE), True, False),
        (DeployRefusedError(IN_USE), False, False),
        (DeployRefusedError(OUT_OF_MEMORY), True, True),
        (DeployRefusedError(OUT_OF_MEMORY), False, False),
        (ServerHangsError(HANGS), True, True),
        (ServerHangsError(HANGS), False, False),
    ],
)
def test_config_that_fails_beside_its_old_copy_is_tried_once_more_without_the_copy(
    notes: Notes,
    caplog: pytest.LogCaptureFixture,
    failure: TrialError,
    restartable: bool,
    new_server: bool,
) -> None:
    """On a new server where backends lose memory with each load that fails, or a load hangs."""
    with deployer(notes, restartable=restartable) as used:
        used.deploy(count(1))
        notes.events.clear()
        notes.answers = [failure]
        used.deploy(count(2, max_batch_size=4))
        again = ["stop", "start"] if new_server else ["unload"]
        assert notes.events == ["load 2", *again, "load 2"]
        (message,) = caplog.messages
        assert failure.message.rpartition(": ")[2] in message

        notes.events.clear()
        used.deploy(count(2, max_batch_size=2))
        assert notes.events == ["unload", "load 2"], "learned for the rest of the run"

        notes.events.clear()
        notes.answers = [DeployRefusedError(OUT_OF_MEMORY)]
        with pytest.raises(DeployRefusedError, match="out of memory"):
            used.deploy(count(2, max_batch_size=1))
        assert notes.events == ["unload", "load 2"], "nothing was beside it, so it cannot fit"
        assert len(caplog.messages) == 1


def test_config_that_loads_neither_beside_its_old_copy_nor_alone_is_refused(
    notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.events.clear()
        notes.answers = [DeployRefusedError(IN_USE), DeployRefusedError("load failed: no weights")]
        with pytest.raises(DeployRefusedError, match="no weights"):
            used.deploy(count(1, max_batch_size=4))
        used.deploy(count(1))
        used.deploy(count(1, max_batch_size=2))
    assert notes.events == ["load 1", "unload", "load 1", "load 1", "load 1", "stop"]
    assert not caplog.messages


def test_a_load_that_never_ends_names_both_settings_and_no_line_of_the_log_that_is_no_error(
    notes: Notes,
) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        notes.answers = [ServerHangsError(HANGS), ServerHangsError(HANGS)]
        with pytest.raises(DeployRefusedError) as refused:
            used.deploy(count(1, max_batch_size=4))
        assert refused.value.message.startswith(f"{HANGS} ")
        notes.answers = [ServerHangsError(HANGS)]
        with pytest.raises(ServerHangsError, match=f"^{HANGS} "):
            used.deploy(count(1))
        assert used.deploy(count(1)).kind is DeploymentKind.RESTART


def of_gpu(used: int) -> Metrics:
    values = {"used": used, "total": 16}
    return Metrics(
        tuple(
            MetricSample(f"nv_gpu_memory_{what}_bytes", {"gpu_uuid": "GPU-a"}, float(value))
            for what, value in values.items()
        )
    )


def test_memory_of_models_is_separated_from_memory_in_use_before(
    notes: Notes,
) -> None:
    notes.metrics = of_gpu(used=3)
    with deployer(notes) as used:
        assert used.memory() == {}
        used.deploy(count(1))
        notes.metrics = of_gpu(used=8)
        assert used.memory() == {"memory of GPU-a": Memory(5, 3, 16)}


@pytest.mark.parametrize("restartable", [True, False])
def test_after_a_load_that_failed_on_a_gpu_the_next_one_gets_a_new_server(
    notes: Notes, restartable: bool
) -> None:
    notes.metrics = of_gpu(used=1)
    with deployer(notes, restartable=restartable) as used:
        used.deploy(count(1))
        notes.answers = [DeployRefusedError("load failed for model 'm': no weights")]
        with pytest.raises(DeployRefusedError, match="no weights"):
            used.deploy(count(2))
        kind = used.deploy(count(1)).kind
    assert kind is (DeploymentKind.RESTART if restartable else DeploymentKind.UNCHANGED)


def test_a_refusal_names_the_repository_and_not_the_copy_that_the_server_was_given(
    notes: Notes, tmp_path: Path
) -> None:
    with ensemble(notes, tmp_path) as used:
        copy = "/var/tmp/.tune-private-a1b2/models"
        words = f"load failed for model 'first': failed to stat file '{copy}/first/1/model.onnx'"
        notes.answers = [DeployRefusedError(words)]
        with pytest.raises(DeployRefusedError) as refused:
            used.deploy(steps())
    assert refused.value.message.endswith(f"'{tmp_path}/first/1/model.onnx'")


def test_unloading_first_is_for_reloads_only(notes: Notes) -> None:
    with deployer(notes, unload_first=True) as used:
        used.deploy(count(1))
        used.deploy(count(2))
        used.deploy(count(2, max_batch_size=4))
    assert notes.events == ["start", "load 1", "load 2", "unload", "load 2", "stop"]


def test_fresh_means_another_server_or_an_empty_one(notes: Notes) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        used.fresh()
        assert used.deploy(count(1)).kind is DeploymentKind.RESTART
    with deployer(notes, restartable=False) as remote:
        remote.deploy(count(1))
        notes.events.clear()
        remote.fresh()
        assert remote.deploy(count(1)).kind is DeploymentKind.RELOAD
        assert notes.events == ["unload", "load 1"]


WITHOUT = f"start {deploy.WITHOUT_COMPLETION}"
CACHE = "--cache-config=local,size=1"


def test_servers_of_a_model_that_completes_nothing_are_started_without_completion(
    notes: Notes,
) -> None:
    with deployer(notes) as used:
        used.deploy(count(1))
        used.completes = False
        used.deploy(count(2))  # the server that is there goes on
        used.fresh()
        used.deploy(count(2, 1))
    assert notes.events == [
        *("start", "load 1", "load 2", "stop"),
        *(f"{WITHOUT} {CACHE}", "load 2", "stop"),
    ]


def test_another_variable_restarts_the_server_and_the_same_one_does_not(notes: Notes) -> None:
    def threads(instances: int, number: int | None) -> Candidate:
        values = dict(count(instances).values)
        return Candidate({**values, variable("OMP_NUM_THREADS"): number})

    with deployer(notes) as used:
        for candidate in (threads(1, None), threads(2, None), threads(2, 1), threads(1, 1)):
            used.deploy(candidate)
        used.fresh()
        used.deploy(threads(1, 1))
    assert notes.events == [
        *("start OMP_NUM_THREADS=None", "load 1", "load 2", "stop"),
        *("start OMP_NUM_THREADS=1", "load 2", "load 1", "stop"),
        *("start OMP_NUM_THREADS=1", "load 1", "stop"),
    ]


@pytest.mark.parametrize("restartable", [True, False])
def test_a_server_that_completes_is_left_behind_with_the_first_reload(
    restartable: bool, notes: Notes
) -> None:
    with deployer(notes, restartable=restartable) as used:
        used.deploy(count(1))
        used.completes = False
        kind = used.deploy(count(2, max_batch_size=4)).kind
    left = ["stop", WITHOUT] if restartable else []
    assert notes.events == ["start", "load 1", *left, "load 2", "stop"]
    assert kind is (DeploymentKind.RESTART if restartable else DeploymentKind.RELOAD)


def test_config_refused_without_completion_is_tried_with_completion(notes: Notes) -> None:
    with deployer(notes) as used:
        used.completes = False
        notes.answers = [DeployRefusedError("must specify 'platform'"), None]
        assert used.deploy(count(1)).kind is DeploymentKind.RESTART
        assert used.completes
    assert notes.events == [WITHOUT, "load 1", "stop", "start", "load 1", "stop"]


def test_config_refused_with_and_without_completion_ends_with_the_words_of_a_production_server(
    notes: Notes,
) -> None:
    with deployer(notes) as used:
        used.completes = False
        notes.answers = [DeployRefusedError("strict"), DeployRefusedError("out of memory")]
        with pytest.raises(DeployRefusedError, match="out of memory"):
            used.deploy(count(1))
        assert not used.completes
        used.fresh()
        used.deploy(count(1))
    assert notes.events[-3:] == [WITHOUT, "load 1", "stop"]


def test_config_that_runs_as_another_without_completion_is_tried_with_completion(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployer(notes) as used:
        used.completes = False
        used.deploy(count(1))
        notes.ignores_loads = True
        stop = used._stop
        monkeypatch.setattr(used, "_stop", lambda: (stop(), setattr(notes, "ignores_loads", False)))
        used.deploy(count(2))
    assert notes.events == [WITHOUT, "load 1", "load 2", "stop", "start", "load 2", "stop"]


def test_a_tritonserver_that_does_not_know_the_argument_is_started_without_it(
    notes: Notes,
) -> None:
    notes.too_old = True
    with deployer(notes) as used:
        used.completes = False
        used.deploy(count(1))
        assert used.completes
    assert notes.events == [WITHOUT, "start", "load 1", "stop"]


def test_a_step_that_is_unloaded_first_takes_the_ensemble_along_and_back(
    notes: Notes, tmp_path: Path
) -> None:
    with ensemble(notes, tmp_path, restartable=False) as used:
        used.deploy(steps())
        notes.events.clear()
        notes.answers = [DeployRefusedError("load failed for model 'first': out of memory")]
        used.deploy(steps(first={SIZE: 16}))
        assert notes.events == ["load first 1", "unload first", "load first 1"]
        assert used.deploy(steps(first={SIZE: 16})).kind is DeploymentKind.UNCHANGED

        notes.answers = [DeployRefusedError("load failed for model 'first': no")]
        with pytest.raises(DeployRefusedError):
            used.deploy(steps(first={SIZE: 12}))
        notes.events.clear()
        assert used.deploy(steps(first={SIZE: 16})).kind is DeploymentKind.RELOAD
    again = ["unload first", "load first 1", "unload whole", "load whole", "stop"]
    assert notes.events == again, "neither is known to be there"


def test_of_several_models_only_those_that_changed_are_loaded_parts_before_wholes(
    notes: Notes, tmp_path: Path
) -> None:
    with ensemble(notes, tmp_path) as used:
        kinds = [
            used.deploy(candidate).kind.value
            for candidate in (
                steps(),
                steps(),
                steps(second={COUNT: 2}),
                steps(second={COUNT: 3}, first={SIZE: 16}),
                steps(whole={SIZE: 2}, first={SIZE: 16}),
            )
        ]
    assert kinds == ["restart", "unchanged", "in place", "reload", "reload"]
    assert notes.events == [
        *("start", "load first 1", "load second 1", "load whole"),
        "load second 2",
        *("load first 1", "load second 3"),
        *("load second 1", "load whole"),
        "stop",
    ]


def test_every_model_is_read_back_and_a_wrong_one_named(notes: Notes, tmp_path: Path) -> None:
    with ensemble(notes, tmp_path) as used:
        deployment = used.deploy(steps(first={COUNT: 2}))
        assert deployment.running["first"].instance_group[0].count == 2
        assert set(deployment.running) == {"first", "second", "whole"}
        notes.ignores_loads = True
        with pytest.raises(DeployRefusedError, match=r"second: .*count"):
            used.deploy(steps(first={COUNT: 2}, second={COUNT: 2}))


def test_an_ensemble_that_is_gone_with_its_steps_config_is_named_and_the_next_deploy_works(
    notes: Notes, tmp_path: Path
) -> None:
    with ensemble(notes, tmp_path) as used:
        used.deploy(steps())
        with pytest.raises(DeployRefusedError, match=r"^whole: "):
            used.deploy(steps(first={SIZE: 2}))
        notes.events.clear()
        assert used.deploy(steps(first={SIZE: 2}, whole={SIZE: 2})).kind is DeploymentKind.RELOAD
    assert notes.events == ["load whole", "stop"]


def test_a_refused_step_is_named_and_what_was_loaded_before_it_is_known(
    notes: Notes, tmp_path: Path
) -> None:
    with ensemble(notes, tmp_path) as used:
        used.deploy(steps())
        notes.answers = [None, DeployRefusedError("load failed for model 'second': no weights")]
        with pytest.raises(DeployRefusedError, match=r"^second: no weights$"):
            used.deploy(steps(first={SIZE: 16}, second={COUNT: 2}))
        notes.events.clear()
        used.deploy(steps())
    assert notes.events == ["load first 1", "stop"], "the second still serves what it did"


def crash(used: Deployer, notes: Notes, candidate: Candidate) -> None:
    used.deploy(steps())
    notes.answers = [ServerGoneError("loading first: the server is gone")]
    with pytest.raises(ServerGoneError):
        used.deploy(candidate)
    notes.alive = False


def test_a_server_that_two_reloads_of_steps_crashed_is_restarted_for_the_next(
    notes: Notes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ensemble(notes, tmp_path) as used:
        crash(used, notes, steps(first={SIZE: 16}))
        used.deploy(steps())
        assert used.deploy(steps(second={SIZE: 16})).kind is DeploymentKind.RELOAD
        crash(used, notes, steps(second={SIZE: 12}))
        assert " 2 times " in caplog.text

        used.deploy(steps())
        assert used.deploy(steps(first={SIZE: 16})).kind is DeploymentKind.RESTART
        assert used.deploy(steps(first={SIZE: 16, COUNT: 2})).kind is DeploymentKind.IN_PLACE
        wider = steps(first={SIZE: 16, COUNT: 2}, whole={SIZE: 2})
        assert used.deploy(wider).kind is DeploymentKind.RELOAD, "an ensemble is no step"


def test_crashes_of_a_model_that_is_no_step_change_nothing(notes: Notes) -> None:
    with deployer(notes) as used:
        for _ in range(3):
            used.deploy(count(1))
            notes.answers = [ServerGoneError("loading m: the server is gone")]
            with pytest.raises(ServerGoneError):
                used.deploy(count(1, max_batch_size=4))
            notes.alive = False
        used.deploy(count(1))
        assert used.deploy(count(1, max_batch_size=4)).kind is DeploymentKind.RELOAD


def test_a_server_that_cannot_be_restarted_goes_on_reloading_and_is_emptied_wholes_first(
    notes: Notes, tmp_path: Path
) -> None:
    with ensemble(notes, tmp_path, restartable=False) as used:
        for size in (16, 12):
            crash(used, notes, steps(first={SIZE: size}))
        used.deploy(steps())
        assert used.deploy(steps(first={SIZE: 16})).kind is DeploymentKind.RELOAD
        notes.events.clear()
        used.fresh()
    assert notes.events == ["unload whole", "unload second", "unload first", "stop"]
