"""The GPU benchmark's own parts: what is packed, what is served, what its table says."""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from unit.models.importing import import_file
from unit.report.synthetic import Toy, make_run

from tuner.machine import private
from tuner.modelconfig.rules import violations
from tuner.steps.job import Request, prepare

GPU = Path(__file__).parents[3] / "benchmarks" / "gpu"
SPECS = sorted((GPU / "specs").glob("*.yaml"))

Script = Callable[[str], Any]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return lambda name: import_file(GPU / f"{name}.py", monkeypatch)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_a_spec_fits_its_model_which_starts_unbatched(
    path: Path, script: Script, tmp_path: Path
) -> None:
    models = script("models")
    models.write_repository(tmp_path / "models", models.Device.GPU)
    (tmp_path / "specs").mkdir()
    job = prepare(Request(spec=Path(shutil.copy(path, tmp_path / "specs"))))
    config = job.served.models[""].base.file
    assert not config.HasField("dynamic_batching")
    assert [(g.count, g.kind) for g in config.instance_group] == [(1, 1)]  # KIND_GPU
    assert violations(config) == []
    assert job.space.size().count > 1
    assert job.spec.name in [model.name for model in models.MODELS]


def test_the_models_of_a_cpu_are_small_and_say_so(script: Script, tmp_path: Path) -> None:
    models = script("models")
    models.write_repository(tmp_path, models.Device.CPU)
    for model in models.MODELS:
        text = (tmp_path / model.name / "config.pbtxt").read_text()
        assert text.startswith("# Small, for a CPU")
        assert "KIND_CPU" in text
        assert 'key: "layers" value { string_value: "2" }' in text
        assert "27%" not in text
        assert (tmp_path / model.name / "1" / "model.py").exists()


def test_every_spec_is_a_stage(script: Script) -> None:
    assert sorted(script("run").SPECS) == [path.stem for path in SPECS]


def test_the_work_directory_is_out_of_every_sweepers_reach(script: Script) -> None:
    """It holds the environment that runs and all results, for as long as the machine is lent."""
    name = script("run").WORK
    for swept in ("triton-tune-*", f"{private.PREFIX}*"):
        assert not Path(name).match(swept)


