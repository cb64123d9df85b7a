"""Several specs in one command, with an emulated bench: each is tuned once, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from builders.series import make_specs, runs_of, series_in
from builders.workplace import Workplace, interrupt

from tuner.errors import DeployRefusedError, EnvironmentNotReadyError
from tuner.report import listing, render
from tuner.run import run as pipeline

REMOTE = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n"


def run(workplace: Workplace, *arguments: str) -> int:
    return workplace.tune("run", *arguments, "--progress", "none")


def test_a_pattern_tunes_each_model_once_and_one_summary_leads_to_all(
    workplace: Workplace, tmp_path: Path
) -> None:
    names = make_specs(tmp_path, 3)
    assert run(workplace, "specs/*.yaml", "--format", "json") == 0
    summary = json.loads(workplace.tune.out)
    assert [r["name"] for r in summary["runs"]] == names == runs_of(workplace.results)
    assert {r["status"] for r in summary["runs"]} == {"improved"}
    directory = series_in(workplace.results)
    page = (directory / "report.html").read_text()
    for row in summary["runs"]:
        assert f'href="../{row["run"]}/report.html"' in page
        assert (directory.parent / row["run"] / "report.html").is_file()
    assert len(ET.parse(directory / "junit.xml").findall(".//testcase")) == 3
    assert workplace.tune("report", str(directory)) == 0
    assert "3 Better" in workplace.tune.out


def test_a_model_that_fails_stops_no_other_and_is_tried_again_with_the_series(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_specs(tmp_path, 3)
    serve = pipeline.serving
    broken = {"model-01"}

    def serving(job: Any, *more: Any) -> Any:
        if job.spec.name in broken:
            raise EnvironmentNotReadyError("no such backend", "install it")
        return serve(job, *more)

    monkeypatch.setattr(pipeline, "serving", serving)
    assert run(workplace, "specs/*.yaml") == 4
    assert "no such backend" in workplace.tune.err
    directory = series_in(workplace.results)
    cases = ET.parse(directory / "junit.xml").findall(".//testcase")
    assert [case.find("error") is not None for case in cases] == [False, True, False]
    broken.clear()
    deployed = len(workplace.bench.deployed)
    assert run(workplace, "--resume", str(directory)) == 0
    assert len(workplace.bench.deployed) == deployed + 2  # the trials of one model
    assert runs_of(workplace.results) == ["model-00", "model-01", "model-02"]


def test_a_run_that_has_ended_is_read_once_for_all_summaries(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_specs(tmp_path, 3)
    real, read = listing.row_of, list[str]()
    monkeypatch.setattr(listing, "row_of", lambda d: read.append(d.name) or real(d))
    assert run(workplace, "specs/*.yaml") == 0
    assert len(read) == len(set(read)) == 3


def test_the_exit_code_is_the_worst(workplace: Workplace, tmp_path: Path, monkeypatch: Any) -> None:
    make_specs(tmp_path, 2)
    pending = [DeployRefusedError("no"), EnvironmentNotReadyError("no")]

    def serving(*_: Any) -> Any:
        raise pending.pop(0)

    monkeypatch.setattr(pipeline, "serving", serving)
    assert run(workplace, "specs/*.yaml") == 1


def test_all_mistakes_are_reported_before_anything_starts(
    workplace: Workplace, tmp_path: Path
) -> None:
    make_specs(tmp_path, 3)
    for name in ("model-00", "model-02"):
        path = tmp_path / "specs" / f"{name}.yaml"
        path.write_text(path.read_text().replace("p99_latency", "p98_latency"))
    assert run(workplace, "specs/*.yaml") == 2
    err = workplace.tune.err
    assert "model-00.yaml:" in err
    assert "model-02.yaml:" in err
    assert not workplace.results.exists()


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["specs/none-*.yaml"], "no file matches 'specs/none-*.yaml'"),
        (["specs/*.yaml", "specs/model-00.yaml"], "already searched by specs/model-00.yaml"),
    ],
)
def test_series_without_specs_or_with_a_model_twice_is_refused(
    workplace: Workplace, tmp_path: Path, specs: list[str], said: str
) -> None:
    make_specs(tmp_path, 2)
    assert run(workplace, *specs) == 2
    assert said in workplace.tune.err
    assert not workplace.results.exists()


@pytest.mark.parametrize("late", [False, True], ids=["while searching", "while storing"])
def test_a_stopped_series_says_how_to_go_on_and_goes_on(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    names = make_specs(tmp_path, 3)
    if late:
        before = render.report_run
        stops = [interrupt]

        def report_run(run_dir: Path) -> list[Path]:
            if stops:
                stops.pop()()
            return before(run_dir)

        monkeypatch.setattr(render, "report_run", report_run)
    else:
        workplace.bench.then = {3: interrupt}
    assert run(workplace, "specs/*.yaml", "--no-write") == 130
    directory = series_in(workplace.results)
    left = "specs/model-01.yaml specs/model-02.yaml"
    advice = f"1 of 3 are done; go on with: tune run {left} --resume results/{directory.name}"
    assert advice in workplace.tune.err
    workplace.bench.then = {}
    assert run(workplace, "--resume", str(directory)) == 0
    assert runs_of(workplace.results) == names
    assert len(workplace.bench.deployed) <= 7  # 2 trials each, and the one that was given up
    config = tmp_path / "my repository" / "model-02" / "config.pbtxt"
    assert not list(config.parent.glob(".config.pbtxt.tune*"))  # --no-write was kept


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            REMOTE,
            "(server.mode: remote)",
        ),
        ("server: {cpus: [0]}\n", "only one of server.cpus and workload.cpus names CPUs"),
    ],
)
def test_a_spec_that_cannot_share_a_machine_is_refused_before_ray_is_started(
    workplace: Workplace, tmp_path: Path, more: str, said: str
) -> None:
    make_specs(tmp_path, 2)
    with (tmp_path / "specs" / "model-01.yaml").open("a") as spec:
        spec.write(more)
    assert run(workplace, "specs/*.yaml", "--on", "ray") == 2
    assert said in workplace.tune.err
    assert "specs/model-01.yaml: " in workplace.tune.err


@pytest.mark.parametrize("named", [("specs/*.yaml", "--on", "ray"), ("specs/model-00.yaml",)])
def test_benches_are_counted_for_one_spec_on_ray(
    named: tuple[str, ...], workplace: Workplace, tmp_path: Path
) -> None:
    make_specs(tmp_path, 2)
    assert run(workplace, *named, "--benches", "2") == 2
    assert "add --on ray" in workplace.tune.err


def test_the_address_of_a_cluster_that_is_none_is_refused(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_specs(tmp_path, 2)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert run(workplace, "specs/*.yaml", "--on", "ray") == 4
    assert "RAY_ADDRESS is 'auto', not HOST:PORT" in workplace.tune.err
