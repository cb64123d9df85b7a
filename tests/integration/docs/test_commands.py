"""Every command block of the documentation: run, or parsed and named here with the reason."""

from __future__ import annotations

import json
import re
import shutil
from glob import glob
from pathlib import Path

import click
import pytest
from builders.documents import PAGES, TOP, blocks_of, commands_of
from builders.runs import Toy, make_run, with_config

from tuner.cli import cli
from tuner.cli.boundary import guarded

pytestmark = pytest.mark.integration

#: How a command that is not run begins, and why it is not. A `tune` among them is parsed, and files
#: of the project that the others name are there.
NOT_RUN = {
    "git clone": "needs the network",
    "git diff": "is about the project itself",
    "git worktree": "the same",
    "git switch": "tests/integration/report/test_proposal_patch.py has Git take a proposal",
    "git apply": "the same",
    "git commit": "the same",
    "gh pr": "needs GitHub",
    "tune run --resume": "tests/integration/test_many_killed.py goes on with several",
    "cd ": "goes where the command before it put something",
    ". .venv": "goes into a virtual environment",
    "export ": "sets a variable for the next command",
    "eval ": "tests/integration/test_shell_completion.py has bash read it",
    "model-analyzer profile": "benchmarks/beside_model_analyzer.py runs it",
    "pip install": "needs the network; .ci/run does it",
    "python3 -m venv": ".ci/run does it",
    "pytest": ".ci/run does it, or it takes hours",
    "ruff ": ".ci/run does it",
    "mypy": ".ci/run does it",
    "lint-imports": ".ci/run does it",
    "cosmic-ray ": "takes hours",
    "cr-": "takes hours",
    "optuna-dashboard ": "is not installed with tune",
    "docker build": "needs an engine; tests/unit/ci/test_deploy.py reads the files",
    "kubectl ": "needs a cluster; the same test validates the files",
    "podman system": "needs Podman",
    "sudo tests/docker": "needs to be root",
    "python benchmarks": "takes minutes on a quiet machine",
    "python3 run.py": "needs a GPU and the bundle",
    "tune run specs/*.yaml --on ray": "tests/integration/test_series_on_ray.py runs it",
    "tune run bert-onnx.yaml --on ray": "tests/integration/test_search_on_ray.py runs one",
    "tune size": "tests/unit/cli/test_size_command.py sizes a run that was soaked",
    "tune rollback nlp": "the run before it is only planned here, and wrote nothing",
}
#: These take minutes: the plan of the same spec stands in for them.
MEASURE = ("run", "check")
#: What readers put in, and what is put in here.
PLACEHOLDERS = {"SPEC": "my-model.yaml", "MODEL": "tiny-bert"}
WITH_COMMANDS = [page for page in PAGES if next(commands_of(page), None)]
MODEL, RUN = "emulated-accelerator", re.compile(r"results/(\w[\w+-]*)")


#: What `tune record` makes recordings of: two requests each.
TRAFFIC = {
    "trace.json": json.dumps(
        [
            part
            for number in (1, 2)
            for part in (
                {"id": number, "model_name": "m", "model_version": 1},
                {"id": number, "timestamps": [{"name": "REQUEST_START", "ns": number * 10**9}]},
            )
        ]
    ),
    "access.log": "".join(
        f'10.0.0.1 - - [28/Nov/2026:10:00:0{second} +0000] "POST /v2/models/m/infer HTTP/1.1" '
        '200 12 "-" "-"\n'
        for second in (0, 1)
    ),
    "access.csv": "time,tokens\n1.0,12\n1.5,300\n",
    "inputs.json": json.dumps({"data": [{"x": [0.0]}, {"x": [1.0]}]}),
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's models and specs, and a spec and a file of Model Analyzer of the user's own."""
    for name in ("model_repository", "search_spaces"):
        shutil.copytree(TOP / name, tmp_path / name)
    quickstart = (tmp_path / "search_spaces" / "quickstart.yaml").read_text()
    here = quickstart.replace("../model_repository", "model_repository")
    (tmp_path / "my-model.yaml").write_text(here)
    (tmp_path / "analyzer.yaml").write_text(
        "model_repository: model_repository\nprofile_models: tiny-bert\nlatency_budget: 50\n"
    )
    (tmp_path / "results").mkdir()
    for name, text in TRAFFIC.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def store_runs(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with the names that the page has; their winner is for the emulated accelerator."""
    config = workplace / "model_repository" / MODEL / "config.pbtxt"
    monkeypatch.setattr("builders.runs.CONFIG", config.read_text())
    for name in {name for words in commands_of(page) for name in RUN.findall(" ".join(words))}:
        made = with_config(make_run(workplace / "made", Toy(model=MODEL, trials=5)), config)
        shutil.move(made, workplace / "results" / name)


def parsed(words: list[str]) -> click.Context:
    """What click makes of a `tune ...`: it knows every option, and finds what must be there."""
    top = click.Context(cli, info_name="tune")
    command = cli.get_command(top, words[1])
    assert command is not None, words
    return command.make_context(words[1], words[2:], parent=top)


def instead(words: list[str]) -> list[str]:
    """The command line that is run."""
    if words[1] in MEASURE:
        given = parsed(words).params
        spec = given["spec"] if "spec" in given else min(glob(str(given["specs"][0])))  # noqa: PTH207
        return ["plan", str(spec), "--candidates", "0"]
    return [*words[1:], "--force"] if words[1] in ("init", "record") else words[1:]


def refuse_absent(page: Path, words: list[str]) -> None:
    """A file of the project that is not there, or a script that does not know an option."""
    files = [word for word in words[1:] if word.startswith(("tests/", "benchmarks/", "run.py"))]
    present = [p for file in files for p in (TOP / file, page.parent / file) if p.exists()]
    assert len(present) == len(files), words
    if words[0].startswith("python") and present:
        options = [word for word in words if word.startswith("--")]
        assert [option for option in options if option not in present[0].read_text()] == [], words


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(TOP)))
def test_its_commands_work(
    page: Path,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store_runs(page, workplace, monkeypatch)
    # A plan runs no model, so the examples with strings go with NumPy 2 here.
    monkeypatch.setattr("tuner.prepare.tools.numpy_of_models", lambda *_: "")
    known = dict(PLACEHOLDERS)
    for typed in commands_of(page):
        words = [known.get(word, word) for word in typed]
        if assigned := re.fullmatch(r"(\w+)=(.+)", words[0]):
            known[f"${assigned[1]}"] = str(TOP / assigned[2])
            continue
        command = " ".join(words)
        if words[0] == "tune" and words[1:] != ["--help"]:
            parsed(words)
        if command.startswith(tuple(NOT_RUN)):
            refuse_absent(page, words)
            continue
        assert words[0] == "tune", f"{command}: run it here, or say in NOT_RUN why not"
        assert guarded(cli, instead(words)) == 0, f"{command}: {capsys.readouterr().err}"


def test_every_block_says_what_it_is_and_every_reason_is_needed() -> None:
    languages = {language for page in PAGES for language, _ in blocks_of(page)}
    assert languages == {"bash", "console", "text", "yaml", "json", "python"}
    commands = [" ".join(words) for page in PAGES for words in commands_of(page)]
    assert [start for start in NOT_RUN if not any(t.startswith(start) for t in commands)] == []
