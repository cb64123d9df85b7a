"""Errors as messages, exit codes, and what GitHub Actions reads."""

from __future__ import annotations

import platform
import signal
from contextlib import nullcontext, suppress
from pathlib import Path

import click
import pytest
from builders.commands import Tune

from tuner import __version__, errors
from tuner.cli import COMMANDS
from tuner.cli.boundary import ci_annotations, exit_codes_table, wanted_color
from tuner.cli.terminal import annotation, append_step_summary, append_summary
from tuner.errors import (
    EnvironmentNotReadyError,
    InterruptedRunError,
    StalePlanError,
    TrialError,
    TunerError,
)
from tuner.machine.stop import Stop
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin


def all_errors(root: type[TunerError]) -> list[type[TunerError]]:
    return [root, *(e for child in root.__subclasses__() for e in all_errors(child))]


def test_exit_codes_are_unique_but_for_outcomes_of_trials() -> None:
    codes = list(errors.ENDINGS)
    codes += [
        e.exit_code
        for e in all_errors(TunerError)
        if e.__module__ == errors.__name__ and not issubclass(e, TrialError)
    ]
    assert len(codes) == len(set(codes))
    assert sorted(codes) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 130]


def test_help_lists_every_exit_code_and_command(tune: Tune) -> None:
    assert tune("--help") == 0
    out = tune.out
    for name in COMMANDS:
        assert f"  {name} " in out
    for line in exit_codes_table().splitlines()[2:]:
        assert line.split()[0] in out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, tune: Tune) -> None:
    assert tune(name, "--help") == 0
    out = tune.out
    assert "Usage: tune" in out
    assert len(out.splitlines()) > 4


def test_a_run_whose_name_no_directory_can_have_is_one_that_is_not_there(tune: Tune) -> None:
    assert tune("report", "x" * 300) == 2
    assert f"'{'x' * 300}'" in tune.err


def failing(error: Exception) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def test_error_on_stderr_names_the_next_step(tune: Tune) -> None:
    assert tune(command=failing(StalePlanError("it changed", "run again"))) == 13
    assert tune.out == ""
    assert "it changed" in tune.err
    assert "run again" in tune.err


def test_interruption_is_no_error(tune: Tune) -> None:
    assert tune(command=failing(InterruptedRunError("interrupted", "go on with: x"))) == 130
    assert tune.err == "interrupted\nnext:  go on with: x\n"


@pytest.mark.parametrize(
    ("arguments", "begun", "said"),
    [
        (["run", "spec.yaml"], False, "stopped before anything started"),
        (["check", "spec.yaml"], True, "stopped"),
        (["apply", "run"], False, "stopped"),
    ],
)
def test_ctrl_c_before_anything_is_begun_says_so(
    arguments: list[str], begun: bool, said: str, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1)
    def command(words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stop, "begun", begun)
    assert tune(*arguments, command=command) == 130
    assert tune.err.strip() == said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_error_that_code_in_c_makes_of_an_interruption_is_the_interruption(
    number: signal.Signals, tune: Tune
) -> None:
    @click.command()
    def command() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise ImportError("numpy._core.multiarray failed to import")

    assert tune(command=command) == 130
    assert tune.err == "stopped\n"


def test_a_second_ctrl_c_does_not_interrupt_what_the_first_one_ends(tune: Tune) -> None:
    ended = []

    @click.command()
    def command() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            ended.append(True)

    assert tune(command=command) == 130
    assert (ended, tune.err.strip()) == ([True], "stopped")


def test_a_defect_shows_its_traceback_and_exits_with_one(tune: Tune) -> None:
    assert tune(command=failing(ZeroDivisionError("oops"))) == 1
    assert "Traceback" in tune.err
    assert "defect in tune" in tune.err


def test_annotations_of_other_errors_are_escaped() -> None:
    (line,) = ci_annotations(TunerError("50%\nof two"))
    assert line == "::error title=tune::50%25%0Aof two"


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, None),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"NO_COLOR": ""}, None),
        ([], {"TERM": "dumb"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color=never"], {}, False),
        (["--color=auto"], {"TERM": "dumb"}, False),
    ],
)
def test_colours_follow_the_option(
    arguments: list[str],
    environment: dict[str, str],
    expected: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    tune: Tune,
) -> None:
    assert wanted_color(arguments, environment) is expected
    monkeypatch.setattr("os.environ", environment)
    for command, code in (("report nothing", 2), ("schema --nothing", 2), ("lint /nothing", 4)):
        assert tune(*arguments, *command.split()) == code
        assert ("\x1b[31m" in tune.err) == (expected is True)


