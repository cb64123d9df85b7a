"""What a run keeps of its command line, and how going on with it takes that up."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders.jobs import a_job, opened
from builders.messages_endings import forge
from builders.series import make_specs, runs_of, series_in
from builders.workplace import Workplace, interrupt

from tuner.errors import SpecError
from tuner.prepare.job import Job, Request
from tuner.record.store import RunStore
from tuner.run import trust
from tuner.run.resume import restore_choices
from tuner.run.trust import BegunRuns, spec_of


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


@pytest.fixture
def run(job: Job, tmp_path: Path) -> RunStore:
    """Begun with seed 7, at most 5 trials in 60 s."""
    search = job.spec.search.model_copy(update={"seed": 7})
    job = replace(job, spec=job.spec.model_copy(update={"search": search}))
    request = Request(
        job.loaded.path,
        output=tmp_path / "results",
        trials=5,
        time_budget_s=60.0,
    )
    with opened(job, replace(request, state=tmp_path / "state")) as new:
        store: RunStore = new.store
    return store


@pytest.fixture
def begun(tmp_path: Path) -> BegunRuns:
    return BegunRuns(tmp_path / "state")


def again(run: RunStore, **given: object) -> Request:
    request = Request(Path("spec.yaml"), resume=run.directory)
    return restore_choices(replace(request, **given))  # type: ignore[arg-type]


def test_a_run_is_gone_on_with_as_it_was_begun(run: RunStore, tmp_path: Path) -> None:
    request = again(run)
    assert (request.trials, request.time_budget_s, request.seed, request.write) == (
        5,
        60.0,
        7,
        True,
    )
    assert (request.output, request.resume) == (run.directory.parent, run.directory)


def test_words_given_again_override(run: RunStore) -> None:
    request = again(run, trials=9, time_budget_s=1.0, write=False, seed=7)
    assert (request.trials, request.time_budget_s) == (9, 1.0)
    assert not request.write
    with pytest.raises(SpecError, match=r"\b7\b.*\b0\b"):
        again(run, seed=0)


def test_a_run_that_was_not_to_write_never_does(run: RunStore) -> None:
    manifest = run.manifest()
    run.write_manifest(replace(manifest, choices=replace(manifest.choices, write=False)).to_json())
    assert not again(run).write


@pytest.mark.parametrize("named", [".", "../a-run"])
def test_run_opens_by_any_name_of_its_directory(
    named: str, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.directory)
    request = again(run, resume=Path(named))
    assert request.resume is not None
    assert request.resume.name == "a-run"
    assert request.output.resolve() == run.directory.parent
    assert request.output.is_absolute()


def test_nothing_is_looked_up_for_a_new_run() -> None:
    request = Request(Path("spec.yaml"), seed=3)
    assert restore_choices(request) is request


def test_the_spec_of_a_run_is_where_it_was_begun_from(
    run: RunStore, begun: BegunRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run.manifest()
    run.write_manifest(
        replace(
            manifest,
            spec_path="spec.yaml",
            choices=replace(manifest.choices, directory=str(tmp_path)),
        ).to_json()
    )
    monkeypatch.chdir("/")
    assert spec_of(run.directory, begun) == tmp_path / "spec.yaml"
    (tmp_path / "spec.yaml").rename(tmp_path / "moved.yaml")
    with pytest.raises(SpecError, match="no longer at") as refused:
        spec_of(run.directory, begun)
    assert f"--resume {run.directory}" in refused.value.hint


def test_a_damaged_manifest_may_name_a_spec_that_no_path_can_be(
    run: RunStore, begun: BegunRuns
) -> None:
    run.write_manifest(replace(run.manifest(), spec_path="x" * 5000).to_json())
    with pytest.raises(SpecError, match="no longer at"):
        spec_of(run.directory, begun)


def test_spec_inside_run_is_started_only_where_it_is_named(run: RunStore, begun: BegunRuns) -> None:
    manifest = run.manifest()
    choices = replace(manifest.choices, directory=str(run.directory))
    run.write_manifest(replace(manifest, spec_path="spec.yaml", choices=choices).to_json())
    spec = run.directory / "spec.yaml"
    spec.touch()
    begun.remember(run.directory, {spec: manifest.spec_sha256})
    with pytest.raises(SpecError, match="run's own directory") as refused:
        spec_of(run.directory, begun)
    command = f"tune run {spec} --resume {run.directory}"
    assert command in refused.value.hint


@pytest.mark.parametrize("change", ["another spec", "another hash", "another run"])
def test_spec_of_run_is_started_only_as_the_list_of_begun_runs_has_it(
    change: str, run: RunStore, begun: BegunRuns, tmp_path: Path
) -> None:
    assert spec_of(run.directory, begun) == tmp_path / "spec.yaml"
    (tmp_path / "other.yaml").touch()
    manifest, directory = run.manifest(), run.directory
    if change == "another spec":
        other = str(tmp_path / "other.yaml")
        run.write_manifest(replace(manifest, spec_path=other).to_json())
    elif change == "another hash":
        run.write_manifest(replace(manifest, spec_sha256="0" * 64).to_json())
    else:
        directory = run.directory.rename(tmp_path / "results" / "another")
    with pytest.raises(SpecError, match="you did not begin"):
        spec_of(directory, begun)


@pytest.mark.parametrize("whose", ["everybody's to write", "another user's", "a link", "damaged"])
def test_list_of_begun_runs_counts_only_where_nobody_else_can_write_it(
    whose: str, run: RunStore, begun: BegunRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "state" / "runs"
    if whose == "everybody's to write":
        listed.chmod(0o777)
    elif whose == "another user's":
        monkeypatch.setattr("os.geteuid", lambda: 4321)
    elif whose == "a link":
        listed.symlink_to(listed.rename(tmp_path / "elsewhere"))
    else:
        (listed / "a-run.json").write_text("{")
    with pytest.raises(SpecError, match="the list of your runs cannot be read"):
        spec_of(run.directory, begun)
    if whose != "damaged":
        assert "name its SPEC" in begun.remember(run.directory, {})


def test_list_of_begun_runs_is_private_and_keeps_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "KEPT", 5)
    begun = BegunRuns(tmp_path / "home" / "state")
    for number in range(8):
        assert begun.remember(tmp_path / f"run-{number:05}", {}) == ""
    listed = tmp_path / "home" / "state" / "runs"
    assert listed.stat().st_mode & 0o777 == 0o700
    names = sorted(path.stem for path in listed.iterdir())
    assert (names[0], len(names)) == ("run-00003", 5)


def test_home_that_cannot_be_written_costs_only_that_spec_is_named_again(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace.spec))  # a file, so nothing can be below it
    workplace.bench.then = {1: interrupt}
    words = ("run", "my spec.yaml", "--no-write", "--progress", "plain")
    assert workplace.tune(*words) == 130
    assert "name its SPEC when you resume it" in workplace.tune.err
    run = workplace.store.directory
    spec = str(workplace.spec)
    assert nothing_is_started(workplace, run) == ["run", spec, "--resume", str(run)]
    workplace.bench.then = {}
    assert workplace.tune(*words, "--resume", run) == 0


@pytest.fixture(params=["run", "series"])
def stopped(request: pytest.FixtureRequest, workplace: Workplace, tmp_path: Path) -> Path:
    """A run, or a series of two, that was interrupted in its first trials."""
    workplace.bench.then = {1: interrupt}
    specs = ["my spec.yaml"]
    if request.param == "series":
        make_specs(tmp_path, 2)
        specs = ["specs/model-00.yaml", "specs/model-01.yaml"]
    assert workplace.tune("run", *specs, "--no-write", "--progress", "none") == 130
    kind = "series.json" if request.param == "series" else "manifest.json"
    (directory,) = workplace.results.glob(f"*/{kind}")
    return directory.parent


def nothing_is_started(workplace: Workplace, directory: Path) -> list[str]:
    """Resuming is refused, and one line has the command that would go on."""
    deployed = len(workplace.bench.deployed)
    assert workplace.tune("run", "--resume", directory, "--progress", "none") == 2
    assert len(workplace.bench.deployed) == deployed
    assert "\x1b" not in workplace.tune.err
    (line,) = [x for x in workplace.tune.err.splitlines() if "give the full command: " in x]
    return shlex.split(line.partition("give the full command: ")[2])[1:]


def test_resumed_run_sets_no_value_of_the_spec(stopped: Path, workplace: Workplace) -> None:
    forge(stopped, overrides=["server.binary=/evil.sh", "model=\x1b[2J\n tune"])
    command = nothing_is_started(workplace, stopped)
    assert "--set=server.binary=/evil.sh" in command
    assert "--set=model=\\x1b[2J\\n tune" in command
    assert command[-2:] == ["--resume", str(stopped)]


def test_what_came_with_its_spec_from_elsewhere_starts_it_only_where_that_is_named(
    stopped: Path, workplace: Workplace, tmp_path: Path
) -> None:
    theirs = tmp_path / "unpacked"
    shutil.copytree(workplace.results, theirs / "results")
    for name in ("my spec.yaml", "specs", "my repository"):
        if (there := tmp_path / name).is_dir():
            shutil.copytree(there, theirs / name)
        elif there.exists():
            shutil.copy(there, theirs)
    copied = theirs / "results" / stopped.name
    forge(copied, directory=str(theirs))
    command = nothing_is_started(workplace, copied)
    assert str(theirs / "specs/model-00.yaml") in command or str(theirs / "my spec.yaml") in command
    workplace.bench.then = {}
    assert workplace.tune(*command, "--progress", "none") == 0


def test_a_winner_is_applied_by_the_spec_of_its_run_only_where_that_was_made_here(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = "space: {parameters.language: {choice: [de, en]}, "
    workplace.spec.write_text(workplace.spec.read_text().replace("space: {", space))
    assert workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "none") == 0
    run = workplace.store.directory
    assert workplace.tune("apply", run, "--dry-run") == 0
    assert "language" in workplace.tune.out
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace.results / "another"))
    assert workplace.tune("apply", run, "--dry-run") == 2
    assert str(workplace.spec) in workplace.tune.err
    assert workplace.tune("apply", run, "my spec.yaml") == 0


@pytest.mark.parametrize("named", ["fingerprint", "specs/model-01.yaml"])
def test_a_series_whose_machine_or_spec_is_another_now_is_not_resumed(
    named: str, workplace: Workplace, tmp_path: Path
) -> None:
    make_specs(tmp_path, 2)
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "specs/*.yaml", "--no-write", "--progress", "none") == 130
    directory = series_in(workplace.results)
    if named == "fingerprint":
        path = directory / "series.json"
        kept = json.loads(path.read_text())
        path.write_text(json.dumps({**kept, "fingerprint": "0" * 16}))
    else:
        spec = tmp_path / named
        spec.write_text(spec.read_text() + "# more\n")
    assert workplace.tune("run", "--resume", directory, "--progress", "none") == 2
    difference = "machine (fingerprint): " if named == "fingerprint" else f"{named} was edited\n"
    assert f"  {difference}" in workplace.tune.err
    assert len(runs_of(workplace.results)) == 1


def test_a_trial_of_a_config_that_the_spec_does_not_name_is_not_gone_on_with(
    workplace: Workplace,
) -> None:
    workplace.bench.then = {2: interrupt}
    assert workplace.tune("run", "my spec.yaml", "--no-write", "--progress", "none") == 130
    path = workplace.store.directory / "trials.jsonl"
    first, second, *_ = path.read_text().splitlines()
    row = json.loads(second)
    row["candidate"]["models"]["emulated-accelerator"] = {"parameters.EXECUTION_ENV_PATH": "/x"}
    path.write_text(f"{first}\n{json.dumps(row)}\n")
    deployed = len(workplace.bench.deployed)
    assert workplace.tune("run", "--resume", workplace.store.directory) == 2
    assert "trial 1 " in workplace.tune.err
    assert len(workplace.bench.deployed) == deployed


def test_a_series_is_gone_on_with_by_the_specs_that_are_left_and_no_fewer(
    workplace: Workplace, tmp_path: Path
) -> None:
    make_specs(tmp_path, 2)
    workplace.bench.then = {1: interrupt}
    assert workplace.tune("run", "specs/*.yaml", "--no-write", "--progress", "none") == 130
    workplace.bench.then = {}
    again = ("--resume", series_in(workplace.results), "--progress", "none")
    assert workplace.tune("run", "specs/model-00.yaml", *again) == 2
    assert "model-01.yaml" in workplace.tune.err
    assert workplace.tune("run", "specs/*.yaml", *again) == 0


def test_nothing_is_written_through_a_link_in_a_run(workplace: Workplace, tmp_path: Path) -> None:
    """Each name that a run writes is made a link to another file with the same content."""
    workplace.bench.then = {1: interrupt}
    words = ("run", "my spec.yaml", "--progress", "none", "--trials", "4")
    assert workplace.tune(*words) == 130
    run, theirs = workplace.store.directory, tmp_path / "theirs"
    paths = [path for path in run.rglob("*") if path.is_file()]
    appended = [run / name for name in (".lock", "trials.jsonl", "rejected.jsonl")]
    added = ("report.csv", "best/proposal.patch", "best/server_args.txt", "best/pull_request.md")
    companions = ("study.db-journal", "study.db-wal", "study.db-shm", "study.db.damaged")
    paths = sorted({*paths, *appended, *(run / name for name in (*added, *companions))})
    contents = {path: path.read_bytes() if path.exists() else b"victim" for path in paths}
    workplace.bench.then = {}
    for alone in appended:
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            victim = theirs / path.relative_to(run)
            victim.parent.mkdir(parents=True, exist_ok=True)
            victim.write_bytes(contents[path])
            if path in appended and path != alone:
                path.write_bytes(contents[path])
            else:
                path.symlink_to(victim)
        code = 4 if alone.name in (".lock", "trials.jsonl") else 0  # what it adds to, or replaces
        assert workplace.tune("run", "--resume", run, "--progress", "none") == code
        for path, content in contents.items():
            assert (theirs / path.relative_to(run)).read_bytes() == content
