"""A run and four workers on a real PostgreSQL, with emulated measurements; two come to harm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from builders.e2e_workplace import MODEL, Workplace
from builders.emulated_tune import SPEC
from builders.model_files import copy_examples
from builders.spaces import INSTANCES, space_of
from builders.waits import wait_until
from sqlalchemy import event

from tuner.machine.process import ADDRESS, free_ports
from tuner.score.trial import Trial, Worker
from tuner.search.study.record import StudyRecord
from tuner.spec.slo import Objective

DEBIAN = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
INITDB = shutil.which("initdb") or max(DEBIAN, default="")
PASSWORD = "hunter2"
RUNNING, FAILED, FINISHED = ("RUNNING",), ("FAIL",), ("COMPLETE", "PRUNED")
CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
#: In the order of a grid, what is free again is proposed next; nobody gets to the end of this one.
COUNTS = f"{{choice: {list(range(1, 201))}}}"


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database, as its superuser."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    if not INITDB:
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "password").write_text(PASSWORD)
        as_user = []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            try:
                for path in (name, f"{name}/password"):
                    shutil.chown(path, "postgres", "postgres")
            except LookupError:
                pytest.skip("root cannot start PostgreSQL without a user called postgres")
        who = ["--username=tuner", "--auth=scram-sha-256", f"--pwfile={name}/password"]
        make = [*as_user, INITDB, *who, "--locale=C", "-EUTF8", "--no-sync", f"{name}/data"]
        subprocess.run(make, cwd=name, check=True, capture_output=True)
        with free_ports(1) as (port,):
            where = [f"--listen_addresses={ADDRESS}", f"--port={port}"]
        server = Path(INITDB).resolve().with_name("postgres")
        serve = [*as_user, server, "-D", f"{name}/data", "--unix_socket_directories=", *where]
        log = Path(name) / "log"
        with log.open("w") as file, subprocess.Popen(serve, cwd=name, stderr=file) as process:
            try:
                wait_until(lambda: "ready to accept" in log.read_text())
                yield f"postgresql+psycopg://tuner:{PASSWORD}@{ADDRESS}:{port}/postgres"
            finally:
                process.send_signal(signal.SIGINT)  # ends its connections, then itself


@pytest.fixture
def place(tmp_path: Path, url: str) -> Iterator[Workplace]:
    copy_examples(tmp_path / "repository", MODEL)
    spec = (SPEC % 600).replace("random", "grid").replace("{int: [1, 4]}", COUNTS)
    (tmp_path / "spec.yaml").write_text(spec)
    environment = {
        "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}",
        "TUNE_STORAGE": url,
        "EMULATED_PAUSE_S": "0.5",
        "EMULATED_POLL_S": "0.1",
        "EMULATED_GRACE_S": "8",
    }
    place = Workplace(tmp_path, "from builders.emulated_tune import main; main()", environment)
    yield place
    for process in place.children():
        process.kill()


class Study:
    """The database's own content."""

    def __init__(self, url: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.storage = optuna.storages.RDBStorage(url)
        self.url = url.replace("+psycopg", "")

    def claimed(self, states: tuple[str, ...], gpus: str = "") -> list[str]:
        """The candidates of claims in these states: of the worker on these GPUs, or anybody's."""
        trials = optuna.load_study(study_name=MODEL, storage=self.storage).trials
        by = [t for t in trials if gpus in ("", t.user_attrs.get("worker", {}).get("gpus"))]
        return [t.user_attrs["candidate"] for t in by if t.state.name in states]

    def stop_in_trial(self, worker: subprocess.Popen[str], gpus: str) -> str:
        """The candidate of the trial in which the worker on these GPUs stands still from now on."""
        for _ in range(50):
            worker.send_signal(signal.SIGSTOP)
            time.sleep(0.2)  # the database has heard its last words
            if held := self.claimed(RUNNING, gpus):
                return held[0]
            worker.send_signal(signal.SIGCONT)
            time.sleep(0.2)
        raise AssertionError("it never had a trial")

    def do(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


@pytest.fixture
def study(url: str) -> Iterator[Study]:
    study = Study(url)
    yield study
    study.storage.remove_session()
    study.storage.engine.dispose()


@pytest.mark.parametrize("statement", ["FOR UPDATE", "FROM trials", "INSERT INTO trial_user"])
def test_a_connection_lost_at_any_statement_of_a_transaction_is_made_again(
    url: str, study: Study, statement: str
) -> None:
    """After some of them Optuna goes on, in a transaction that is lost."""
    space = space_of({INSTANCES: {"int": [1, 3]}})
    candidate = next(c for c in space.enumerate() if c != space.canonical(space.current))
    worker, notes, cut = Worker("box", "1"), list[str](), list[str]()

    def cut_off(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        if statement in text and not cut:
            cut.append(text)
            study.do(f"{CUT_OFF} WHERE pid != pg_backend_pid() AND datname = 'postgres'")

    with StudyRecord(url, "m", "run", space, Objective.goodput(), worker, notes.append) as record:
        event.listen(record._storage.engine, "before_cursor_execute", cut_off)
        assert record.started(1, candidate)
        assert [claim.candidate_key for claim in record.claims()] == [candidate.key]
    assert len(cut) == len(notes) == 1
    assert "is out of reach" in notes[0]


@pytest.mark.long
def test_of_four_workers_one_is_killed_and_one_is_cut_off_and_no_trial_is_lost_or_repeated(
    place: Workplace, url: str, study: Study
) -> None:
    study.do(f"CREATE ROLE guest SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    as_guest = {**place.environment, "TUNE_STORAGE": url.replace("tuner", "guest")}
    places = (place, replace(place, environment=as_guest), place, place)
    processes = [place.start("run", "spec.yaml")]
    try:
        place.wait_for_trials(1)
        processes += [
            p.start("worker", "spec.yaml", f"--gpus={n}") for n, p in enumerate(places, 1)
        ]
        run, killed, cut_off, *_ = processes
        wait_until(lambda: all(study.claimed(RUNNING, gpus) for gpus in "1234"), 60)
        lost = study.stop_in_trial(killed, "1")
        killed.kill()
        late = study.stop_in_trial(cut_off, "2")
        study.do("ALTER ROLE guest NOLOGIN")
        study.do(f"{CUT_OFF} WHERE usename = 'guest'")
        cut_off.send_signal(signal.SIGCONT)
        wait_until(lambda: late in study.claimed(FAILED, "2"), 60)
        wait_until(lambda: late in study.claimed(RUNNING + FINISHED), 60)  # somebody else has it
        before = study.claimed(FINISHED, "2")
        study.do("ALTER ROLE guest LOGIN")
        wait_until(lambda: len(study.claimed(FINISHED, "2")) > len(before), 60)
        wait_until(lambda: {lost, late} <= {*study.claimed(FINISHED)}, 60)
        wait_until(lambda: all(study.claimed(FINISHED, gpus) for gpus in "34"), 60)
        in_time = study.claimed(FINISHED)
        place.wait_for_trials(len(in_time))
        run.send_signal(signal.SIGINT)
        ended = [place.finish(process) for process in processes]
    except BaseException:
        for process in processes:
            code = process.poll()
            process.kill()
            print(process.args[3:], code, *process.communicate(), sep="\n")
        raise

    assert study.claimed(FAILED, "1").count(lost) == 1
    finished = study.claimed(FINISHED)
    assert len({*finished}) == len(finished)
    trials = [Trial.from_json(trial) for trial in place.trials()]
    keys = [trial.candidate.key for trial in trials]
    assert len({*keys}) == len(keys)
    assert {*in_time} <= {*keys}
    assert {trial.worker.gpus for trial in trials if trial.worker} >= {"2", "3", "4"}
    said = "".join(done.stdout + done.stderr for done in ended)
    assert [done.returncode for done in ended] == [130, -signal.SIGKILL, 0, 0, 0], said
    assert said.count("GPUs 1: its config is free again") <= 1, said
    assert "out of reach" in ended[2].stderr
    assert "somebody else took its config" in ended[2].stderr
    assert PASSWORD not in said