def test_the_version_names_what_it_runs_on(monkeypatch: pytest.MonkeyPatch, tune: Tune) -> None:
    def lacking(*_: object) -> None:
        raise EnvironmentNotReadyError("none found")

    server = Installation(Path("/opt/tritonserver"), "2.51.0", Origin.PATH, {})
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: nullcontext(server))
    monkeypatch.setattr(binaries, "perf_analyzer", lacking)
    assert tune("--version") == 0
    version, host, *programs = tune.out.splitlines()
    assert version == f"tune, version {__version__}"
    assert host.startswith(f"Python {platform.python_version()}, Linux ")
    assert programs == [
        "tritonserver 2.51.0, /opt/tritonserver",
        "perf_analyzer: none found",
    ]


def test_annotations_are_one_line_whatever_is_in_them() -> None:
    line = annotation("error", "50%\r\ntwo", title="a,b:c", file="x y.yaml", line=3)
    assert line == "::error title=a%2Cb%3Ac,file=x y.yaml,line=3::50%25%0Atwo"
    assert annotation("notice", "plain") == "::notice::plain"


def test_reports_are_appended_to_the_summary_of_the_step(tmp_path: Path) -> None:
    report, summary = tmp_path / "report.md", tmp_path / "summary.md"
    report.write_text("## one\n")
    append_summary(report, {})
    assert not summary.exists()
    for _ in range(2):
        append_summary(report, {"GITHUB_STEP_SUMMARY": str(summary)})
    assert summary.read_text() == "## one\n\n" * 2


def test_a_summary_is_cut_at_a_line_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * 500)
    append_step_summary(path, "é line\n" * 100, limit_bytes=800)
    assert path.stat().st_size <= 800
    added = path.read_bytes()[500:].decode()
    lines, note = added.split("\n\n\n")
    assert set(lines.split("\n")) == {"é line"}
    assert note.startswith("*Cut here")


def test_a_full_summary_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * 790)
    append_step_summary(path, "more\n" * 10, limit_bytes=800)
    assert path.stat().st_size == 790


def test_a_summary_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.md").write_text("## one\n")
    append_summary(tmp_path / "report.md", {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "s.md")})
    assert "cannot write the step summary" in capsys.readouterr().err


def test_all_mistakes_of_a_spec_are_annotated_where_ci_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("model: m\nrepository: r\nslo: [p99_latency <= 5ms]\nspace: {}\nbudgt: 3\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert tune("check", spec) == 2
    assert tune.out == ""
    lines = [line for line in tune.err.splitlines() if line.startswith("::")]
    assert len(lines) >= 2
    assert any(line.startswith(f"::error file={spec},line=5,col=1::") for line in lines)
    assert all(line.startswith("::error file=") for line in lines)


def test_lint_names_and_annotates_files_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(
        'name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 4\n'
        "dynamic_batching { preferred_batch_size: [8] }\n"
    )
    assert tune("lint", tmp_path) == 2
    assert "config.pbtxt:4" in tune.out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert tune("lint", tmp_path, "--format", "json") == 2
    assert "::" not in tune.out
    assert f"::error file={tmp_path}/m/config.pbtxt,line=4" in tune.err


@pytest.mark.parametrize("words", [(), ("help",), ("--debug",)])
def test_tune_alone_prints_its_help(words: tuple[str, ...], tune: Tune) -> None:
    assert tune("--help") == 0
    expected = tune.out
    assert tune(*words) == 0
    assert (tune.out, tune.err) == (expected, "")


def test_help_of_a_command_is_that_of_its_option(tune: Tune) -> None:
    assert tune("plan", "--help") == 0
    expected = tune.out
    assert tune("help", "plan") == 0
    assert tune.out == expected


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("list", "report"),
        ("status", "report"),
        ("inti", "init"),
        ("rnu", "run"),
        ("chekc", "check"),
        ("optimize", "run"),
        ("benchmark", "check"),
        ("undo", "rollback"),
    ],
)
def test_a_command_that_is_not_there_suggests_the_one_meant(
    word: str, meant: str, tune: Tune
) -> None:
    for words in ([word], ["help", word]):
        assert tune(*words) == 2
        assert f"there is no command '{word}'; did you mean {meant}?" in tune.err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("run", "s.yaml", "--dry-run"), "tune plan SPEC"),
        (("init", "m", "--latency-budget", "50"), "--slo 'p99_latency <= 50ms'"),
        (("run", "m", "--repository", "models"), "DIRECTORY/MODEL"),
        (("plan", "s.yaml", "--no-such"), "tune plan --help"),
    ],
)
def test_an_option_of_another_command_says_what_to_do(
    words: tuple[str, ...], advice: str, tune: Tune
) -> None:
    assert tune(*words) == 2
    assert advice in tune.err.partition("next:")[2]


def test_version_is_a_command_too(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = Installation(Path("/bin/t"), "2.51.0", Origin.WHEEL, {}, Path())
    for name in ("tritonserver", "perf_analyzer"):
        monkeypatch.setattr(binaries, name, lambda *_: nullcontext(wheel))
    assert tune("version") == 0
    assert tune.out.startswith(f"tune, version {__version__}\n")
