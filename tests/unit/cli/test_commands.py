"""Commands that start nothing."""

from __future__ import annotations

import errno
import json
import re
import runpy
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import click
import pytest
import yaml
from builders.commands import Tune
from builders.messages_runs import put_one, write_twice
from builders.model_files import copy_examples
from builders.runs import CONFIG, Toy, make_run
from builders.workplace import Workplace, interrupt

from tuner.cli import COMMANDS, EXAMPLES, cli
from tuner.cli.reference import with_commands
from tuner.cli.ui import UIS
from tuner.errors import EnvironmentNotReadyError
from tuner.prepare.job import Request
from tuner.progress.events import Outlook
from tuner.progress.follower import RunProgress
from tuner.record.result_schema import check
from tuner.run import models
from tuner.run import run as pipeline
from tuner.run.series import checked_jobs
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin

ROOT = Path(__file__).parents[3]


def test_the_package_is_the_command_where_another_one_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray installs a command `tune`: `findings/ray-installs-a-command-named-tune.sh`."""
    monkeypatch.setattr(sys, "argv", ["tuner", "plan", str(tmp_path / "none.yaml")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tuner", run_name="__main__")
    assert ended.value.code == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["emulated-accelerator", "tiny-bert", "tokenizer", "nlp"])
def test_init_drafts_a_spec_that_loads(model: str, tmp_path: Path, tune: Tune) -> None:
    from tuner.prepare.job import Request, prepare
    from tuner.spec.load import load_spec

    target = tmp_path / "spec.yaml"
    arguments = ["init", model, "--repository", str(ROOT / "model_repository")]
    assert tune(*arguments, "--output", target) == 0
    assert load_spec(target).spec.name == model
    assert prepare(Request(spec=target)).space.size().count > 1
    assert tune(*arguments, "--output", target) == 2
    assert "--force" in tune.err


@pytest.mark.parametrize(
    ("options", "server"),
    [
        (["--image", "triton:26.09"], {"mode": "docker", "image": "triton:26.09"}),
        (
            ["--server", "gpu-7"],
            {"mode": "remote", "http": "gpu-7:8000", "grpc": "gpu-7:8001", "metrics": "gpu-7:8002"},
        ),
    ],
)
def test_init_drafts_the_server_that_is_named(
    options: list[str], server: dict[str, str], tune: Tune
) -> None:
    arguments = ["init", "tiny-bert", "--repository", str(ROOT / "model_repository")]
    assert tune(*arguments, "--output", "-", *options) == 0
    assert yaml.safe_load(tune.out)["server"] == server


def test_init_drafts_for_the_config_that_is_named(tmp_path: Path, tune: Tune) -> None:
    from tuner.spec.load import load_spec

    model = tmp_path / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text("")
    (model / "configs").mkdir()
    (model / "config.pbtxt").write_text('backend: "python" max_batch_size: 2')
    (model / "configs" / "a100.pbtxt").write_text('backend: "python" max_batch_size: 64')
    target = str(tmp_path / "m.yaml")
    arguments = ["init", str(model), "--output", target, "--write-to", "configs/a100.pbtxt"]
    assert tune(*arguments) == 0
    assert load_spec(Path(target)).spec.write_to == "configs/a100.pbtxt"
    assert "64 in config" in Path(target).read_text()


def test_init_drafts_a_container_where_the_server_here_lacks_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").touch()
    (tmp_path / "backends" / "python").mkdir(parents=True)
    (tmp_path / "backends" / "python" / "libtriton_python.so").touch()
    wheel = Installation(Path("tritonserver"), "2.51.0", Origin.WHEEL, {}, tmp_path / "backends")
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: nullcontext(wheel))
    assert tune("init", "m", "--repository", tmp_path, "--output", "-") == 0
    assert yaml.safe_load(tune.out)["server"]["mode"] == "docker"


def test_report_lists_what_each_run_gained(tmp_path: Path, tune: Tune) -> None:
    run = make_run(tmp_path, Toy(trials=5))
    result = json.loads((run / "result.json").read_text())
    assert tune("report", "--output", tmp_path, "--format", "json") == 0
    (row,) = json.loads(tune.out)
    assert (row["run"], row["status"], row["model"]) == (str(run), "improved", "toy")
    rounds = [r["measurement"] for r in result["winner"]["rounds"]]
    worst = min(rounds, key=lambda round_: round_["throughput_infer_per_s"])
    assert row["p99_latency_ms"] == worst["p99_latency_us"] / 1000
    assert row["took_s"] == result["time"]["wall_s"]
    assert "instances" in row["change"]
    ratio = result["gain"]["ratio"]["low"]
    assert row["gain"] == f"at least {ratio - 1:+.0%}"


def test_reports_say_what_apply_and_rollback_did(tmp_path: Path, tune: Tune) -> None:
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    run = put_one(tmp_path).rename(tmp_path / "20250301-100000-toy-improved")  # its id
    undo = f"tune rollback toy --repository {tmp_path / 'models'}"

    assert tune("apply", run) == 0
    written = json.loads((run / "result.json").read_text())["written"]
    assert written["path"] == str(config)
    assert check(json.loads((run / "result.json").read_text())) == []
    report = (run / "report.md").read_text()
    assert undo in report
    assert "write it" not in report
    assert tune("apply", run) == 0  # there already: what was written first stays
    assert json.loads((run / "result.json").read_text())["written"] == written

    rollback = ["rollback", "toy", "--repository", str(tmp_path / "models")]
    assert tune(*rollback, "--output", tmp_path) == 0
    report = (run / "report.md").read_text()
    assert undo not in report
    assert f"`tune apply {run}`" in report
    assert tune("report", "--output", tmp_path) == 0
    assert "\nBetter, taken back  " in tune.out
    assert tune("report", "--output", tmp_path, "--format", "json") == 0
    (row,) = json.loads(tune.out)
    assert (row["status"], row["taken_back"]) == ("improved", True)
    assert tune(*rollback, "--output", tmp_path / "elsewhere") == 0
    assert "tune report RUN" in tune.err


def test_result_without_its_run_is_rendered(tune: Tune) -> None:
    sample = ROOT / "results" / "sample"
    before = sorted((path.name, path.stat().st_mtime_ns) for path in sample.iterdir())
    assert tune("report", sample) == 0
    verdict = f"\nemulated-accelerator: Better\n  report: {sample / 'report.html'}\n"
    assert tune.out.endswith(verdict)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in sample.iterdir()) == before
    for command in (["report", "--format", "json"], ["compare", sample]):
        assert tune(*command, sample) == 2


def test_a_run_can_be_named_to_take_its_write_back_if_that_is_the_last(
    tmp_path: Path, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_twice(tmp_path)
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    written = config.read_text()
    assert written != CONFIG
    assert tune("rollback", "earlier", "--output", tmp_path) == 13
    assert config.read_text() == written
    assert tune("rollback", "later", "--output", tmp_path) == 0
    assert config.read_text() == CONFIG


def test_a_runs_directory_is_not_enough_to_change_a_repository_that_nobody_named(
    tmp_path: Path, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, repository = put_one(tmp_path), tmp_path / "models"
    config = repository / "toy" / "config.pbtxt"
    assert tune("apply", run) == 0
    written = config.read_text()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tune("rollback", run) == 2
    assert config.read_text() == written
    for here in (tmp_path, config.parent):
        monkeypatch.chdir(here)
        assert tune("rollback", run, "--dry-run") == 0
        assert f"would restore: {config}\n" in tune.err
        assert config.read_text() == written
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tune("rollback", run, "--repository", repository) == 0
    assert config.read_text() == CONFIG


def _model(repository: Path, name: str, config: str, code: str = "") -> None:
    directory = repository / name / "1"
    directory.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    (directory / "model.py").write_text(code or "class TritonPythonModel:\n  execute = None\n")


def test_init_takes_the_path_of_a_model_for_its_name(tmp_path: Path, tune: Tune) -> None:
    _model(tmp_path, "m", 'backend: "python" max_batch_size: 8')
    assert tune("init", f"{tmp_path}/m/", "--output", "-") == 0
    assert "\nmodel: m\n" in tune.out


def test_init_makes_the_directory_that_it_writes_to(tmp_path: Path, tune: Tune) -> None:
    _model(tmp_path, "m", 'backend: "python" max_batch_size: 8')
    target = tmp_path / "new" / "deep" / "spec.yaml"
    assert tune("init", "m", "--repository", tmp_path, "--output", target) == 0
    assert "repository: ../.." in target.read_text()


def test_a_draft_that_finds_no_room_leaves_no_file_or_the_old_one(
    tmp_path: Path, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    _model(tmp_path, "m", 'backend: "python" max_batch_size: 8')

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    spec = tmp_path / "m.yaml"
    arguments = ["init", "m", "--repository", str(tmp_path), "--output", str(spec)]
    assert tune(*arguments) == 4
    assert f"cannot write {spec}: " in tune.err
    assert not spec.exists()
    spec.write_text("# mine\n")
    assert tune(*arguments, "--force") == 4
    assert spec.read_text() == "# mine\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "m.yaml"]


def test_a_model_whose_code_asks_others_is_drafted_with_them_and_the_draft_can_be_planned(
    tmp_path: Path, tune: Tune
) -> None:
    from tuner.prepare.job import Request, prepare

    repository = tmp_path / "models"
    calls = (
        "class TritonPythonModel:\n    def execute(self, requests):\n"
        '        return [pb_utils.InferenceRequest(model_name="callee").exec()]\n'
    )
    tensors = 'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
    tensors += 'output { name: "y" data_type: TYPE_FP32 dims: 4 }'
    _model(repository, "m", f'backend: "python" max_batch_size: 8 {tensors}', calls)
    _model(repository, "callee", f'backend: "python" max_batch_size: 8 {tensors}')
    target = tmp_path / "spec.yaml"
    arguments = ["init", "m", "--repository", str(repository), "--output", str(target)]
    assert tune(*arguments) == 0
    job = prepare(Request(spec=target))
    assert job.served.models["m"].parts == ("callee",)
    assert {p.knob.owner for p in job.space.parameters} == {"m", "callee"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_examples(tmp_path / "models")


def test_drafted_models_run_together_and_the_others_get_a_reason(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    (repository / "empty" / "1").mkdir(parents=True)
    (repository / "lost+found").mkdir()
    real, read = models.parts_of, list[str]()
    monkeypatch.setattr(models, "parts_of", lambda *of: read.append(of[1]) or real(*of))
    assert tune("init", "models", "--all", "--image", "an-image") == 0
    said = tune.out
    specs = sorted(Path("specs").iterdir())
    assert [spec.stem for spec in specs] == ["bert-onnx", "emulated-accelerator", "nlp"]
    left_out = {name: line for line in said.splitlines() for name in ("tokenizer", "nlp-bls")
                if line.startswith(f"left out {name}: ")}  # fmt: skip
    assert all(line.endswith(" nlp") for line in left_out.values())
    assert len(left_out) == 2
    assert "left out empty: " in said
    assert "lost+found" not in said
    assert len(checked_jobs(specs, Request(Path()), print)) == 3
    assert sorted(read) == sorted(set(read))  # once each


def test_a_spec_that_exists_is_kept_unless_it_is_forced(repository: Path, tune: Tune) -> None:
    Path("specs").mkdir()
    mine = Path("specs/nlp.yaml")
    mine.write_text("mine\n")
    assert tune("init", "models", "--all", "--image", "an-image") == 0
    assert mine.read_text() == "mine\n"
    assert tune("init", "models", "--all", "--image", "an-image", "--force") == 0
    assert mine.read_text() != "mine\n"


PAGE = (ROOT / "docs" / "cli.md").read_text()
READ = re.compile(r"(?:environ(?:ment)?\.get\(|VARIABLE = )\"([A-Z_]+)\"|\"(TUNE_[A-Z_]+)\"")


def test_the_page_has_the_commands_as_they_are() -> None:
    """Else: python -m tuner.cli.reference docs/cli.md."""
    assert with_commands(PAGE) == PAGE


def test_each_variable_that_the_command_line_reads_is_named() -> None:
    programs = [ROOT / "tuner" / "server" / name for name in ("binaries.py", "wheel.py")]
    sources = [*(ROOT / "tuner" / "cli").glob("*.py"), *programs]
    code = "".join(source.read_text() for source in sources)
    names = {a or b for a, b in READ.findall(code)} - {
        "PATH",
        "HOME",
        "LD_LIBRARY_PATH",
        "NO_PROXY",
        "TERM",
    }
    assert {"TUNE_DEBUG", "TUNE_TRITONSERVER", "NO_COLOR"} <= names
    assert names <= set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize("command", ["init m", "init --all", "rollback m"])
def test_where_there_is_no_model_repository_the_option_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tune(*command.split()) == 4
    assert "error: there is no directory model_repository here\n" in tune.err
    assert f"next:  name your model repository: tune {command} --repository DIR\n" in tune.err


def test_every_command_has_two_examples_that_its_options_allow() -> None:
    top = click.Context(cli, info_name="tune")
    assert [*EXAMPLES] == [*COMMANDS]
    for name, lines in EXAMPLES.items():
        command = cli.get_command(top, name)
        assert command is not None
        help_text = command.get_help(click.Context(command, parent=top, info_name=name))
        assert len(lines) == 2
        for line in lines:
            assert f"  {line}\n" in f"{help_text}\n"
            words = shlex.split(
                re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).split(" > ")[0].split(" | ")[0]
            )
            assert words[:2] == ["tune", name]
            options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            assert {w for w in words if w.startswith("-")} <= options


def test_progress_as_json_is_a_line_for_each_event_on_stdout_and_no_report(
    workplace: Workplace,
) -> None:
    assert workplace.tune("run", "my spec.yaml", "--progress", "json") == 0
    lines = [json.loads(line) for line in workplace.tune.out.splitlines()]
    assert lines[0]["event"] == "step"
    assert {"started", "trial", "outlook", "note"} <= {line["event"] for line in lines}
    run = str(workplace.store.directory.relative_to(workplace.results.parent))
    last = {"event": "ended", "run": run, "state": "improved", "exit_code": 0}
    assert {**lines[-1], "at_s": 0} == {**last, "at_s": 0}


def test_the_last_line_of_json_names_a_stopped_run_too(workplace: Workplace) -> None:
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "my spec.yaml", "--progress", "json") == 130
    lines = [json.loads(line) for line in workplace.tune.out.splitlines()]
    (last,) = [line for line in lines if line["event"] == "ended"]
    run = str(workplace.store.directory.relative_to(workplace.results.parent))
    expected = {"event": "ended", "run": run, "state": "interrupted", "exit_code": 130}
    assert {**last, "at_s": 0} == {**expected, "at_s": 0, "text": "interrupted"}
    assert lines[-1] == last


def test_progress_as_json_ends_with_the_error(workplace: Workplace) -> None:
    workplace.spec.write_text("model: [")
    assert workplace.tune("run", "my spec.yaml", "--progress", "json") == 2
    (line,) = map(json.loads, workplace.tune.out.splitlines())
    assert (line["event"], line["state"], line["exit_code"]) == ("ended", "failed", 2)
    assert "my spec.yaml:1:" in line["text"]
    assert workplace.tune("run", "x.yaml", "--progress", "json", "--format", "json") == 2
    assert "give one of them" in workplace.tune.err


def test_several_runs_as_json_name_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    with UIS["json"](0).runs() as view:
        view("toy", RunProgress("trial 3", 6, 3, 412.0, Outlook(95.0, 1.31)))
        view("toy", "a note")
        view("toy", None)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["event"], first["model"], first["done"], first["gain"]) == (
        "progress",
        "toy",
        3,
        1.31,
    )
    assert second == {"event": "note", "model": "toy", "text": "a note"}


def test_run_of_a_model_drafts_a_spec_into_the_directory_of_the_run(workplace: Workplace) -> None:
    model = workplace.config.parent
    words = ["run", model, "--slo", "p99_latency <= 40ms", "--set", "search={strategy: random}"]
    assert workplace.tune(*words, "--trials", "3") == 0
    spec = workplace.store.directory / "spec.yaml"
    assert f"drafted {spec.relative_to(Path.cwd())}" in workplace.tune.err
    assert "p99_latency <= 40ms" in spec.read_text()
    assert workplace.result["status"] == "improved"
    assert workplace.result["written"]["path"] == str(workplace.config)


def test_run_of_a_model_needs_an_slo_and_a_draft_needs_a_model(workplace: Workplace) -> None:
    model = workplace.config.parent.relative_to(Path.cwd())
    assert workplace.tune("run", model) == 2
    assert f"tune run '{model}' --slo 'p99_latency <= 50ms'" in workplace.tune.err
    assert workplace.tune("run", "my spec.yaml", "--slo", "p99_latency <= 40ms") == 2
    assert "--set 'slo=[p99_latency <= 40ms]'" in workplace.tune.err
    assert workplace.tune("run", "a", "b", "--slo", "p99_latency <= 40ms") == 2
    assert workplace.tune("run", "no-such", "--slo", "p99_latency <= 40ms") == 4
    assert not workplace.results.exists()


def test_run_of_a_model_whose_results_cannot_be_stored_is_refused(workplace: Workplace) -> None:
    workplace.results.mkdir()
    occupied = workplace.results / "file"
    occupied.write_text("")
    words = ["run", workplace.config.parent, "--slo", "p99_latency <= 40ms"]
    assert workplace.tune(*words, "--output", occupied / "results") == 4
    assert "cannot write" in workplace.tune.err
    assert [*workplace.results.iterdir()] == [occupied]


def test_run_of_a_model_that_does_not_begin_leaves_no_directory(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", workplace.config.parent, "--slo", "p99_latency <= 40ms"]

    def taken(_: object) -> NoReturn:
        raise EnvironmentNotReadyError("the model is being measured", "wait until it ends")

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "only_one_on", taken)
        assert workplace.tune(*words) == 4
    assert "spec.yaml, since the run did not begin" in workplace.tune.err
    assert [*workplace.results.iterdir()] == []
    assert workplace.tune(*words, "--set", "slo=[p99_latency <= 4]") == 2
    assert [*workplace.results.iterdir()] == []


def test_draft_whose_lines_an_error_names_is_kept(workplace: Workplace) -> None:
    slos = ["--slo", "p99_latency <= 40ms", "--slo", "throughput >= 300/s"]
    assert workplace.tune("run", workplace.config.parent, *slos) == 2
    (draft,) = workplace.results.glob("*/spec.yaml")
    assert f"{draft.relative_to(Path.cwd())}:" in workplace.tune.err


def test_report_why_explains_a_run_and_refuses_what_is_none(tmp_path: Path, tune: Tune) -> None:
    run = make_run(tmp_path, Toy(trials=8))
    assert tune("report", run, "--why") == 0
    assert "why this config" in tune.out
    assert "where the time of the run went" in tune.out
    assert tune("report", run, "--why", "--format", "markdown") == 0
    assert "Why this config" in tune.out
    assert tune("report", run, "--why", "--format", "json") == 2
    assert tune("report", "--why") == 2
