"""Text from outside that is printed is shown, and never obeyed."""

from __future__ import annotations

import ast
import logging
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.model_files import copy_examples
from builders.obeyed import HOSTILE, obeyed

import tuner.cli
from tuner.cli import terminal
from tuner.cli.inspect_commands import lines_of as plan_lines
from tuner.cli.terminal import harmless, harmless_lines, say_document, say_lines
from tuner.errors import TunerError
from tuner.report.blocks import Bullets, Document, Sentence, Table, Tile, Tiles, Tone
from tuner.run.plan import DrawnPlan, Preview
from tuner.search.estimate import Estimate


def test_hostile_text_has_sequences_that_terminals_obey() -> None:
    assert len(obeyed(HOSTILE)) >= 6
    assert obeyed("fine\n\x1b[31mred\x1b[0m\n") == []


@pytest.mark.parametrize("text", [HOSTILE, "::a::b", "\x1b[31m ::a::", "\u3000::a::", "x ##[a]b"])
def test_no_text_is_obeyed(text: str) -> None:
    assert obeyed(harmless(text)) == []
    assert obeyed(harmless_lines(text)) == []
    assert "\n" not in harmless(text)


def test_a_password_is_hidden_on_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    say_lines("cannot open\nx://u:hunter2@db")
    assert capsys.readouterr().out == "cannot open\nx://u:***@db\n"


def test_words_of_a_server_are_harmless_in_a_warning_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    said = ("%s x://u:hunter2@h", HOSTILE)
    monkeypatch.setattr(tuner.cli, "guarded", lambda *_: logging.getLogger("x").warning(*said))
    with pytest.raises(SystemExit):
        tuner.cli.main()
    err = capsys.readouterr().err
    assert "set-output" in err
    assert "hunter2" not in err
    assert obeyed(err) == []


#: Commands that print on stdout at once, and others, with their exit codes.
_PRINTING = {"schema": 0, "--help": 0, "run --help": 0, "help": 0}
_ENDS = [*_PRINTING.items(), ("report", 0), ("plan gone.yaml", 2)]


@pytest.mark.parametrize("output", ["/dev/full", "closed pipe"])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize(("command", "code"), _ENDS)
def test_an_output_that_takes_no_more_is_no_defect(
    output: str,
    name: str,
    command: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tune: Tune,
) -> None:
    monkeypatch.chdir(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    with (
        open(output if output == "/dev/full" else writer, "w") as stream,  # noqa: PTH123
        monkeypatch.context() as patched,
    ):
        patched.setattr(sys, name, stream)
        reported = (output, name) == ("/dev/full", "stdout") and command in _PRINTING
        assert tune(*command.split()) == (4 if reported else code)


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_stream_that_the_caller_closed_takes_what_is_printed_to_it(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_examples(tmp_path, "emulated-accelerator")
    monkeypatch.setattr(sys, closed, None)
    monkeypatch.setattr(sys, "argv", ["tune", "models", str(tmp_path)])
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    with pytest.raises(SystemExit) as end:
        tuner.cli.main()
    assert end.value.code == 0
    getattr(sys, closed).close()


@pytest.mark.parametrize("variable", ["CI", "TF_BUILD", "TEAMCITY_VERSION"])
def test_document_is_exact_in_a_file_and_harmless_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    say_document(HOSTILE)
    assert capsys.readouterr().out == HOSTILE
    monkeypatch.setenv(variable, "2024.1")
    say_document(HOSTILE)
    assert obeyed(capsys.readouterr().out) == []


def test_lint_obeys_nothing_in_a_config_or_a_name(
    tmp_path: Path, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name, config in {
        "file": r'backend: "python" default_model_filename: "x\n::set-output a::b\033]0;t\007"',
        "a\n::error::b\x1b[8m": 'backend: "python"',
        "field": "no\x1b]0;t\x07_field: 3",
        "other": r'backend: "python" name: "\n::add-mask::x"',
    }.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(f"{config}\n")
    tune("lint", tmp_path)
    out, err = tune.out, tune.err
    assert len(out.splitlines()) >= 4
    ours = [line for line in obeyed(err) if re.match(r"::(error|warning|notice) file=", line)]
    assert ours
    assert obeyed(err) == ours
    assert obeyed(out) == []


def test_mistakes_in_a_spec_are_a_line_each_whatever_its_keys_are(
    tmp_path: Path, tune: Tune
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        'model: "m\\n::add-mask::x"\nrepository: r\n"\\n::set-output name=a::b\\e]0;t\\a": 3\n'
        'slo: ["p99_latency\\n::error::x <= 5"]\n'
        'space: {"a\\n::error::b": {choice: ["\\e]0;t\\a"]}}\n'
    )
    assert tune("plan", spec) == 2
    out, err = tune.out, tune.err
    assert "unknown key" in err
    assert obeyed(out + err) == []
    assert all(line.startswith(("error:", "next:", str(spec))) for line in err.splitlines())


def test_control_characters_of_an_error_and_its_traceback_are_escaped(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise TunerError(f"the server said: {HOSTILE}", HOSTILE)

    monkeypatch.setattr("tuner.cli.schema.callback", fails)
    assert tune("--debug", "schema") == 1
    assert obeyed(tune.err) == []


def test_printed_commands_can_be_copied(tmp_path: Path) -> None:
    args = ("--cache-config=local,size=1", "--x=$(touch gone); rm -rf ~")
    plan = DrawnPlan(
        "", 1, True, Estimate(1, 1.0, 1.0), {"perf_analyzer": args}, [Preview("", "", args)]
    )
    commands = [line for line in plan_lines(plan) if "touch" in line]
    assert len(commands) == 2
    assert all(shlex.quote(args[1]) in line for line in commands)


def test_everything_that_is_printed_goes_through_one_place() -> None:
    """Another way to print would have to escape by itself."""
    ways = {"echo", "secho", "echo_via_pager", "print"}
    for file in Path(tuner.cli.__file__).parent.rglob("*.py"):
        if file == Path(terminal.__file__):
            continue
        calls = [n.func for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
        names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in calls}
        assert not names & (ways - ({"print"} if file.name == "live.py" else set())), file


def test_verdict_is_last_and_every_line_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal of 24 lines the headline had scrolled away, and lines were broken twice."""
    long = "a caution that is longer than a line of a terminal, " * 3
    blocks = (
        Sentence(long), Bullets("Caution", (long,)), Tiles((Tile("p99", "1 ms", long),)),
        Table(("check", "found"), (("yes", long),)),
    )  # fmt: skip
    document = Document("toy", f"Better: {long}", Tone.GOOD, "run", blocks, facts=(long,))
    for columns in (60, 80):
        monkeypatch.setattr(terminal, "width", lambda columns=columns: columns)
        terminal.say_report(Path("results/r"), document)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns
        assert lines[-1] == "  report: results/r/report.html"
        (headline,) = (i for i, line in enumerate(lines) if line.startswith("toy: Better"))
        assert headline > max(i for i, line in enumerate(lines) if line == "  caution")
        assert headline > len(lines) - 16
