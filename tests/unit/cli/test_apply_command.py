"""`tune apply` of a run that somebody else made: a config of a model is written, or nothing.

What is said is in `golden/messages/commands-apply.txt`.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.messages_commands import (
    CONTRADICTIONS,
    contradict,
    edit,
    put,
    texts,
    with_code,
    written,
)
from builders.messages_runs import put_one
from builders.runs import BETTER, CONFIG, Toy, edit_config, make_run

from tuner.writeback.plan import sha256_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made"), Toy(trials=5))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A run about a model of a repository that is here; not written yet."""
    put(made, tmp_path)
    return tmp_path / "run"


def tree(directory: Path) -> dict[str, str]:
    """Every file below a directory, with its content."""
    return {
        str(p.relative_to(directory)): p.read_text() if p.is_file() else ""
        for p in directory.rglob("*")
    }


def refused(run: Path, home: Path, tune: Tune) -> str:
    """What is said: the same with and without --dry-run, once, and nothing is changed."""
    before = tree(home)
    said = []
    for options in ([], ["--dry-run"]):
        assert tune("apply", run, *options) in (2, 4)
        out, err = tune.out, tune.err
        assert out == ""
        assert "Traceback" not in err
        assert err.count("error:") == 1
        said.append(err)
    assert said[0] == said[1]
    assert tree(home) == before
    return said[0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    (directory / ".ssh").mkdir(parents=True)
    (directory / ".bashrc").write_text("# stock\n")
    (directory / "work").mkdir()
    return directory


@pytest.mark.parametrize(
    "name",
    [
        ".ssh/authorized_keys",
        ".ssh/config.pbtxt",
        "new",
        "work/config.pbtxt",
        "work/../.ssh/config.pbtxt",
        "toy/config.pbtxt",
    ],
)
def test_a_run_that_names_another_file_creates_none(
    run: Path, home: Path, name: str, tune: Tune
) -> None:
    edit_config(run, path=str(home / name), sha256=None, text="")
    assert "toy" in refused(run, home, tune)


def test_a_file_whose_content_is_known_is_not_replaced(run: Path, home: Path, tune: Tune) -> None:
    stock = (home / ".bashrc").read_text()
    edit_config(run, text=stock, sha256=sha256_of(stock), path=str(home / ".bashrc"))
    edit(run, "result", texts("rm -rf ~\n"))
    assert "/.bashrc" in refused(run, home, tune)


def test_a_link_in_a_model_directory_leads_nowhere_else(
    run: Path, home: Path, tmp_path: Path, tune: Tune
) -> None:
    stock = (home / ".bashrc").read_text()
    edit_config(run, text=stock, sha256=sha256_of(stock))
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    config.unlink()
    config.symlink_to(home / ".bashrc")
    assert "leads to" in refused(run, home, tune)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_config_that_links_to_a_device_is_refused_at_once(
    run: Path, home: Path, tmp_path: Path, kind: str, tune: Tune
) -> None:
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    config.unlink()
    if kind == "pipe":
        os.mkfifo(config)
    elif kind == "directory":
        config.mkdir()
    else:
        config.symlink_to("/dev/zero")
    assert "is no config" in refused(run, home, tune)
    edit(run, "result", {"written": written(config)})
    assert tune("report", run) == 0


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_run_that_contradicts_itself_is_refused(
    run: Path, home: Path, name: str, tune: Tune
) -> None:
    contradict(run, name)
    assert refused(run, home, tune)


def test_field_that_may_choose_code_is_written_only_if_the_spec_of_the_user_searches_it(
    run: Path, home: Path, tune: Tune, tmp_path: Path
) -> None:
    with_code(run, "EXECUTION_ENV_PATH")
    assert "toy/parameters.EXECUTION_ENV_PATH" in refused(run, home, tune)
    spec = tmp_path / "own.yaml"
    for searched, code in (("/y", 2), ("/x", 0)):
        space = f"{{parameters.EXECUTION_ENV_PATH: {{choice: [unset, {searched}]}}}}"
        text = f"model: toy\nrepository: models\nslo: [p99_latency <= 40ms]\nspace: {space}\n"
        spec.write_text(text)
        assert tune("apply", run, spec, "--dry-run") == code
    assert f"next:  tune apply {run} {spec}\n" in tune.err
    assert tune("apply", run, spec) == 0
    assert "EXECUTION_ENV_PATH" in (tmp_path / "models" / "toy" / "config.pbtxt").read_text()


def test_no_patch_of_another_file_is_proposed(run: Path, home: Path, tune: Tune) -> None:
    (home / ".git").mkdir()
    edit_config(run, path=str(home / ".github" / "workflows" / "ci.yml"))
    assert tune("report", run, "--format", "patch") == 2
    out, err = tune.out, tune.err
    assert "'toy'" in err
    assert "diff --git" not in out
    assert not (run / "best" / "proposal.patch").exists()


def test_written_file_and_its_diff_are_printed(run: Path, tmp_path: Path, tune: Tune) -> None:
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    real = tmp_path / "models" / "configs" / "toy.pbtxt"
    real.parent.mkdir()
    config.rename(real)
    config.symlink_to(real)
    assert tune("apply", run, "--dry-run") == 0
    diff = tune.out
    assert real.read_text() == CONFIG
    assert tune("apply", run) == 0
    assert tune.out.startswith(f"{diff}written: {real}\nbackup: {real.parent}/.toy.pbtxt.tune.")
    assert real.read_text() == BETTER


def test_a_run_from_another_machine_is_applied_to_the_repository_that_is_named(
    run: Path, tmp_path: Path, tune: Tune
) -> None:
    edit_config(run, path="/ci/models/toy/config.pbtxt")
    assert tune("apply", run) == 4
    here = ["--repository", str(tmp_path / "models")]
    assert tune("apply", run, *here, "--dry-run") == 0
    assert tune("apply", run, *here) == 0
    assert (tmp_path / "models" / "toy" / "config.pbtxt").read_text() == BETTER


def test_the_copy_of_an_edit_that_force_replaces_is_named(
    run: Path, tmp_path: Path, tune: Tune
) -> None:
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    assert tune("apply", run) == 0
    edited = f"{config.read_text()}# mine\n"
    config.write_text(edited)
    back = ("rollback", "toy", "--repository", tmp_path / "models")
    assert tune(*back) == 13
    assert tune(*back, "--force") == 0
    assert config.read_text() == CONFIG
    (line,) = (line for line in tune.out.splitlines() if line.startswith("backup: "))
    assert Path(line.removeprefix("backup: ")).read_text() == edited


def test_a_run_of_a_model_without_a_config_is_applied_and_taken_back(
    run: Path, tmp_path: Path, tune: Tune
) -> None:
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    config.unlink()
    _, field, rest = BETTER.partition("max_batch_size")
    alone = field + rest.replace("\n\n", "\n")
    edit(run, "result", texts(alone))
    edit_config(run, text="", sha256=None)
    assert tune("apply", run) == 0
    assert config.read_text() == alone
    assert tune("rollback", "toy", "--repository", tmp_path / "models") == 0
    assert not config.exists()


def test_write_is_recorded_where_the_output_cannot_be_printed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """As with `| head -1`, or a full disk behind `>`."""
    with suppress(OSError, SystemExit), Path("/dev/full").open("w") as full:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", io.StringIO())  # click wraps both where one is closed
            patch.setattr("sys.stdout", full)
            tune("apply", run)
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    assert config.read_text() != CONFIG
    recorded = json.loads((run / "result.json").read_text())["written"]
    assert recorded["sha256_after"] == sha256_of(config.read_text())


def test_configs_by_load_are_written_beside_config_pbtxt_and_rolled_back_together(
    tmp_path: Path, tune: Tune
) -> None:
    run = put_one(tmp_path)
    model = tmp_path / "models" / "toy"
    before = (model / "config.pbtxt").read_bytes()
    assert tune("apply", run, "--by-load", "--dry-run") == 0
    assert not (model / "configs").exists()
    assert tune("apply", run, "--by-load") == 0
    names = sorted(path.name for path in (model / "configs").glob("*.pbtxt") if path.name[0] != ".")
    assert names == ["load-100.pbtxt", "load-20.pbtxt", "load-50.pbtxt"]
    assert (model / "config.pbtxt").read_bytes() == before
    assert tune("apply", run, "--by-load") == 0
    assert "already there" in tune.out
    assert tune("rollback", "toy", "--repository", tmp_path / "models") == 0
    assert list((model / "configs").glob("load*.pbtxt")) == []
