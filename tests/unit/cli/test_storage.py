"""Where the storage is named, and that its password goes no further."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.commands import Tune

from tuner.bench.job import Request
from tuner.cli.storage import children_environment, storage_of, warn_of_password
from tuner.errors import EnvironmentNotReadyError
from tuner.record.storage_url import has_password, hidden_reason, shown_url

MARK = "hunter2"
URL = f"postgresql://tuner:{MARK}@db/optuna"
SPEC = str(Path(__file__).parents[2] / "cases" / "good" / "minimal.yaml")


def test_the_command_line_comes_before_the_variable_and_that_before_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "storage"
    file.write_text("sqlite:///file.db\n")
    file.chmod(0o600)
    environment = {"TUNE_STORAGE_FILE": str(file)}
    assert storage_of(None, {}) is None
    assert storage_of(None, environment) == "sqlite:///file.db"
    assert storage_of(None, {**environment, "TUNE_STORAGE": URL}) == URL
    assert storage_of("sqlite:///a.db", {"TUNE_STORAGE": URL}) == "sqlite:///a.db"


@pytest.mark.parametrize("content", [None, "", "one\ntwo\n", b"\xff\xfe"])
def test_a_storage_file_without_a_url_is_an_error(content: Any, tmp_path: Path) -> None:
    file = tmp_path / "storage"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(EnvironmentNotReadyError, match="TUNE_STORAGE_FILE"):
        storage_of(None, {"TUNE_STORAGE_FILE": str(file)})


@pytest.mark.parametrize(("mode", "refused"), [(0o604, True), (0o602, True), (0o640, False)])
def test_a_storage_file_that_is_everybodys_is_refused(
    mode: int, refused: bool, tmp_path: Path
) -> None:
    file = tmp_path / "storage"
    file.write_text(URL)
    file.chmod(mode)
    expected = (
        pytest.raises(EnvironmentNotReadyError, match="everybody") if refused else nullcontext()
    )
    with expected as caught:
        assert storage_of(None, {"TUNE_STORAGE_FILE": str(file)}) == URL
    assert not refused or caught.value.hint == f"chmod 600 {file}"


def test_the_server_and_the_load_generator_do_not_get_the_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNE_STORAGE", URL)
    monkeypatch.setenv("TUNE_STORAGE_FILE", "/x")
    monkeypatch.setenv("OTHER", "stays")
    children = children_environment()
    assert children["OTHER"] == "stays"
    assert not {"TUNE_STORAGE", "TUNE_STORAGE_FILE"} & children.keys()


@pytest.mark.parametrize("command", ["run", "worker"])
def test_run_and_worker_take_the_storage_of_the_environment(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tune: Tune
) -> None:
    taken: list[Any] = []

    def stopped(request: Any, *_: Any) -> Any:
        taken.append(request)
        raise EnvironmentNotReadyError("far enough")

    monkeypatch.setattr("tuner.run.run.run", stopped)
    monkeypatch.setattr("tuner.workers.worker.join", stopped)
    monkeypatch.setenv("TUNE_STORAGE", URL)
    monkeypatch.chdir(tmp_path)
    assert tune(command, "m") == 4
    assert taken[0].storage == URL
    assert URL not in taken[0].environment.values()


def test_a_run_keeps_its_command_without_the_password(
    monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    taken: list[Request] = []

    def stopped(request: Request, *_: Any) -> Any:
        taken.append(request)
        raise EnvironmentNotReadyError("far enough")

    arguments = ["run", "spec.yaml", f"--storage={URL}"]
    monkeypatch.setattr("tuner.run.run.run", stopped)
    monkeypatch.setattr("sys.argv", ["tune", *arguments])
    tune(*arguments)
    assert MARK not in " ".join(taken[0].command)


def test_only_a_password_is_warned_of() -> None:
    told: list[str] = []
    for url in (None, "sqlite:///x.db", "postgresql://tuner@db/x"):
        warn_of_password(url, told.append)
    assert told == []
    warn_of_password(URL, told.append)
    assert len(told) == 1
    assert MARK not in told[0]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://tuner:***@db/optuna"),
        (f"postgresql://db/x?password={MARK}", "postgresql://db/x?password=***"),
        (f"postgres:tuner:{MARK}@db", "postgres:..."),
        (f"postgresql//tuner:{MARK}@db", "postgresql//tuner:..."),
        ("nonsense", "nonsense"),
        ("sqlite:///x.db", "sqlite:///x.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert has_password(url) == (MARK in url and "//" in url and "://" in url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (URL, URL),
        (URL, f"password '{MARK}' is wrong"),
        ("postgresql://u:%21hunter2@db/x", "neither %21hunter2 nor !hunter2"),
        ("postgresql://db/x?password=hunter2", "password hunter2"),
    ],
)
def test_what_a_driver_says_is_told_without_the_password(url: str, text: str) -> None:
    reason = hidden_reason(url, RuntimeError(f"{text}\nmore"))
    assert reason
    assert MARK not in reason


def _unreachable(*_: Any, **__: Any) -> Any:
    raise RuntimeError(f"no server answers for {URL}, password {MARK}")


def test_a_storage_with_a_port_that_is_no_number_is_told_as_no_url(
    monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.setenv("TUNE_STORAGE", f"postgresql://tuner:{MARK}@db:port/optuna")
    assert tune("worker", SPEC) == 4
    assert MARK not in tune.err


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("url", [URL, f"postgres:tuner:{MARK}@db"])
def test_a_storage_that_cannot_be_opened_is_told_without_its_password(
    url: str, debug: list[str], monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.setattr("optuna.storages.RDBStorage", _unreachable)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert tune(*debug, "worker", SPEC, "--storage", url) == 4
    assert MARK not in tune.out + tune.err


def test_no_such_run_in_a_storage_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    empty = SimpleNamespace(get_all_studies=list)
    monkeypatch.setattr("tuner.search.study.offer.open_storage", lambda _: empty)
    monkeypatch.setattr("tuner.search.study.offer.close_storage", lambda _: None)
    assert tune("worker", SPEC, "--storage", URL) == 2
    assert MARK not in tune.err


def test_a_url_in_the_wrong_place_is_not_quoted_with_its_password(tune: Tune) -> None:
    assert tune("worker", "m", URL) == 2
    assert MARK not in tune.err
