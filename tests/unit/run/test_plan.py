"""A stranger's spec may be planned: nothing that it chooses is started (unit tests refuse that)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from builders.jobs import SPEC
from builders.model_files import REPOSITORY
from builders.plans import make_read_only

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.run.plan import DrawnPlan, draw_plan
from tuner.server import wheel


@pytest.fixture(autouse=True)
def _away_from_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(tmp_path: Path, more: str, candidates: int = 0) -> DrawnPlan:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(repository=REPOSITORY) + more)
    return draw_plan(spec, {"PATH": ""}, candidates)


def test_arguments_of_a_server_in_a_container_are_printed(tmp_path: Path) -> None:
    more = "server: {mode: docker, image: i, args: [--backend-directory=/x]}\n"
    command = planned(tmp_path, more).commands["tritonserver"]
    assert (command[0], command[-1]) == ("tritonserver", "--backend-directory=/x")


@pytest.mark.parametrize(("release", "warned"), [("24.10", True), ("25.07", False)])
def test_vulnerable_release_is_recognised_by_the_name_of_its_image(
    release: str, warned: bool, tmp_path: Path
) -> None:
    image = f"nvcr.io/nvidia/tritonserver:{release}-py3"
    plan = planned(tmp_path, f"server: {{mode: docker, image: '{image}'}}\n")
    assert any(note.startswith(f"{image} is older") for note in plan.notes) is warned


def test_backend_missing_beside_a_configured_server_is_reported_without_running_it(
    tmp_path: Path,
) -> None:
    server = tmp_path / "server" / "bin" / "tritonserver"
    server.parent.mkdir(parents=True)
    server.write_text("#!/no/such/program\n")
    server.chmod(0o755)
    named = f"server: {{binary: {server}}}\n"
    assert planned(tmp_path, named).problems == []
    backend = server.parent.parent / "backends" / "python" / "libtriton_python.so"
    backend.parent.mkdir(parents=True)
    with pytest.raises(EnvironmentNotReadyError, match="python"):
        planned(tmp_path, named)
    backend.touch()
    assert planned(tmp_path, named).problems == []


def test_time_of_a_slower_model_is_estimated_where_no_run_shows_the_rate(tmp_path: Path) -> None:
    server = "server: {mode: docker, image: i}\n"
    plan = planned(tmp_path, server)
    assert plan.slower is not None
    rate_per_s, slower = plan.slower
    assert plan.time_text == f"{plan.estimate.text}; at {rate_per_s:.2g}/s {slower.text}"
    assert slower.total_s > 1.5 * plan.estimate.total_s
    listed = "workload: {arrivals: {kind: poisson, rate: [50]}}\n"
    assert planned(tmp_path, server + listed).slower is None


def test_a_plan_needs_no_server_and_says_how_one_gets_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.run.plan.has_tritonserver", lambda *_: False)
    monkeypatch.setattr(wheel, "PYTHON", "3.13")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(repository=REPOSITORY))
    plan = draw_plan(spec, {"PATH": "", "HOME": "/home/me"}, 0)
    (note,) = [note for note in plan.notes if "tritonserver" in note]
    assert note.startswith("no tritonserver found yet: tune run, check and doctor download one")
    assert "/home/me/.cache/triton-tune/" in note
    assert plan.commands["tritonserver"][0] == "tritonserver"
    assert plan.problems == []


@pytest.mark.parametrize("server", ["binary: /usr/bin/env", "mode: docker, image: i"])
def test_no_key_of_a_server_is_printed(server: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, f"server: {{{server}}}\n")
    keys = [a.rpartition("=")[2] for a in plan.commands["tritonserver"] if "restricted" in a]
    assert keys == ["KEY", "KEY"]


def test_plan_says_that_run_will_not_start_where_no_winner_could_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_read_only(REPOSITORY.resolve(), monkeypatch)
    (note,) = [n for n in planned(tmp_path, FOREIGN).notes if n.startswith("tune run will not")]
    assert f"cannot write {REPOSITORY.resolve()}/.tune.journal" in note
    assert "--no-write" in note


FOREIGN = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n"


@pytest.mark.parametrize(
    ("more", "programs"),
    [
        (FOREIGN, ["perf_analyzer"]),
        ("server: {binary: /usr/bin/env}\n", ["tritonserver", "perf_analyzer"]),
    ],
)
def test_only_servers_that_tune_starts_have_a_command(
    more: str, programs: list[str], tmp_path: Path
) -> None:
    commands = planned(tmp_path, more).commands
    assert list(commands) == programs
    assert commands["perf_analyzer"][0] == "perf_analyzer"
    assert "127.0.0.1:GRPC" in commands["perf_analyzer"]


def test_planned_command_uses_the_first_listed_load(tmp_path: Path) -> None:
    workload = "workload: {arrivals: {kind: closed, concurrency: [8, 16], restarts: 1}}\n"
    (line,) = (c for n, c in planned(tmp_path, FOREIGN + workload).commands.items() if "perf" in n)
    assert line[line.index("--concurrency-range") + 1] == "8"


@pytest.mark.parametrize(("strategy", "requested", "drawn"), [("random", 2, 2), ("random", 9, 3)])
def test_planned_candidates_are_distinct_and_never_the_current_config(
    strategy: str, requested: int, drawn: int, tmp_path: Path
) -> None:
    plan = planned(tmp_path, f"{FOREIGN}search: {{strategy: {strategy}}}\n", requested)
    texts = [preview.text for preview in plan.candidates]
    assert len(set(texts)) == len(texts) == drawn  # of four configs one is the current one
    for preview in plan.candidates:
        assert preview.diff.startswith("--- ")
        assert "count" in preview.diff
        assert preview.server_args == ()


def test_search_with_designs_reports_only_those(tmp_path: Path) -> None:
    assert 1 <= len(planned(tmp_path, FOREIGN, 9).candidates) < 4
    assert len(planned(tmp_path, FOREIGN, 1).candidates) == 1


def test_the_size_of_a_space_says_whether_it_is_exact(tmp_path: Path) -> None:
    plan = planned(tmp_path, FOREIGN)
    assert (plan.space_text, plan.problems) == ("4 configs", [])
    assert replace(plan, space_exact=False).space_text != plan.space_text
    assert plan.to_json()["estimate"]["search_s"] > 0.0


def test_perf_analyzer_is_listed_only_where_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Path(__file__).parents[3] / "benchmarks" / "searches" / "served_models"
    text = (served / "pair.yaml").read_text().replace("repository: .", f"repository: {served}")
    (tmp_path / "pair.yaml").write_text(f"{text}\nserver: {{binary: /usr/bin/env}}\n")
    plan = draw_plan(tmp_path / "pair.yaml", {"PATH": ""}, 0)
    assert list(plan.commands) == ["tritonserver"]
    takes = "the load generator needs about 0.4 ms of CPU per request"
    assert [n for n in plan.notes if takes in n]
    monkeypatch.setattr("tuner.extras.find_spec", lambda _: None)  # nothing to measure with
    plan = draw_plan(tmp_path / "pair.yaml", {"PATH": ""}, 0)
    assert not [n for n in plan.notes if takes in n]


COUNT = "space: {instance_group.count: {int: [1, 4]}}"
OF_GPU = "instance_group { kind: KIND_GPU }"


@pytest.mark.parametrize(
    ("more", "config", "place", "ends"),
    [
        (
            "space: {instance_group.kind: {choice: [KIND_CPU, KIND_GPU]}}",
            "",
            "spec.yaml:5:9: space.instance_group.kind: KIND_GPU",
            False,
        ),
        (COUNT, OF_GPU, "config.pbtxt:2:1: instance_group: KIND_GPU", True),
        (
            f"objective: minimize gpu_memory at 300/s\n{COUNT}",
            "",
            "no GPU's memory can be read, so no config can be judged by gpu_memory: take",
            True,
        ),
    ],
)
def test_models_that_need_a_gpu_are_reported_where_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, config: str, place: str, ends: bool
) -> None:
    monkeypatch.setattr("tuner.checks.machine.has_gpu", lambda: False)
    (tmp_path / "m" / "1").mkdir(parents=True)
    text = f'backend: "python" max_batch_size: 8\n{config or "instance_group { count: 1 }"}\n'
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    spec = tmp_path / "spec.yaml"
    server = "" if "server" in more else "server: {binary: /usr/bin/env}\n"
    spec.write_text(f"model: m\nrepository: .\nslo: [p99_latency <= 40ms]\n{server}{more}\n")
    plan = draw_plan(spec, {"PATH": ""}, 0)
    (note,) = (t for t in (*plan.notes, *plan.problems) if place in t)
    assert (note in plan.problems) is ends


def test_all_gpus_are_no_remark_where_nobody_wrote_them(tmp_path: Path) -> None:
    notes = planned(tmp_path, "server: {binary: /usr/bin/env}\n").notes
    assert not [note for note in notes if "server.gpus" in note]


def test_a_budget_that_cannot_give_a_result_is_refused_with_the_least_that_is_enough(
    tmp_path: Path,
) -> None:
    message = r"time is 5s, and two configs take at least \d+ s"
    with pytest.raises(SpecError, match=message) as refused:
        planned(tmp_path, "budget: {time: 5s}\n")
    assert refused.value.exit_code == 2
    (enough,) = re.findall(r"--time-budget to (\d+s) or more", refused.value.hint)
    server = "server: {binary: /usr/bin/env}\n"
    plan = planned(tmp_path, f"{server}budget: {{time: {enough}}}\n")
    assert plan.estimate.search_s <= float(enough[:-1])
    with pytest.raises(SpecError, match="1 trial, and the current config needs one"):
        planned(tmp_path, f"{server}budget: {{trials: 1}}\n")
    planned(tmp_path, f"{server}budget: {{trials: 2}}\n")


@pytest.mark.parametrize(
    ("more", "place", "who"),
    [
        ("server: {binary: /opt/nope}\n", "spec.yaml:5:10", "tritonserver"),
        ("server: {binary: no-such-program}\n", "spec.yaml:5:10", "tritonserver"),
        ("workload: {perf_analyzer: /opt/nope}\n", "spec.yaml:5:12", "perf_analyzer"),
    ],
)
def test_a_program_that_a_spec_names_and_that_is_not_there_is_an_error(
    more: str, place: str, who: str, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentNotReadyError) as error:
        planned(tmp_path, more)
    assert f"{place}: no executable " in error.value.message
    assert f"({who} named by the spec)" in error.value.message
