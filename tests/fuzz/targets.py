"""What is fuzzed: files that a user, perf_analyzer or a stranger wrote, and who reads them."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from builders.candidates import candidate_of
from fuzz import directories
from fuzz.mutate import texts
from fuzz.watch import LONGEST_S, BadBehaviourError
from hypothesis import strategies as st

from tuner.bench.job import Job
from tuner.errors import TunerError

ROOT = Path(__file__).parents[2]
FOUND = Path(__file__).parent / "seeds"

CONFIG = b"""name: "m"
backend: "python"
max_batch_size: 16
input [ { name: "x", data_type: TYPE_FP32, dims: [ -1, 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]  # one
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
parameters { key: "threads" value { string_value: "2" } }
"""
MODEL_PY = (ROOT / "model_repository" / "tokenizer" / "1" / "model.py").read_bytes()
CSV = (
    b"Request Rate,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
    b"Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency\n"
    b"200,193.116,12,456,2872,2,10103,13300,13735,14704,10090\n"
)
EXPORT = (
    b'{"experiments":[{"requests":[{"timestamp":1763783583000000001,"request_inputs":{"x":[1]},'
    b'"response_timestamps":[1763783583000000100]},{"timestamp":1763783583000000050,'
    b'"request_inputs":{"x":[1]},"response_timestamps":[1763783583000000200,'
    b'1763783583000000300]}],"window_boundaries":[1763783583000000000,1763783583000001000]}],'
    b'"version":"2.51"}'
)
SPEC = b"""model: m
repository: models
workload:
  arrivals: {kind: poisson, max_rate: 300}
  inputs: {kind: random, unique: 2000, repeat: {kind: zipf, exponent: 0.9}}
  window: 3s
slo: [p99_latency <= 60ms, error_rate <= 0%]
objective: minimize p99_latency at 300/s
space:
  instance_group.count: {int: [1, 4]}
  max_batch_size: {choice: [8, 16, 32]}
  dynamic_batching: {choice: [off, on]}
  dynamic_batching.preferred_batch_size: {subsets: [4, 8, 16], at_most: 2, or: unset}
  dynamic_batching.max_queue_delay_microseconds: {int: [50, 10000], log: true, or: 0}
  parameters.threads: {choice: [1, 2]}
  response_cache.size: {choice: [off, 64MiB]}
search: {strategy: tpe, seed: 1}
budget: {trials: 40, time: 20m}
confirm: {min_gain: 2%}
"""
RESUMED = """model: emulated-accelerator
repository: %(repository)s
slo: [p99_latency <= 40ms]
space: {instance_group.count: {int: [1, 8]}}
search: {strategy: tpe}
"""
_EDITED = 50_000
EDITS: Mapping[str, Any] = {
    "max_batch_size": 8,
    "instance_group[0].count": 3,
    "dynamic_batching.max_queue_delay_microseconds": 50,
    "dynamic_batching.preferred_batch_size": None,
    "parameters.threads": "4",
    "response_cache.enable": True,
}


@dataclass(frozen=True)
class Target:
    """Attributes:
    inputs: What is tried.
    run: Reads one in an empty directory; `TunerError` is an answer like any other.
    prepare: Lays out what the input needs, before anything is watched.
    longest_s: Of processor time, for one input.
    """

    inputs: Callable[[], st.SearchStrategy[Any]]
    run: Callable[[Any, Path], None]
    prepare: Callable[[Any, Path], None] = lambda _input, _directory: None
    longest_s: float = LONGEST_S


def found_once(name: str) -> list[Any]:
    """Inputs of a target that broke something: a text, or a run's file by name and its text."""
    alone = FOUND / name
    paths = sorted(path for path in alone.rglob("*") if path.is_file())
    texts = [(path.parent, path.read_bytes()) for path in paths]
    return [text if place == alone else (place.name, text) for place, text in texts]


def seeds(name: str, *more: bytes) -> Sequence[bytes]:
    """Those given, and what has broken something once."""
    return (*more, *found_once(name))


def _cases(directory: str, ending: str) -> list[bytes]:
    paths = (ROOT / "tests" / "cases" / directory).rglob(f"*.{ending}")
    return [path.read_bytes() for path in sorted(paths)]


def _spec_inputs() -> st.SearchStrategy[bytes]:
    words = [b"&a [*a]", b"*a", b"!!int x", b"{int: [1, 99999999]}", b"{subsets: [1, 2, 4, 8]}"]
    paths = [b"max_batch_size", b"dynamic_batching.preferred_batch_size", b"instance_group.count"]
    return texts(seeds("spec", SPEC, *_cases("good", "yaml")), words + paths)


def _spec_prepare(text: bytes, directory: Path) -> None:
    _lay_out(directory / "models" / "m", CONFIG)
    (directory / "spec.yaml").write_bytes(text)


def _spec_run(text: bytes, directory: Path) -> None:
    """All that `tune plan` does but for asking the programs for their versions."""
    from tuner.bench.job import job_from
    from tuner.run.plan import previews
    from tuner.search.estimate import estimate_run
    from tuner.spec.load import effective_yaml, load_spec

    loaded = load_spec(directory / "spec.yaml")
    effective_yaml(loaded.spec)
    own = {"repository": directory / "models", "model": "m"}
    job = job_from(loaded, loaded.spec.model_copy(update=own), {})
    job.space.size()
    _ = estimate_run(job).text
    previews(job, 3)


def _config_run(text: bytes, directory: Path) -> None:
    from tuner.lint.repository import lint_repository
    from tuner.modelconfig.edit import edit
    from tuner.modelconfig.files import read_model
    from tuner.modelconfig.message import to_load_json
    from tuner.space.draft import DraftedModel, Machine, draft_spec

    lint_repository(directory)
    model = read_model(directory, "m")
    config = model.config()
    to_load_json(config)
    if edit(model.text, {}) != model.text:
        raise BadBehaviourError("an edit of nothing changed the text")
    if len(text) < _EDITED:  # each edit of a long text takes as long as reading it some times
        for path, value in EDITS.items():
            edit(model.text, {path: value})
    draft_spec({"m": DraftedModel(config)}, Machine(cores=2), ".")


def _model_py_run(text: bytes, directory: Path) -> None:
    from tuner.lint.repository import errors_of, lint_repository

    lint_repository(directory)
    errors_of(directory, "m")


def _analyzer_run(text: bytes, directory: Path) -> None:
    from tuner.model_analyzer.carry import carried, repository_of
    from tuner.model_analyzer.yaml_file import read_profile
    from tuner.modelconfig.message import parse
    from tuner.space.draft import DraftedModel, Machine, draft_spec

    profile = read_profile(directory / "input", None)
    repository_of(profile)
    config = parse(CONFIG.decode())
    given = carried(profile, config, directory, "p99_latency <= 100ms")
    draft_spec({profile.model: DraftedModel(config)}, Machine(cores=2), ".", given=given)


def _csv_run(text: bytes, directory: Path) -> None:
    from tuner.load.perf_analyzer import outputs

    outputs.read_report(directory / "input")


def _export_run(text: bytes, directory: Path) -> None:
    from tuner.load.perf_analyzer import outputs

    outputs.is_complete(directory / "input")
    outputs.read_export(directory / "input")


def _numbers_run(text: bytes, directory: Path) -> None:
    from tuner.load.traffic.arrivals import read_trace
    from tuner.load.traffic.repeats import read_log

    for read in (read_trace, read_log):
        try:
            read(directory / "input")
        except TunerError:
            continue


def _write_input(text: bytes, directory: Path) -> None:
    (directory / "input").write_bytes(text)


def _lay_out(model: Path, config: bytes, code: bytes = MODEL_PY) -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_bytes(config)
    (model / "1" / "model.py").write_bytes(code)


@cache
def _run_folder() -> Mapping[str, bytes]:
    """The files of a finished run, by name."""
    from tempfile import TemporaryDirectory

    from builders.runs import Toy, make_run

    with TemporaryDirectory() as parent:
        run = make_run(Path(parent), Toy(trials=5), "improved")
        files = (path for path in run.iterdir() if path.suffix in (".json", ".jsonl"))
        return {path.name: path.read_bytes() for path in sorted(files)}


def _damaged(files: Mapping[str, bytes], target: str) -> st.SearchStrategy[tuple[str, bytes]]:
    """One of the files, by name, near to what it was."""

    def of(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        words = [b"null", b"[]", b"{}", b'"x"', b"-1", b"1.5", b"[" * 2000]
        return st.tuples(st.just(name), texts(seeds(f"{target}/{name}", files[name]), words))

    return st.sampled_from(sorted(files)).flatmap(of)


def _run_inputs() -> st.SearchStrategy[tuple[str, bytes]]:
    return _damaged(_run_folder(), "run")


def _lay_out_run(files: Mapping[str, bytes], damaged: tuple[str, bytes], directory: Path) -> None:
    run = directory / "results" / "run"
    run.mkdir(parents=True)
    for name, content in {**files, damaged[0]: damaged[1]}.items():
        (run / name).write_bytes(content)


def _run_prepare(damaged: tuple[str, bytes], directory: Path) -> None:
    from builders.runs import CONFIG as TOY

    _lay_out(directory / "models" / "toy", TOY.encode())
    _lay_out_run(_run_folder(), damaged, directory)


def _run_run(damaged: tuple[str, bytes], directory: Path) -> None:
    """What reads a finished run: its report, the list of runs, `tune apply`."""
    run = str(directory / "results" / "run")
    _command("report", run)
    _command("report", "--output", str(directory / "results"))
    _command("apply", run, "--dry-run", "--repository", str(directory / "models"))


@cache
def _stopped() -> tuple[Job, Mapping[str, bytes]]:
    """A job, and the files of a run of it that was stopped after some trials."""
    from tempfile import TemporaryDirectory

    from builders.jobs import opened
    from builders.runs import COUNT, Toy, make_trials

    from tuner.bench.job import Request, prepare

    with TemporaryDirectory() as place:
        spec = Path(place) / "spec.yaml"
        models = ROOT / "model_repository"
        spec.write_text(RESUMED % {"repository": models}, encoding="utf-8")
        job = prepare(Request(spec=spec))
        with opened(job, Request(spec, output=Path(place) / "results")) as new:
            store = new.store
        for trial, count in zip(make_trials(Toy(trials=3)), (1, 2, 3), strict=True):
            store.append_trial(
                replace(trial, candidate=candidate_of({COUNT: count}, model=job.spec.name))
            )
        files = (path for path in store.directory.iterdir() if path.suffix in (".json", ".jsonl"))
        return job, {path.name: path.read_bytes() for path in sorted(files)}


def _resume_inputs() -> st.SearchStrategy[tuple[str, bytes]]:
    return _damaged(_stopped()[1], "resume")


def _resume_run(_damaged: tuple[str, bytes], directory: Path) -> None:
    """What `tune run --resume` does until it measures."""
    from builders.jobs import opened

    from tuner.bench.job import Request
    from tuner.run.open_run import restore_choices, spec_of

    job, _files = _stopped()
    run = directory / "results" / "run"
    with suppress(TunerError):
        spec_of(run)
    with opened(job, restore_choices(Request(job.loaded.path, resume=run))) as again:
        again.searcher.next()


def _write_inputs() -> st.SearchStrategy[tuple[str, bytes]]:
    from builders.rendering import config_text

    numbers = st.integers(0, 2**32)
    rendered = numbers.map(lambda seed: config_text(random.Random(seed)).encode())
    found = st.sampled_from(seeds("write", CONFIG, *_cases("pbtxt", "pbtxt")))
    return st.tuples(numbers.map(str), found | rendered)


def _write_run(tried: tuple[str, bytes], directory: Path) -> None:
    from fuzz.writes import write_and_take_back

    write_and_take_back(int(tried[0]), directory / "models")


def _command(*arguments: str) -> None:
    """`tune ARGUMENTS`; exit code 1 is for defects only."""
    from tuner.cli import cli
    from tuner.cli.boundary import guarded

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = guarded(cli, arguments)
    if code == 1 or "Traceback" in err.getvalue():
        raise BadBehaviourError(f"tune {' '.join(arguments)}\n{err.getvalue()[-4000:]}")


def cleared(directory: Path) -> Path:
    """The directory, empty."""
    for entry in directory.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    return directory


TARGETS: Mapping[str, Target] = {
    "spec": Target(_spec_inputs, _spec_run, _spec_prepare),
    "config": Target(
        lambda: texts(seeds("config", CONFIG, *_cases("pbtxt", "pbtxt"))),
        _config_run,
        lambda text, directory: _lay_out(directory / "m", text),
    ),
    "model-py": Target(
        lambda: texts(seeds("model-py", MODEL_PY)),
        _model_py_run,
        lambda text, directory: _lay_out(directory / "m", CONFIG, text),
    ),
    "model-analyzer": Target(
        lambda: texts(seeds("model-analyzer", *_cases("model_analyzer/good", "yaml"))),
        _analyzer_run,
        _write_input,
    ),
    "csv": Target(lambda: texts(seeds("csv", CSV)), _csv_run, _write_input),
    "export": Target(lambda: texts(seeds("export", EXPORT)), _export_run, _write_input),
    "numbers": Target(
        lambda: texts(seeds("numbers", b"100\n250.5\n0\n", b"0\n1\n2\n0\n")),
        _numbers_run,
        _write_input,
    ),
    "write": Target(
        _write_inputs,
        _write_run,
        lambda tried, directory: _lay_out(directory / "models" / "m", tried[1]),
    ),
    "directories": Target(directories.inputs, directories.run, directories.prepare),
    "run": Target(_run_inputs, _run_run, _run_prepare, longest_s=10.0),
    "resume": Target(
        _resume_inputs,
        _resume_run,
        lambda damaged, directory: _lay_out_run(_stopped()[1], damaged, directory),
    ),
}
