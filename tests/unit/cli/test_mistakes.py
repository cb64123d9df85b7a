"""The mistakes that a newcomer made, again: each is told with its place and what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.commands import Tune
from builders.model_files import REPOSITORY
from builders.workplace import MODEL, Workplace

SPEC = """\
model: emulated-accelerator
repository: {repository}
slo: [p99_latency <= 40ms]
objective: maximize goodput
space:
  instance_group.count: {{int: [1, 4]}}
budget: {{trials: 4, time: 2m}}
server: {{binary: /no/tritonserver}}
"""

#: What the spec says right, the mistake in its place, where it is told, and what is told.
IN_SPECS = [
    ("instance_group.count", "instance_groups.count", "6:3", "did you mean instance_group?"),
    ("objective:", "objectiv:", "4:1", "did you mean objective?"),
    ("trials: 4", "trails: 4", "7:10", "did you mean trials?"),
    ("<= 40ms", "<= 40", "3:7", "60ms or 1.5s, not '40'"),
    ("<= 40ms", "<= 40sec", "3:7", "60ms or 1.5s, not '40sec'"),
    ("p99_latency", "p99", "3:7", "did you mean p99_latency?"),
    ("p99_latency", "tail_latency", "3:7", "unknown metric"),
    ("<= 40ms", "< 40ms", "3:7", "write p99_latency <= 40ms"),
    ("<= 40ms", "≤ 40ms", "3:7", "write p99_latency <= 40ms"),
    ("{repository}", "{repository}y", "2:1", "did you mean model_repository?"),
    ("emulated-accelerator", "emulated-accelerato", "1:1", "did you mean emulated-accelerator?"),
    ("maximize goodput", "maximize throughput", "4:12", "maximize goodput"),
    ("maximize goodput", "minimise p99_latency", "4:12", "minimize p99_latency"),
    ("binary: /no/tritonserver", "mode: lokal", "8:16", "did you mean local?"),
    ("binary: /no/tritonserver", "mode: remote", "8:1", "server.http: is missing"),
    ("time: 2m", "time: 2 minutes", "7:27", "is not a duration such as"),
    ("time: 2m", "time: 2", "7:27", "not enough for one measurement"),
    ("time: 2m", "time: 2s", "7:27", "2s is not enough for one measurement, 3.5s"),
    ("int: [1, 4]", "int: [4, 1]", "6:", "4"),
    ("{{int: [1, 4]}}", "1-4", "6:25", "int: [1, 4]"),
    ("{{int: [1, 4]}}", "{{range: [1, 4]}}", "6:2", "int"),
    ("objective: ", "\tobjective: ", "4:1", "tab"),
    ("objective: maximize goodput", "model: twice", "4:1", "model"),
    (
        "slo: [p99_latency <= 40ms]\n",
        "slo: [error_rate <= 1%]\n",
        "",
        "needs a latency SLO, such as",
    ),
    ("binary: /no/tritonserver", "args: [--http-port=8000]", "8:", "tune's own to set"),
]


@pytest.mark.parametrize(("right", "wrong", "place", "told"), IN_SPECS, ids=lambda v: v[:24])
def test_a_mistake_in_a_spec(
    right: str, wrong: str, place: str, told: str, tmp_path: Path, tune: Tune
) -> None:
    assert SPEC.count(right) == 1
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace(right, wrong).format(repository=REPOSITORY))
    code = tune("plan", spec)
    assert code == (4 if "{repository}" in right else 2), tune.err
    assert f"spec.yaml:{place}" in tune.err or not place
    assert told in tune.err
    assert "Traceback" not in tune.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("run emulated-accelerator", 2, "tune init"),
        ("plan {repository}/emulated-accelerator/config.pbtxt", 2, "tune init"),
        ("plan empty.yaml", 2, "the spec is empty"),
        ("init emulated-accelerato --repository {repository}", 2, "did you mean emulated-accel"),
        ("init emulated-accelerator --repository {repository}x", 2, "model"),
        ("rollback emulated-accelerato --repository {repository}", 2, "did you mean emulated-acc"),
        ("report spec.yaml", 2, "there is no run 'spec.yaml'"),
        ("report nosuchrun", 2, "there is no run 'nosuchrun'"),
        ("apply nosuchrun", 2, "there is no run 'nosuchrun'"),
        ("worker nosuchrun", 2, "name a run of this machine in place of its spec"),
        ("models {repository}y", 4, "did you mean model_repository?"),
        ("lint {repository}y", 4, "did you mean model_repository?"),
        ("plan spec.yaml --no-such", 2, "No such option"),
        ("run none.yaml", 2, "there is no spec none.yaml"),
        ("run spec.yaml", 4, "spec.yaml:8:10: no executable /no/tritonserver"),
        ("check spec.yaml", 4, "spec.yaml:8:10: no executable /no/tritonserver"),
    ],
)
def test_a_mistake_on_the_command_line(
    words: str,
    code: int,
    told: str,
    tmp_path: Path,
    tune: Tune,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC.format(repository=REPOSITORY))
    Path("empty.yaml").touch()
    assert tune(*words.format(repository=REPOSITORY).split()) == code, tune.err
    assert told in tune.err
    assert "Traceback" not in tune.err


def test_mistakes_around_a_run_that_is_emulated(workplace: Workplace, tmp_path: Path) -> None:
    tune, repository = workplace.tune, workplace.config.parents[1]
    assert isinstance(tune, Tune)

    def told(code: int, words: str, *arguments: object) -> None:
        assert tune(*arguments) == code, tune.err
        assert words in tune.err + tune.out
        assert "Traceback" not in tune.err

    own = ("rollback", MODEL, "--repository", repository)
    told(2, "nothing to take back: tune never wrote", *own)
    assert tune("run", "my spec.yaml", "--progress", "none") == 0
    run, written = workplace.store.directory, workplace.config.read_text()
    (tmp_path / "elsewhere").mkdir()
    told(2, "workers help while `tune run` searches: start another run", "worker", run)
    told(2, "is not a run: it has no manifest.json", "report", "elsewhere")
    told(4, f"no model directory elsewhere/{MODEL}", "apply", run, "--repository", "elsewhere")
    workplace.config.write_text(f"{written}# mine\n")
    told(13, "nothing was written", "apply", run)
    told(13, "--force` replaces it", *own)
    workplace.config.write_text(written)
    told(0, "restored: ", *own)
    told(0, "already back: ", *own)
    told(0, "improved, taken back", "report")
