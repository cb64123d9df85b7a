"""Texts near to good ones, for whoever reads them; see docs/internals/testing.md."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fuzz.near import CONFIG, MODEL_PY, cases, fuzzed, lay_out, near, place, seeds

from tuner.errors import TunerError
from tuner.lint.repository import faults_of, lint_repository
from tuner.load.perf_analyzer import outputs
from tuner.load.traffic.arrivals import read_trace
from tuner.load.traffic.repeats import read_log
from tuner.model_analyzer.carry import carried, repository_of
from tuner.model_analyzer.yaml_file import read_profile
from tuner.modelconfig.edit import edit
from tuner.modelconfig.files import read_model
from tuner.modelconfig.message import parse, to_load_json
from tuner.prepare.job import job_from
from tuner.run.plan import previews
from tuner.search.estimate import estimate_run
from tuner.space.draft import draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel
from tuner.spec.load import effective_yaml, load_spec

_IN_SPECS = (
    *(b"&a [*a]", b"*a", b"!!int x", b"{int: [1, 99999999]}", b"{subsets: [1, 2, 4, 8]}"),
    *(b"max_batch_size", b"dynamic_batching.preferred_batch_size", b"instance_group.count"),
)
_NESTED = (b"-" * 5000, b"x." * 5000, b"(" * 150, b"not " * 900, b"lambda: " * 900)
_EDITS: Mapping[str, Any] = {
    "max_batch_size": 8,
    "instance_group[0].count": 3,
    "dynamic_batching.max_queue_delay_microseconds": 50,
    "dynamic_batching.preferred_batch_size": None,
    "parameters.threads": "4",
    "response_cache.enable": True,
}
#: Each edit of a longer text takes as long as reading it some times.
_EDITED = 50_000


@fuzzed(
    near([*seeds("spec"), *cases("good/**/*.yaml")], _IN_SPECS), also=seeds("spec"), percent=200
)
def test_a_spec_is_planned_or_refused(text: bytes) -> None:
    """All that `tune plan` does but for asking the programs for their versions."""
    with place() as here, suppress(TunerError):
        lay_out(here / "models" / "m")
        (here / "spec.yaml").write_bytes(text)
        loaded = load_spec(here / "spec.yaml")
        effective_yaml(loaded.spec)
        names = {"repository": here / "models", "model": "m"}
        job = job_from(loaded, loaded.spec.model_copy(update=names), {})
        job.space.size()
        _ = estimate_run(job).text
        previews(job, 3)


@fuzzed(near([*seeds("config"), *cases("pbtxt/**/*.pbtxt")]), also=seeds("config"))
def test_a_config_is_edited_and_drafted_for_or_refused(text: bytes) -> None:
    with place() as here, suppress(TunerError):
        lay_out(here / "m", text)
        lint_repository(here)
        model = read_model(here, "m")
        config = model.config()
        to_load_json(config)
        assert edit(model.text, {}) == model.text
        for path, value in _EDITS.items() if len(text) < _EDITED else ():
            edit(model.text, {path: value})
        draft_spec({"m": DraftedModel(config)}, Machine(cores=2), ".")


@fuzzed(near([MODEL_PY, *seeds("model-py")], _NESTED), also=seeds("model-py"), percent=50)
def test_the_code_of_a_model_is_linted(text: bytes) -> None:
    with place() as here, suppress(TunerError):
        lay_out(here / "m", code=text)
        lint_repository(here)
        faults_of(here, "m")


@fuzzed(
    near([*seeds("model-analyzer"), *cases("model_analyzer/good/**/*.yaml")]),
    also=seeds("model-analyzer"),
    percent=200,
)
def test_a_config_of_model_analyzer_becomes_a_spec_or_is_refused(text: bytes) -> None:
    with place() as here, suppress(TunerError):
        (here / "input").write_bytes(text)
        profile = read_profile(here / "input", None)
        repository_of(profile)
        config = parse(CONFIG.decode())
        models = {profile.model: DraftedModel(config)}
        given = carried(profile, models, here, ("p99_latency <= 100ms",), sequences=False)
        draft_spec(models, Machine(cores=2), ".", given=given)


@fuzzed(near(seeds("csv")), also=seeds("csv"))
def test_a_report_of_perf_analyzer_is_read_or_refused(text: bytes) -> None:
    with place() as here, suppress(TunerError):
        (here / "input").write_bytes(text)
        outputs.read_report(here / "input")


@fuzzed(near(seeds("export")), also=seeds("export"), percent=200)
def test_an_export_of_perf_analyzer_is_read_or_refused(text: bytes) -> None:
    with place() as here, suppress(TunerError):
        (here / "input").write_bytes(text)
        outputs.is_complete(here / "input")
        outputs.read_export(here / "input")


@fuzzed(near(seeds("numbers")), also=seeds("numbers"))
def test_a_trace_and_a_log_of_numbers_are_read_or_refused(text: bytes) -> None:
    with place() as here:
        (here / "input").write_bytes(text)
        for read in (read_trace, read_log):
            with suppress(TunerError):
                read(here / "input")