class Machine:
    """A GPU machine whose stages leave a file each, and end as they are told."""

    def __init__(self, run: Any, work: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.output, self.begun = run, output, []
        place = run.Place(work, "gpu")
        self.results = place.results
        monkeypatch.setattr(run, "prepared", lambda *_: place)
        monkeypatch.setattr(run, "gpu_log", lambda _: nullcontext())
        monkeypatch.setattr(run, "run_stage", self._run_stage)

    def _run_stage(self, stage: str, place: Any, *_: object) -> str:
        self.begun.append(stage)
        if stage == self.lost_in:
            raise KeyboardInterrupt
        (place.results / stage / "figures.txt").write_text(stage)
        return self.ends.get(stage, "exit 0")

    def call(
        self, ends: dict[str, str] | None = None, *, lost_in: str = "", stages: Any = None
    ) -> list[str]:
        """The stages that were begun."""
        self.begun, self.ends, self.lost_in = [], ends or {}, lost_in
        given = Namespace(bundle=None, work=None, device="gpu", minutes=9.0, stages=stages)
        given.output = self.output
        with suppress(KeyboardInterrupt):
            self.run.run_all(given, time.monotonic())
        return self.begun


def test_a_lost_machine_loses_one_stage(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = script("run")
    first = Machine(run, tmp_path / "first", tmp_path / "out", monkeypatch)
    first.call({"loads": "interrupted", "memory": "exit 4"}, lost_in="bert-25ms")
    second = Machine(run, tmp_path / "second", tmp_path / "out", monkeypatch)
    begun = second.call({"bert-default": "exit 10", "small-cnn": "exit 5"})
    assert begun[:3] == ["memory", "loads", "bert-25ms"]
    assert {"doctor", "transports", "bert-100ms"}.isdisjoint(begun)
    for stage in run.STAGES:
        assert (second.results / stage / "figures.txt").read_text() == stage
        assert (tmp_path / "out" / f"{stage}.tar.gz").exists()
    assert second.call() == ["small-cnn", "table"]
    assert second.call(stages=["doctor"]) == ["doctor"]
    assert sorted(json.loads((tmp_path / "out" / "ends.json").read_text())) == sorted(run.STAGES)


@pytest.mark.parametrize(
    ("result", "resumed"), [(None, True), ("interrupted", True), ("improved", False)]
)
def test_a_run_that_was_interrupted_is_gone_on_with(
    script: Script, tmp_path: Path, result: str | None, resumed: bool
) -> None:
    run = script("run")
    place = run.Place(tmp_path, "gpu")
    of_the_stage = place.results / "bert-100ms"
    for name in ("20260101-000000-bert", "20260102-000000-bert"):
        (of_the_stage / name).mkdir(parents=True)
        (of_the_stage / name / "manifest.json").write_text("{}")
    if result is not None:
        text = json.dumps({"status": result})
        (of_the_stage / "20260102-000000-bert" / "result.json").write_text(text)
    given = Namespace(search_seconds=None, trials=None)
    command = run.command_of("bert-100ms", place, given)
    newest = str(of_the_stage / "20260102-000000-bert")
    assert (command[2:4] == ["--resume", newest]) is resumed
    assert ("--no-write" in command) is not resumed


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What Triton runs, without PyTorch: enough to import it."""
    torch = ModuleType("torch")
    vars(torch).update(
        nn=SimpleNamespace(Module=object),
        int64=None,
        ones=lambda *_, dtype: None,
        zeros=lambda *_: None,
        inference_mode=lambda: lambda f: f,
    )
    dlpack = ModuleType("torch.utils.dlpack")
    vars(dlpack).update(from_dlpack=None, to_dlpack=None)
    modules = {"torch": torch, "torch.utils": ModuleType("torch.utils")}
    modules |= {"torch.utils.dlpack": dlpack, "triton_python_backend_utils": ModuleType("pb")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return import_file(GPU / "served_model.py", monkeypatch)


def test_batches_are_padded_to_a_power_of_two(served: ModuleType) -> None:
    assert [served.padded(n) for n in (1, 2, 3, 5, 8, 33, 64)] == [1, 2, 4, 8, 8, 64, 64]


def test_ballast_is_a_size_or_a_share_of_the_gpu(served: ModuleType) -> None:
    assert served.ballast_bytes("0", 1000) == 0
    assert served.ballast_bytes("27%", 1000) == 270
    assert served.ballast_bytes("4GiB", 1000) == 4 << 30


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("pytriton/__init__.py", False),
        ("pytriton/tritonserver/bin/tritonserver", False),
        ("pytriton/tritonserver/python_backend_stubs/3.12/triton_python_backend_stub", False),
        ("pytriton/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub", True),
        ("pytriton/proxy/inference.py", True),
        ("nvidia_pytriton.libs/libpython3-419a3a08.13.so.1.0", True),
        ("nvidia_pytriton.libs/libdcgm-7f88035e.so.3.2.6", False),
        ("plotly/package_data/plotly.min.js", False),
        ("plotly/package_data/plotly.min.js.map", True),
        ("bin/perf_client", True),
    ],
)
def test_what_nothing_reads_stays_behind(script: Script, name: str, stays: bool) -> None:
    assert script("bundle").dropped(name, "3.12") is stays


def test_a_bundle_holds_what_the_project_requires_and_the_machine_lacks(script: Script) -> None:
    bundle = script("bundle")
    usual = bundle.contents("3.12", ())
    names = {pin.partition("==")[0] for pin in usual.pins}
    assert {"nvidia-pytriton", "tritonclient", "optuna", "pydantic-core", "alembic"} <= names
    assert not names & {"triton-tune", "scipy", "llvmlite", "onnxruntime", "pyzmq"}
    assert "scipy" in usual.already_there
    assert "onnxruntime" in usual.left_out
    assert any(pin.startswith("scipy==") for pin in bundle.contents("3.12", ["scipy"]).pins)


def test_a_bundle_that_is_too_large_says_what_makes_it_so(script: Script, tmp_path: Path) -> None:
    bundle = script("bundle")
    part = tmp_path / "part"
    part.write_bytes(b"x" * (3 << 20))
    members = [("site/huge/a.so", part), ("site/huge/b.so", part)]
    bundle.check_size(2 << 20, 2.0, members)
    with pytest.raises(bundle.BundleError, match=r"2\.1 MiB and may have 2; .* site/huge 6 MiB"):
        bundle.check_size((2 << 20) + (1 << 17), 2.0, members)


def load(name: str, level: int, rate: float, latency_ms: float, busy: float) -> dict[str, Any]:
    return {
        "kind": "load",
        "name": name,
        "concurrency": level,
        "throughput_infer_per_s": rate,
        "avg_latency_us": 1e3 * latency_ms,
        "p95_latency_us": 1.2e3 * latency_ms,
        "gpu_utilization": busy,
    }


def memory(model: str, instances: int, used_mib: float) -> dict[str, Any]:
    row = {"kind": "memory", "model": model, "instances": instances}
    return {**row, "used_mib": used_mib, "total_mib": 16_000.0}


LOADS = [
    load("unbatched", 1, 100.0, 10.0, 0.6),
    load("unbatched", 16, 110.0, 145.0, 0.9),
    load("recommended", 16, 800.0, 20.0, 0.5),
    load("recommended", 32, 1000.0, 20.0, 0.7),  # 20 in flight by its own figures
    load("recommended", 128, 1020.0, 125.0, 0.8),
]
MEMORY = [
    *(memory("bert-base", n, 500.0 + 900.0 * n) for n in (0, 1, 2, 3)),
    *(memory("bert-heavy", n, 500.0 + 4800.0 * n) for n in (0, 1, 2, 3)),
    {"kind": "memory", "model": "bert-heavy", "instances": 4, "refused": "CUDA out of memory."},
]


def made_up(directory: Path) -> Path:
    """Results as the stages leave them; every figure in them is invented."""
    for stage in ("bert-100ms", "bert-default"):
        path = make_run(directory / stage, Toy(trials=12, gpu=True, cache=False, twin=True))
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["spec_path"] = f"specs/{stage}.yaml"
        (path / "manifest.json").write_text(json.dumps(manifest))
    for name, rows in (("loads", LOADS), ("memory", MEMORY)):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return directory


def test_the_table_says_what_was_measured_and_what_was_not(script: Script, tmp_path: Path) -> None:
    table = script("table")
    figures = table.Figures.read(made_up(tmp_path))
    text = "\n".join(table.page(figures))
    ours = figures.runs["bert-100ms"].result
    assert f"ours | {table._fields(ours['winner'])} |" in text
    assert f" {ours['winner']['goodput_infer_per_s']:.4g} |" in text
    assert f"{ours['improvement']['goodput_ratio']['estimate']:.1f} times (" in text
    assert "Triton's default dynamic batching" in text
    assert "Model Analyzer's search" not in text
    for line in (
        "| H2 | 45/s without, 1 to 16 in flight | 110/s with 16 in flight |",
        "| H3 | 480/s with, up to 32 | 1000/s with 32 in flight |",
        "| H4 | 8 to 15 times on an A100 | 9.1 times |",
        "in flight | 32 in flight give 95 % of the most that up to 128 gave |",
        "| H6 | p95 8 to 12 ms, one instance | 12.0 ms with 1 |",
        "| H10 | about 400 MB each instance | 900 MiB the first, 900 MiB each further one |",
        "| H24 | 4 instances of 4 GB take 16 GB | 4800 MiB each further instance; 4 refused: CUDA",
        "| H26 | 20 % of the memory must stay free | 3 loaded; the rule allows 2 |",
        "480/s with 16 to 32 in flight is 33 to 67 ms on average",
        "Little's law holds within 10 % in 4 of 5.",
        "- recommended: 32 in flight, 20.0 by throughput and latency",
    ):
        assert line in text


def test_a_table_of_nothing_claims_nothing(script: Script, tmp_path: Path) -> None:
    table = script("table")
    text = "\n".join(table.page(table.Figures.read(tmp_path)))
    assert text.startswith("**No GPU.**")
    assert "Little's law: not measured." in text


def test_what_a_cpu_gave_does_not_stand_beside_claims_about_gpus(
    script: Script, tmp_path: Path
) -> None:
    table = script("table")

    def text(gpus: list[str]) -> str:
        rows = [{"kind": "machine", "gpus": gpus}, *LOADS]
        (tmp_path / "loads.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        return "\n".join(table.page(table.Figures.read(tmp_path)))

    assert "| H2 |" not in text([])
    on_gpu = text(["Toy GPU"])
    assert on_gpu.startswith("On Toy GPU.")
    assert "| H2 | 45/s without, 1 to 16 in flight | 110/s with 16 in flight |" in on_gpu
    unknown = [line for line in on_gpu.splitlines() if line.endswith("| not measured |")]
    assert [line[:6] for line in unknown] == ["| H1 |", "| H10 ", "| H11 ", "| H24 ", "| H26 "]
