from __future__ import annotations

import platform
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

from tuner import __version__, errors
from tuner.cli import COMMANDS, cli
from tuner.cli.boundary import ci_annotations, exit_codes_table, guarded, wanted_color
from tuner.errors import EnvironmentNotReadyError, SpecError, StalePlanError, TrialError, TunerError
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


def test_help_lists_every_exit_code_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(cli, ["--help"]) == 0
    out = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in out
    for line in exit_codes_table().splitlines()[2:]:
        assert line.split()[0] in out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(cli, [name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage: tune" in out
    assert len(out.splitlines()) > 4


def test_a_mistyped_command_is_answered_with_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(cli, ["rnu"]) == 2
    assert "Did you mean 'run'?" in capsys.readouterr().err


def test_a_working_directory_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert guarded(cli, ["init", "m"]) == 4
    assert "the working directory is gone" in capsys.readouterr().err


def test_a_run_whose_name_no_directory_can_have_is_one_that_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(cli, ["report", "x" * 300]) == 2
    assert "there is no run" in capsys.readouterr().err


def failing(error: Exception) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def test_an_error_is_told_on_stderr_with_what_to_do_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(failing(StalePlanError("it changed", "run again")), []) == 13
    out, err = capsys.readouterr()
    assert out == ""
    assert "it changed" in err
    assert "run again" in err


def test_a_defect_shows_its_traceback_and_exits_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(failing(ZeroDivisionError("oops")), []) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "defect in tune" in err


def test_a_missing_spec_is_a_spec_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(cli, ["run", "/nowhere/spec.yaml"]) == 2
    assert "/nowhere/spec.yaml" in capsys.readouterr().err


def test_annotations_name_file_and_line_of_every_mistake(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from tuner.spec.load import load_spec

    path = tmp_path / "spec.yaml"
    path.write_text("model: m\nrepository: r\nslo: [p99_latency <= 5ms]\nspace: {}\nbudgt: 3\n")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    lines = list(ci_annotations(caught.value))
    assert any(f"file={path},line=5" in line for line in lines)
    assert all(line.startswith("::error ") and "\n" not in line for line in lines)


def test_annotations_of_other_errors_are_escaped() -> None:
    (line,) = ci_annotations(TunerError("50% of\ntwo lines"))
    assert line == "::error title=tune::50%25 of%0Atwo lines"


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
def test_colours_are_asked_for_or_left_out(
    arguments: list[str],
    environment: dict[str, str],
    expected: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert wanted_color(arguments, environment) is expected
    monkeypatch.setattr("os.environ", environment)
    assert guarded(cli, [*arguments, "report", "nothing"]) == 2
    assert guarded(cli, [*arguments, "schema", "--nothing"]) == 2
    assert guarded(cli, [*arguments, "lint", "/nothing"]) == 4
    assert ("\x1b[31m" in capsys.readouterr().err) == (expected is True)


def test_the_version_names_what_it_runs_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(*_: object) -> None:
        raise EnvironmentNotReadyError("no perf_analyzer found")

    server = Installation(Path("/opt/tritonserver"), "2.51.0", Origin.PATH, {})
    monkeypatch.setattr(binaries, "tritonserver", lambda *_: nullcontext(server))
    monkeypatch.setattr(binaries, "perf_analyzer", lacking)
    assert guarded(cli, ["--version"]) == 0
    version, host, *programs = capsys.readouterr().out.splitlines()
    assert version == f"tune, version {__version__}"
    assert host.startswith(f"Python {platform.python_version()}, Linux ")
    assert programs == [
        "tritonserver 2.51.0, /opt/tritonserver",
        "perf_analyzer: no perf_analyzer found",
    ]
